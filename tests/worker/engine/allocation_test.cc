// When each queue has reached its largest length, a step must allocate no memory: not in the engine, the backend, the data set
// or the communication. The test counts every call of operator new in the process. It does not count those in which oneDNN
// manages the arguments of a product (on processors that multiply bfloat16).
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "common/status.h"
#include "tests/worker/engine/tiny_cluster.h"

namespace {

std::atomic<bool> counting = false;
std::atomic<int64_t> allocations = 0;

bool InOneDnn(const void* code) {
  Dl_info info;
  return dladdr(code, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libdnnl") != nullptr;
}

void* Allocate(std::size_t size, std::size_t alignment, const void* caller) {
  if (counting && !InOneDnn(caller) && allocations++ < 3) {
    counting = false;  // the trace below allocates memory
    void* frames[24];
    backtrace_symbols_fd(frames, backtrace(frames, 24), STDERR_FILENO);
    counting = true;
  }
  void* const memory =
      alignment == 0 ? std::malloc(size) : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size, 0, __builtin_return_address(0)); }
void* operator new[](std::size_t size) { return Allocate(size, 0, __builtin_return_address(0)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace lynx::worker {
namespace {

constexpr int64_t kWarmUp = 4;
constexpr int64_t kCounted = 4;

class Allocation : public testing::TestWithParam<TinySetting> {};

void ExpectNoStepAllocates(const ModelSpec& model, const ParallelLayout& layout) {
  TinyJob job;
  job.model = model;
  job.dead_buffers = DeadBuffers::kLeave;  // training uses this value too
  job.Lower(layout, RecomputeMode::kFull);
  const auto statuses = OnRanks(job, [](TinyRank& rank) -> absl::Status {
    for (int64_t step = 0; step < kWarmUp + kCounted; ++step) {
      if (step == kWarmUp) {
        LYNX_RETURN_IF_ERROR(rank.communicator->Barrier());
        counting = true;
        LYNX_RETURN_IF_ERROR(rank.communicator->Barrier());
      }
      LYNX_RETURN_IF_ERROR(rank.engine->RunStep(step).status());
    }
    LYNX_RETURN_IF_ERROR(rank.communicator->Barrier());
    counting = false;
    return rank.communicator->Barrier();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(allocations.exchange(0), 0);
}

TEST_P(Allocation, NoStepAllocates) { ExpectNoStepAllocates(SpecOf(GetParam()), GetParam().layout); }

TEST(ExpertAllocation, NoStepAllocates) {
  ExpectNoStepAllocates(TinyMoe(), {.dp = 4, .ep = 4});
  ModelSpec with_rounds = TinyMoe();
  with_rounds.moe.capacity = 0.5;
  with_rounds.moe.dropless = true;
  ExpectNoStepAllocates(with_rounds, {.dp = 4, .ep = 4});
  ExpectNoStepAllocates(TinyMoe(DataType::kBfloat16),
                        {.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true, .zero = ZeroStage::kOptimizer});
}

INSTANTIATE_TEST_SUITE_P(, Allocation,
                         testing::Values(TinySetting{TinyModel::kGpt, {}}, TinySetting{TinyModel::kGpt, {.tp = 2, .pp = 2}},
                                         TinySetting{TinyModel::kTiedLlama, {.pp = 2, .dp = 2}},
                                         TinySetting{TinyModel::kLlama, {.tp = 2, .pp = 2, .sequence_parallel = true}},
                                         TinySetting{TinyModel::kGpt, {.dp = 2, .zero = ZeroStage::kOptimizer}},
                                         TinySetting{TinyModel::kTiedLlama,
                                                     {.tp = 2, .pp = 2, .dp = 2, .zero = ZeroStage::kOptimizer},
                                                     DataType::kBfloat16}),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace lynx::worker
