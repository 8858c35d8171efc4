// Tests the engine on a real device with sizes at which kernels have whole tiles and several blocks: heads of 64 elements and
// sequences of 128 tokens. The other tests of the engine have sizes that the host can simulate.
#include <gtest/gtest.h>

#include "tests/worker/engine/tiny_cluster.h"

namespace lynx::worker {
namespace {

constexpr int64_t kSteps = 3;

TinyJob JobOf(const TinySetting& setting) {
  TinyJob job{.model = SpecOf(setting)};
  job.model.hidden = 256;
  job.model.ffn = 512;
  job.model.seq = 128;
  job.model.attention = AttentionKernel::kFused;
  job.train.global_batch = 4;
  job.train.optimizer.lr = 1e-3;
  job.train.min_lr = 1e-4;
  return job;
}

class CudaEngineTiles : public testing::TestWithParam<TinySetting> {};

TEST_P(CudaEngineTiles, AgreesWithCpuRanksAndPoliciesHaveTheSameBits) {
  TinyJob job = JobOf(GetParam());
  job.Lower(GetParam().layout, RecomputeMode::kNone);
  const TinyRun cpu = Train(job, kSteps);
  job.make_backend = [] { return std::move(MakeCudaBackend(0).value()); };
  const TinyRun cuda = Train(job, kSteps);
  const bool rounds = GetParam().dtype == DataType::kBfloat16;
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepReport &got = cuda.reports[0][step], &want = cpu.reports[0][step];
    EXPECT_NEAR(got.loss, want.loss, (rounds ? 1e-3 : 1e-5) * want.loss);
    EXPECT_NEAR(got.gradient_norm, want.gradient_norm, (rounds ? 1e-2 : 1e-4) * want.gradient_norm);
  }
  for (const RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kSelective}) {
    job.Lower(GetParam().layout, mode);
    const TinyRun run = Train(job, kSteps);
    EXPECT_EQ(run.losses(), cuda.losses()) << EnumName(mode);
    EXPECT_TRUE(run.weights == cuda.weights) << EnumName(mode);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, CudaEngineTiles,
                         testing::Values(TinySetting{TinyModel::kGpt, {}},
                                         TinySetting{TinyModel::kGpt, {}, DataType::kBfloat16},
                                         TinySetting{TinyModel::kLlama, {.tp = 2}, DataType::kBfloat16},
                                         TinySetting{TinyModel::kTiedGpt, {.tp = 2, .pp = 2}, DataType::kBfloat16}),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace lynx::worker
