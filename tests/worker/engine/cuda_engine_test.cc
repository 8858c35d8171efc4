// The engine on ranks whose device has memory of its own: CUDA's, run on the host, where whatever of the engine
// reached for that memory directly would crash (tests/worker/backend/cuda_on_host). What is said of CPU ranks holds
// here too: the policy changes no bit, the arena is filled to its last byte, and layouts agree to rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "common/status.h"
#include "tests/worker/engine/tiny_cluster.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx {
namespace {

constexpr int64_t kSteps = 2;

std::unique_ptr<Backend> MakeCuda() { return std::move(MakeCudaBackend(0).value()); }

TinyJob JobOf(const TinySetting& setting) {
  TinyJob job{.model = SpecOf(setting)};
  job.train.global_batch = 4;
  job.make_backend = MakeCuda;
  return job;
}

class CudaEngine : public testing::TestWithParam<TinySetting> {};

TEST_P(CudaEngine, PoliciesHaveTheSameBits) {
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  for (const RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kSelective}) {
    job.Lower(GetParam().layout, mode);
    const TinyRun run = Train(job, kSteps);
    EXPECT_EQ(run.losses(), expected.losses()) << RecomputeModeName(mode);
    EXPECT_TRUE(run.weights == expected.weights) << RecomputeModeName(mode);
  }
}

TEST_P(CudaEngine, AgreesWithCpuRanks) {
  const bool rounds = GetParam().dtype == DataType::kBfloat16;
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  const TinyRun cuda = Train(job, kSteps);
  job.make_backend = nullptr;
  const TinyRun cpu = Train(job, kSteps);
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepReport &got = cuda.reports[0][step], &want = cpu.reports[0][step];
    EXPECT_NEAR(got.loss, want.loss, (rounds ? 1e-3 : 1e-6) * want.loss);
    EXPECT_NEAR(got.gradient_norm, want.gradient_norm, (rounds ? 1e-2 : 1e-5) * want.gradient_norm);
    EXPECT_EQ(got.arena_peak, want.arena_peak);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, CudaEngine,
    testing::Values(TinySetting{TinyModel::kGpt, {}}, TinySetting{TinyModel::kTiedLlama, {}},
                    TinySetting{TinyModel::kTiedGpt, {}, DataType::kBfloat16},
                    TinySetting{TinyModel::kLlama, {}, DataType::kBfloat16},
                    TinySetting{TinyModel::kGpt, {.tp = 2, .sequence_parallel = true}},
                    TinySetting{TinyModel::kLlama, {.tp = 2, .pp = 2}, DataType::kBfloat16},
                    TinySetting{TinyModel::kTiedGpt, {.pp = 2, .dp = 2}},
                    TinySetting{TinyModel::kGpt, {.dp = 2, .zero = ZeroStage::kOptimizer}, DataType::kBfloat16}),
    [](const auto& info) { return TestName(info.param); });

// A checkpoint of one kind of device is one of the other's.
TEST(CudaEngine, CheckpointsMoveBetweenDevices) {
  TinyJob job = JobOf({});
  job.Lower({}, RecomputeMode::kNone);
  const CheckpointIdentity identity{.job = JobId("tiny"),
                                    .generation = Generation(1),
                                    .step = 1,
                                    .seed = job.train.seed,
                                    .model = job.model,
                                    .layout = job.layout};
  const std::string directory = TemporaryFolder() + "/devices";
  Parameters written, read;
  const auto on_rank = [&](const std::function<absl::Status(TinyRank&)>& body) {
    for (const absl::Status& status : OnRanks(job, body)) ASSERT_TRUE(status.ok()) << status;
  };
  on_rank([&](TinyRank& rank) -> absl::Status {
    LYNX_RETURN_IF_ERROR(rank.engine->RunStep(0).status());
    CollectWeights(*rank.state, written);
    LYNX_RETURN_IF_ERROR(WriteShard(directory, identity, rank.context(), 0, 0, *rank.state).status());
    return PublishCheckpoint(directory, identity).status();
  });
  for (const bool cuda : {false, true}) {
    job.make_backend = cuda ? MakeCuda : nullptr;
    on_rank([&](TinyRank& rank) -> absl::Status {
      LYNX_RETURN_IF_ERROR(LoadCheckpoint(directory, identity, rank.context(), 0, *rank.state));
      CollectWeights(*rank.state, read);
      return absl::OkStatus();
    });
    EXPECT_TRUE(read == written) << (cuda ? "on CUDA" : "on the CPU");
  }
}

TEST(CudaEngine, RefusesToOffload) {
  TinyJob job = JobOf({});
  job.Lower({}, [](const StageContext& context, const StageSlice& slice) {
    return NamedPolicy(context.shape(), RecomputeMode::kNone, {.offload_permille = 1000}, slice.layers());
  });
  const std::vector<absl::Status> statuses = OnRanks(job, [](TinyRank&) { return absl::OkStatus(); });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(statuses[0].message()),
              testing::HasSubstr("offloads activations, which the engine does on CPU"));
}

}  // namespace
}  // namespace lynx
