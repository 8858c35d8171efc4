// Tests what the CUDA backend does besides its ops: memory, names and errors. It runs on the host
// (cuda_on_host/cuda_runtime.h).
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "tests/worker/backend/test_memory.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/stream.h"
#include "worker/backend/host_view.h"

namespace lynx::worker {
namespace {

using testing::HasSubstr;

std::unique_ptr<Backend> Make() {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(0);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::move(*backend);
}

TEST(CudaBackend, SaysWhichDeviceThereIsNot) {
  for (const int device : {1, -1}) {
    const absl::Status status = MakeCudaBackend(device).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("there is no CUDA device " + std::to_string(device) + ": this machine has 1"));
  }
}

TEST(CudaBackend, NamesItsDevice) { EXPECT_THAT(Make()->Name(), testing::StartsWith("cuda:0: CUDA on the host")); }

std::string Variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

// The values that making a backend must not change. They are read before the first backend is made.
const std::string kConnections = Variable("CUDA_DEVICE_MAX_CONNECTIONS", "32");
const std::string kLoading = Variable("CUDA_MODULE_LOADING", "EAGER");

// CUDA reads these when it starts. With other values, a transfer that waits for a peer may block what the peer waits for.
TEST(CudaBackend, AsksForHardwareQueuesAndLoadsKernelsBeforehand) {
  Make();
  EXPECT_EQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), kConnections);
  EXPECT_EQ(std::getenv("CUDA_MODULE_LOADING"), kLoading);
}

TEST(CudaBackend, AllocatesExactlyTheBytesAskedForAlignedAndZeroed) {
  const std::unique_ptr<Backend> backend = Make();
  for (const int64_t floats : {1, 1000, 1003}) {
    const absl::StatusOr<std::span<float>> memory = backend->Allocate(Bytes(floats * 4), "the arena");
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(static_cast<int64_t>(memory->size()), floats);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 256, 0u);
    absl::StatusOr<HostView> view = HostView::Fetch(*memory, *backend);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_THAT(view->floats(), testing::Each(0.0f));
  }
  EXPECT_EQ(backend->Allocate(Bytes(0), "nothing")->size(), 0u);
}

TEST(CudaBackend, SaysWhatCouldNotBeHad) {
  const std::unique_ptr<Backend> backend = Make();
  const absl::Status status = backend->Allocate(Bytes(int64_t{1} << 50), "the activation arena").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1125899906842624 bytes) for the activation arena on cuda:0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("8.0 GiB are free"));
}

// The status code decides the attribution of a rank's failure.
TEST(CudaBackend, TellsAFailedDeviceFromOtherErrors) {
  EXPECT_EQ(cuda::StatusOf(cudaErrorMemoryAllocation, "an op").code(), absl::StatusCode::kResourceExhausted);
  for (const cudaError_t error :
       {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError, cudaErrorDevicesUnavailable}) {
    EXPECT_EQ(cuda::StatusOf(error, "an op").code(), absl::StatusCode::kAborted);
  }
  EXPECT_EQ(cuda::StatusOf(cudaErrorInvalidValue, "an op").code(), absl::StatusCode::kInternal);
}

TEST(CudaBackend, TellsHowMuchMemoryIsFree) {
  const std::unique_ptr<Backend> backend = Make();
  const Bytes before = backend->FreeMemory().value();
  EXPECT_LT(before, Bytes(int64_t{8} << 30)) << "it has scratch";
  ASSERT_TRUE(backend->Allocate(kMiB, "the arena").ok());
  EXPECT_EQ(backend->FreeMemory().value(), before - kMiB);
  const std::span<float> scratch = backend->Allocate(kMiB, "what goes").value();
  EXPECT_EQ(backend->FreeMemory().value(), before - kMiB * 2);
  backend->Release(scratch);
  backend->Release({});
  EXPECT_EQ(backend->FreeMemory().value(), before - kMiB);
}

// One kernel updates many parameters. So for 50 tensors AdamW makes one call of CUDA that can fail, and not 50.
TEST(CudaBackend, UpdatesManyTensorsWithOneCall) {
  TestMemory memory;
  std::vector<AdamWTensor> tensors;
  for (int i = 0; i < 50; ++i) {
    const int64_t count = 1 + 300 * (i % 30);
    tensors.push_back({.count = count,
                       .gradient = memory.Random(count, 1),
                       .w = memory.Random(count, 2),
                       .m = memory.Constant(count, 0),
                       .v = memory.Constant(count, 0)});
  }
  const AdamWArgs args{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0, .step = 1, .gradient_scale = 1};
  for (const auto& [calls, succeeds] : {std::pair(1, false), std::pair(2, true)}) {
    const std::unique_ptr<Backend> backend = Make();
    cuda_on_host::FailFromCall(calls);
    backend->AdamW(args, tensors);
    cuda_on_host::FailFromCall(0);
    EXPECT_EQ(backend->Finish().ok(), succeeds);
  }
}

TEST(CudaBackend, FillsAndCopiesTheGivenRangeOnly) {
  const std::unique_ptr<Backend> backend = Make();
  TestMemory memory;
  float *const x = memory.Constant(10, 1), *const y = memory.Output(5), *const z = memory.Output(1030);
  backend->Fill(x + 2, 5, 3);
  backend->Fill(z, 1030, 4);
  backend->Copy(x + 1, Bytes(5 * 4), y);
  ASSERT_TRUE(backend->Finish().ok());
  EXPECT_THAT(std::vector<float>(x, x + 10), testing::ElementsAre(1, 1, 3, 3, 3, 3, 3, 1, 1, 1));
  EXPECT_THAT(std::vector<float>(y, y + 5), testing::ElementsAre(1, 3, 3, 3, 3));
  EXPECT_THAT(std::vector<float>(z, z + 1030), testing::Each(4.0f));
  memory.ExpectGuardsIntact();
}

TEST(CudaBackend, RefusesHeadsThatItsKernelsDoNotHold) {
  const std::unique_ptr<Backend> backend = Make();
  const AttentionShape shape{.b = 1, .s = 1, .a = 1, .k = 1, .d = 257};
  TestMemory memory;
  float* const context = memory.Output(257);
  backend->FlashForward(shape, memory.Random(3 * 257, 1), {}, nullptr, context, memory.Output(1));
  const absl::Status status = backend->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("heads of at most 256 elements, but the model's have 257 (model.headDim, model.latent.valueDim)"));
}

// Runs fused attention on bfloat16 forward and backward. Returns the context and the gradients.
std::vector<float> FusedAttention(Backend& backend, const AttentionShape& shape) {
  TestMemory memory;
  const int64_t tokens = shape.b * shape.s, count = tokens * shape.a * shape.d, qkv_count = tokens * shape.width();
  const DropoutKey key{0.2, 11, 7, 2, 5, 40};
  const Bfloat16* const qkv = memory.RandomBfloat16(qkv_count, 1);
  Bfloat16 *const context = memory.OutputBfloat16(count), *const dqkv = memory.OutputBfloat16(qkv_count);
  float* const lse = memory.Output(shape.b * shape.a * shape.s);
  const int64_t workspace = shape.b * shape.a * shape.s + WideHeadFloats<Bfloat16>(shape, 4, 3);
  backend.bfloat16().FlashForward(shape, qkv, key, memory.Output(workspace), context, lse);
  backend.bfloat16().FlashBackward(shape, qkv, context, lse, memory.RandomBfloat16(count, 2), key, memory.Output(workspace),
                                   dqkv);
  EXPECT_TRUE(backend.Finish().ok());
  memory.ExpectGuardsIntact();
  std::vector<float> result(context, context + count);
  result.insert(result.end(), dqkv, dqkv + qkv_count);
  return result;
}

// Tensor cores round the probabilities between two products. On a device without tensor cores, and for shapes that they do not
// support, attention must be as exact as fp32, as on a CPU.
TEST(CudaBackend, AttentionIsOnTensorCoresWhereTheyAreAndHoldIt) {
  struct Case {
    int64_t d;
    int compute_major;
    bool exact;
  };
  for (const Case& c : {Case{128, 9, false}, Case{128, 8, false}, Case{128, 7, true}, Case{129, 9, true}}) {
    const AttentionShape shape{.b = 1, .s = 70, .a = 2, .k = 1, .d = c.d};
    const std::vector<float> on_cpu = FusedAttention(*MakeCpuBackend(1), shape);
    cuda_on_host::SetComputeMajor(c.compute_major);
    const std::vector<float> on_device = FusedAttention(*Make(), shape);
    cuda_on_host::SetComputeMajor(9);
    int64_t different = 0;
    for (size_t i = 0; i < on_cpu.size(); ++i) {
      different += on_device[i] != on_cpu[i];
      EXPECT_NEAR(on_device[i], on_cpu[i], 0.02);
    }
    // The CPU computes in fp32 and rounds to bfloat16. `different` is the number of values that differ from its results.
    EXPECT_EQ(different < static_cast<int64_t>(on_cpu.size() / 20), c.exact) << different << " of " << on_cpu.size();
  }
}

// For every k, all calls of CUDA from the k-th on fail. The error must be returned, and everything made earlier must be
// released.
TEST(CudaBackend, AnyCallMayFail) {
  const auto run = []() -> absl::Status {
    absl::StatusOr<std::unique_ptr<Backend>> made = MakeCudaBackend(0);
    if (!made.ok()) return made.status();
    Backend& backend = **made;
    const absl::StatusOr<std::span<float>> memory = backend.Allocate(Bytes(64 * 4), "the arena");
    if (!memory.ok()) return memory.status();
    float* const x = memory->data();
    backend.Fill(x, 64, 1);
    backend.LinearForward(x, x + 16, nullptr, 4, 4, 4, x + 32);
    backend.LayerNormBackward(x, x, x, 4, 4, 1e-5f, false, x + 48, x + 32, x + 36);
    backend.SumOfSquares(std::vector<std::span<const float>>{{x, 64}}, reinterpret_cast<double*>(x));
    const absl::StatusOr<Bytes> free_bytes = backend.FreeMemory();
    if (!free_bytes.ok()) return free_bytes.status();
    const absl::StatusOr<std::span<float>> pinned = backend.AllocatePinned(Bytes(64 * 4), "a pool");
    if (!pinned.ok()) return pinned.status();
    const absl::StatusOr<std::unique_ptr<DeviceQueue>> queue = backend.MakeQueue();
    if (!queue.ok()) return queue.status();
    backend.BeginMarks();
    (*queue)->Follow(backend.Mark());
    (*queue)->Copy(x, Bytes(64 * 4), pinned->data());
    const Moment copied = (*queue)->Mark();
    backend.Follow(copied);
    const absl::Status finished = backend.Finish();
    if (!finished.ok()) return finished;
    backend.TimeOf(copied);
    return backend.Finish();
  };
  int64_t failures = 0;
  for (int64_t k = 1;; ++k) {
    cuda_on_host::FailFromCall(k);
    const absl::Status status = run();
    cuda_on_host::FailFromCall(0);
    if (status.ok()) break;
    EXPECT_THAT(std::string(status.message()), testing::AnyOf(HasSubstr("CUDA: "), HasSubstr("cuBLASLt")));
    ++failures;
  }
  EXPECT_GT(failures, 24);
}

}  // namespace
}  // namespace lynx::worker
