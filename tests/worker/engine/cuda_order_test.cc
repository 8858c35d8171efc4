// Tests the engine with a library that simulates CUDA on the host (tests/worker/backend/cuda_on_host): offloading in every
// order in which the device may do its work, and what profilers see. If a mark between ops and copies were missing, one of the
// orders would give other bits.
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "common/status.h"
#include "tests/worker/backend/cuda_on_host/scheduler.h"
#include "tests/worker/engine/tiny_cluster.h"

namespace lynx::worker {
namespace {

using cuda_on_host::Order;
using cuda_on_host::OrderName;

constexpr int64_t kSteps = 2;

// The test CudaEngine.OffloadingChangesNoBit runs in the order kEager.
TEST(CudaEngine, OffloadingChangesNoBitInAnyOrder) {
  TinyJob job{.model = SpecOf(TinyModel::kGpt)};
  job.train.global_batch = 4;
  job.make_backend = [] { return std::move(MakeCudaBackend(0).value()); };
  job.Lower({}, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  job.Lower({}, [](const StageContext& context, const StageSlice& slice) {
    return NamedPolicy(context.shape(), RecomputeMode::kNone, {.offload_permille = 1000}, slice.layers());
  });
  for (const Order order : {Order::kLate, Order::kFirstLate, Order::kFirstEager}) {
    cuda_on_host::SetOrder(order);
    const TinyRun run = Train(job, kSteps);
    EXPECT_EQ(run.losses(), expected.losses()) << OrderName(order);
    EXPECT_TRUE(run.weights == expected.weights) << OrderName(order);
  }
  cuda_on_host::SetOrder(Order::kEager);
}

// A profiler shows the kernels of an action below its text.
TEST(CudaEngine, ProfilersSeeTheActions) {
  TinyJob job{.model = SpecOf(TinyModel::kGpt)};
  job.make_backend = [] { return std::move(MakeCudaBackend(0).value()); };
  job.Lower({}, RecomputeMode::kFull);
  const auto statuses = OnRanks(job, [&](TinyRank& rank) -> absl::Status {
    std::vector<std::string> expected;
    for (const Action& action : job.stages.front().program) expected.push_back(ActionText(action));
    cuda_on_host::TakeRanges();
    LYNX_RETURN_IF_ERROR(rank.engine->RunStep(0).status());
    EXPECT_EQ(cuda_on_host::TakeRanges(), expected);
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lynx::worker
