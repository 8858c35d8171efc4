// Tests the engine on ranks whose device has its own memory. One test program has a library that simulates CUDA on the host
// (tests/worker/backend/cuda_on_host); there a direct access of the engine to device memory would crash. Another one runs on a
// real device, which all ranks of a job share; their transfers go through the host's memory. The promises for CPU ranks must
// hold here too: policies and weaving change no bit, the arena is used to its last byte, and losses agree up to rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "common/status.h"
#include "tests/worker/engine/tiny_cluster.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx::worker {
namespace {

constexpr int64_t kSteps = 2;

std::unique_ptr<Backend> MakeCuda() { return std::move(MakeCudaBackend(0).value()); }

TinyJob JobOf(const TinySetting& setting) {
  TinyJob job{.model = SpecOf(setting)};
  job.train.global_batch = 4;
  if (job.model.moe.any()) job.model.moe.capacity = 0.75;  // some rows are dropped
  job.make_backend = MakeCuda;
  return job;
}

void ExpectSameBits(const TinyRun& run, const TinyRun& expected, const std::string& what) {
  EXPECT_EQ(run.losses(), expected.losses()) << what;
  EXPECT_TRUE(run.weights == expected.weights) << what;
  for (size_t rank = 0; rank < run.reports.size(); ++rank) {
    for (size_t step = 0; step < run.reports[rank].size(); ++step) {
      EXPECT_EQ(run.reports[rank][step].experts, expected.reports[rank][step].experts) << what << ", rank " << rank;
    }
  }
}

bool HasKind(const TinyJob& job, ActionKind kind) {
  return std::ranges::any_of(job.stages.front().program, [&](const Action& action) { return action.kind == kind; });
}

class CudaEngine : public testing::TestWithParam<TinySetting> {};

TEST_P(CudaEngine, PoliciesHaveTheSameBits) {
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  for (const RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kSelective}) {
    job.Lower(GetParam().layout, mode);
    ExpectSameBits(Train(job, kSteps), expected, EnumName(mode));
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
    EXPECT_EQ(got.experts.rows_routed, want.experts.rows_routed);
    if (!rounds && step == 0) EXPECT_EQ(got.experts, want.experts);
    if (job.model.moe.any()) EXPECT_GT(got.experts.rows_dropped, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, CudaEngine,
    testing::Values(
        TinySetting{TinyModel::kGpt, {}}, TinySetting{TinyModel::kTiedLlama, {}},
        TinySetting{TinyModel::kTiedGpt, {}, DataType::kBfloat16}, TinySetting{TinyModel::kLlama, {}, DataType::kBfloat16},
        TinySetting{TinyModel::kGpt, {.tp = 2, .sequence_parallel = true}},
        TinySetting{TinyModel::kLlama, {.tp = 2, .pp = 2}, DataType::kBfloat16},
        TinySetting{TinyModel::kTiedGpt, {.pp = 2, .dp = 2}}, TinySetting{TinyModel::kQwen3, {.tp = 2}},
        TinySetting{TinyModel::kQwen2, {}, DataType::kBfloat16}, TinySetting{TinyModel::kGroupedGpt, {}},
        TinySetting{TinyModel::kMistral, {.tp = 2, .sequence_parallel = true}}, TinySetting{TinyModel::kPhi3, {}},
        TinySetting{TinyModel::kGpt, {.dp = 2, .zero = ZeroStage::kOptimizer}, DataType::kBfloat16},
        TinySetting{TinyModel::kMixtral, {}}, TinySetting{TinyModel::kMixtral, {.dp = 2, .ep = 2}, DataType::kBfloat16},
        TinySetting{TinyModel::kMixtral, {.tp = 2, .ep = 2, .sequence_parallel = true}},
        TinySetting{TinyModel::kOlmoe, {}, DataType::kBfloat16}, TinySetting{TinyModel::kOlmoe, {.dp = 2, .ep = 2}},
        TinySetting{TinyModel::kQwen2Moe, {.dp = 2, .ep = 2}}, TinySetting{TinyModel::kQwen2Moe, {}, DataType::kBfloat16},
        TinySetting{TinyModel::kGlm4Moe, {.pp = 2, .dp = 2, .ep = 2}},
        TinySetting{TinyModel::kGlm4Moe, {.tp = 2, .ep = 2, .sequence_parallel = true}, DataType::kBfloat16},
        TinySetting{TinyModel::kLatent, {}}, TinySetting{TinyModel::kLatent, {.tp = 2, .sequence_parallel = true}},
        TinySetting{TinyModel::kLatent, {.tp = 2}, DataType::kBfloat16},
        TinySetting{TinyModel::kDeepseekV2, {.dp = 2, .ep = 2}, DataType::kBfloat16},
        TinySetting{TinyModel::kDeepseekV3, {.tp = 2, .ep = 2, .sequence_parallel = true}}),
    [](const auto& info) { return TestName(info.param); });

// Rows without room go through rounds on a device too. The host reads how many rounds are needed.
TEST(CudaEngine, RoundsOfExpertsAgreeWithCpuRanks) {
  for (const TinySetting& setting :
       {TinySetting{TinyModel::kMixtral, {.dp = 2, .ep = 2}}, TinySetting{TinyModel::kQwen3Moe, {}, DataType::kBfloat16}}) {
    const bool rounds_bits = setting.dtype == DataType::kBfloat16;
    TinyJob job = JobOf(setting);
    job.model.layers = 2;
    job.model.moe.dropless = true;
    job.model.moe.capacity = 0.5;
    job.Lower(setting.layout, RecomputeMode::kNone);
    const TinyRun cuda = Train(job, kSteps);
    EXPECT_GT(cuda.reports[0][0].experts.rounds, 0);
    job.Lower(setting.layout, RecomputeMode::kFull);
    ExpectSameBits(Train(job, kSteps), cuda, TestName(setting));
    job.make_backend = nullptr;
    const TinyRun cpu = Train(job, kSteps);
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepReport &got = cuda.reports[0][step], &want = cpu.reports[0][step];
      EXPECT_NEAR(got.loss, want.loss, (rounds_bits ? 1e-3 : 1e-6) * want.loss) << TestName(setting);
      EXPECT_NEAR(got.gradient_norm, want.gradient_norm, (rounds_bits ? 1e-2 : 1e-5) * want.gradient_norm);
      if (!rounds_bits && step == 0) EXPECT_EQ(got.experts, want.experts);
    }
  }
}

// A checkpoint of one kind of device can be loaded on the other kind.
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

// Offloaded tensors are copied to the host and back while ops run.
TEST(CudaEngine, OffloadingChangesNoBit) {
  TinyJob job = JobOf({});
  job.Lower({}, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  job.Lower({}, [](const StageContext& context, const StageSlice& slice) {
    return NamedPolicy(context.shape(), RecomputeMode::kNone, {.offload_permille = 1000}, slice.layers());
  });
  EXPECT_TRUE(HasKind(job, ActionKind::kOffloadStart));
  ExpectSameBits(Train(job, kSteps), expected, "offloading");
}

// Two passes run side by side, and the ops of one fill the time of the other one's collectives.
TEST(CudaEngine, WeavingChangesNoBit) {
  const TinySetting setting{TinyModel::kLlama, {.tp = 2}, DataType::kBfloat16};
  TinyJob job = JobOf(setting);
  job.Lower(setting.layout, RecomputeMode::kNone);
  const TinyRun expected = Train(job, kSteps);
  for (const WeaveMode weave : {WeaveMode::kPairs, WeaveMode::kNeighbours}) {
    ParallelLayout layout = setting.layout;
    layout.weave = weave;
    job.Lower(layout, RecomputeMode::kFull);
    ExpectSameBits(Train(job, kSteps), expected, EnumName(weave));
  }
}

// The times in a step's report come from the device. They must be in order and within the step.
TEST(CudaEngine, ActionsHaveTheirTimes) {
  TinyJob job = JobOf({});
  job.Lower({.tp = 2}, RecomputeMode::kFull);
  const auto statuses = OnRanks(job, [](TinyRank& rank) -> absl::Status {
    for (int64_t step = 0; step < kSteps; ++step) {
      LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(step));
      EXPECT_GT(report.forward, Nanos(0));
      EXPECT_GT(report.backward, Nanos(0));
      Nanos last;
      for (const ActionSpan& span : rank.engine->Spans()) {
        EXPECT_GE(span.begin, last);
        EXPECT_GE(span.end, span.begin);
        EXPECT_LE(span.transfer_begin, span.transfer_end);
        last = span.end;
      }
      EXPECT_LE(last, report.duration);
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lynx::worker
