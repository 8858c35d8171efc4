// Tests that every parallel layout trains the same model: over 50 steps, with dropout, its losses must agree with the losses of
// a single rank.
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "planner/problem/layout_schedule.h"
#include "tests/worker/engine/tiny_cluster.h"

namespace lynx::worker {
namespace {

constexpr int64_t kSteps = 50;
// The relative difference that is allowed. The layouts differ only in the order of sums. In bfloat16, partial sums are rounded
// before they are reduced, and the difference grows from step to step.
constexpr double kTolerance = 1e-4;
constexpr double kBfloat16Tolerance = 1e-2;

class Layouts : public testing::TestWithParam<TinySetting> {
 protected:
  static const TinyRun& SingleRank(TinyModel model, DataType dtype) {
    static std::map<std::pair<TinyModel, DataType>, TinyRun> runs;
    const auto key = std::pair(model, dtype);
    if (!runs.contains(key)) {
      TinyJob job{.model = SpecOf({.model = model, .dtype = dtype})};
      job.Lower({1, 1, 1}, RecomputeMode::kNone);
      runs[key] = Train(job, kSteps);
    }
    return runs[key];
  }
};

TEST_P(Layouts, LossesAgreeWithASingleRank) {
  TinyJob job{.model = SpecOf(GetParam())};
  job.Lower(GetParam().layout, RecomputeMode::kSelective);
  const std::vector<double> losses = Train(job, kSteps).losses();
  const std::vector<double> expected = SingleRank(GetParam().model, GetParam().dtype).losses();
  const double tolerance = GetParam().dtype == DataType::kFloat32 ? kTolerance : kBfloat16Tolerance;
  ASSERT_EQ(losses.size(), expected.size());
  for (int64_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(losses[step], expected[step], tolerance * expected[step]) << "step " << step;
  }
  EXPECT_LT(expected.back(), 0.95 * expected.front());  // the model must learn something
}

// The batch of 8 samples does not fill all microbatches. The empty places must not count in any loss or gradient.
TEST(UnevenBatches, TrainTheModelOfASingleRank) {
  struct Case {
    ParallelLayout layout;
    int32_t micro_batch;
  };
  const Case cases[] = {
      {ParallelLayout{.dp = 1}, 3},
      {ParallelLayout{.dp = 3}, 1},
      {ParallelLayout{.dp = 3}, 2},
      {ParallelLayout{.dp = 5, .zero = ZeroStage::kOptimizer}, 2},
      {ParallelLayout{.dp = 7}, 1},
      {ParallelLayout{.tp = 2, .dp = 3, .sequence_parallel = true, .zero = ZeroStage::kOptimizer}, 1},
      {ParallelLayout{.tp = 2, .pp = 2}, 5},
      {ParallelLayout{.pp = 2, .dp = 3, .schedule = ScheduleKind::kZeroBubble}, 2},
      {ParallelLayout{.pp = 2, .dp = 3, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}, 2},
      // 3 and 1 microbatches over 2 stages: the last group of the interleaved schedule is not full
      {ParallelLayout{.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}, 3},
      {ParallelLayout{.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}, 8},
      {ParallelLayout{.tp = 2, .dp = 3, .weave = WeaveMode::kPairs}, 1},
  };
  for (const TinyModel model : {TinyModel::kGpt, TinyModel::kTiedLlama, TinyModel::kLatent}) {
    TinyJob single{.model = SpecOf(model)};
    single.Lower({1, 1, 1}, RecomputeMode::kNone);
    const std::vector<double> expected = Train(single, 20).losses();
    for (const Case& uneven : cases) {
      TinyJob job{.model = SpecOf(model)};
      job.train.micro_batch = uneven.micro_batch;
      job.Lower(uneven.layout, RecomputeMode::kSelective);
      const std::vector<double> losses = Train(job, 20).losses();
      for (size_t step = 0; step < losses.size(); ++step) {
        ASSERT_NEAR(losses[step], expected[step], kTolerance * expected[step])
            << TestName({model, uneven.layout}) << " micro-batch " << uneven.micro_batch << " step " << step;
      }
    }
  }
}

std::string NameOf(const testing::TestParamInfo<TinySetting>& info) { return TestName(info.param); }

const std::vector<ParallelLayout>& AllLayouts() {
  static const std::vector<ParallelLayout> layouts = {
      ParallelLayout{1, 1, 1},
      ParallelLayout{2, 1, 1},
      ParallelLayout{1, 2, 1},
      ParallelLayout{1, 1, 2},
      ParallelLayout{2, 2, 1},
      ParallelLayout{2, 1, 2},
      ParallelLayout{1, 2, 2},
      ParallelLayout{2, 2, 2},
      ParallelLayout{.pp = 2, .schedule = ScheduleKind::kGpipe},
      ParallelLayout{.pp = 4, .schedule = ScheduleKind::kZeroBubble},
      ParallelLayout{.tp = 2, .pp = 2, .schedule = ScheduleKind::kZeroBubbleV},
      ParallelLayout{.pp = 4, .dp = 2, .schedule = ScheduleKind::kChimera},
      ParallelLayout{.tp = 2, .pp = 2, .dp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved},
      ParallelLayout{.tp = 2, .sequence_parallel = true},
      ParallelLayout{.tp = 4, .pp = 2, .sequence_parallel = true},
      ParallelLayout{.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .schedule = ScheduleKind::kZeroBubbleV},
      ParallelLayout{.dp = 4, .zero = ZeroStage::kOptimizer},
      ParallelLayout{.pp = 2, .dp = 2, .zero = ZeroStage::kOptimizer},
      ParallelLayout{.tp = 2, .dp = 2, .sequence_parallel = true, .zero = ZeroStage::kOptimizer},
      ParallelLayout{.tp = 2, .pp = 2, .dp = 2, .zero = ZeroStage::kOptimizer, .rank_order = RankOrder::kTpDpPp},
      ParallelLayout{.pp = 2, .dp = 3, .schedule = ScheduleKind::kZeroBubble, .rank_order = RankOrder::kTpDpPp},
      ParallelLayout{.pp = 4, .dp = 2, .schedule = ScheduleKind::kChimera, .rank_order = RankOrder::kTpDpPp},
      ParallelLayout{.pp = 4, .dp = 2, .zero = ZeroStage::kOptimizer, .schedule = ScheduleKind::kChimera}};
  return layouts;
}

const std::vector<ParallelLayout>& LayoutsInBfloat16() {
  static const std::vector<ParallelLayout> layouts = {
      ParallelLayout{2, 1, 1},
      ParallelLayout{1, 2, 2},
      ParallelLayout{.tp = 2, .pp = 2, .dp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved},
      ParallelLayout{.tp = 4, .pp = 2, .sequence_parallel = true},
      ParallelLayout{.dp = 4, .zero = ZeroStage::kOptimizer},
      ParallelLayout{.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .zero = ZeroStage::kOptimizer},
      ParallelLayout{.pp = 4, .dp = 2, .zero = ZeroStage::kOptimizer, .schedule = ScheduleKind::kChimera}};
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(, Layouts, testing::ValuesIn(ModelsIn(AllLayouts(), LayoutsInBfloat16())), NameOf);

// ZeRO must not change a bit if there are two replicas: each sum of gradients has two terms, and their order does not matter.
// With more replicas, the order of the terms changes the sum.
TEST(SharedStates, ChangeNoBitOfTwoReplicas) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const TinyModel model : {TinyModel::kGpt, TinyModel::kLlama, TinyModel::kTiedGpt, TinyModel::kTiedLlama}) {
      for (const ParallelLayout& layout :
           {ParallelLayout{.dp = 2}, ParallelLayout{.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
            ParallelLayout{.pp = 2, .dp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved},
            ParallelLayout{.pp = 2, .schedule = ScheduleKind::kChimera}}) {
        TinyJob job{.model = SpecOf({.model = model, .dtype = dtype})};
        job.Lower(layout, RecomputeMode::kSelective);
        const TinyRun whole = Train(job, 10);
        job.layout.zero = ZeroStage::kOptimizer;
        job.Lower(job.layout, RecomputeMode::kSelective);
        const TinyRun shared = Train(job, 10);
        SCOPED_TRACE(TestName({model, job.layout, dtype}));
        EXPECT_EQ(shared.losses(), whole.losses());
        EXPECT_TRUE(shared.weights == whole.weights);
      }
    }
  }
}

// Stored values are rounded, which changes the curve only a little, because weights are updated in fp32.
TEST(Bfloat16, TrainsAlmostAsFloatDoes) {
  for (const TinyModel model : {TinyModel::kGpt, TinyModel::kLlama, TinyModel::kTiedLlama}) {
    std::vector<std::vector<double>> losses;
    for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
      TinyJob job{.model = SpecOf({.model = model, .dtype = dtype})};
      job.Lower({1, 1, 1}, RecomputeMode::kFull);
      losses.push_back(Train(job, kSteps).losses());
      ASSERT_EQ(losses.back().size(), kSteps);
    }
    for (int64_t step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(losses[1][step], losses[0][step], 2 * kBfloat16Tolerance * losses[0][step]) << "step " << step;
    }
    EXPECT_NE(losses[0], losses[1]) << "nothing was rounded";
  }
}

// The fused and the unfused kernel of attention draw the same dropout.
TEST(Kernels, OfAttentionTrainTheSameModel) {
  for (const TinyModel model : {TinyModel::kGpt, TinyModel::kLlama}) {
    TinyJob job{.model = SpecOf(model)};
    std::vector<std::vector<double>> losses;
    for (const AttentionKernel kernel : {AttentionKernel::kUnfused, AttentionKernel::kFused}) {
      job.model.attention = kernel;
      job.Lower({.tp = 2}, RecomputeMode::kNone);
      losses.push_back(Train(job, kSteps).losses());
      ASSERT_EQ(losses.back().size(), kSteps);
    }
    for (int64_t step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(losses[1][step], losses[0][step], kTolerance * losses[0][step]) << "step " << step;
    }
  }
}

// The copies of a tied embedding on the first and on the last stage must always have the same bits.
TEST(TiedEmbeddings, CopiesStayEqualAndCountOnce) {
  TinyJob single{.model = SpecOf(TinyModel::kTiedGpt)};
  single.Lower({1, 1, 1}, RecomputeMode::kNone);
  const double norm = Train(single, 1).reports[0][0].gradient_norm;
  for (const ParallelLayout& layout :
       {ParallelLayout{.pp = 2}, ParallelLayout{2, 4, 1}, ParallelLayout{1, 2, 2},
        ParallelLayout{.tp = 2, .pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}}) {
    TinyJob job{.model = SpecOf(TinyModel::kTiedGpt)};
    job.Lower(layout, RecomputeMode::kFull);
    const TinyRun run = Train(job, 10);
    ASSERT_TRUE(run.weights.contains("head.out.weight")) << LayoutText(layout);
    EXPECT_TRUE(run.weights.at("head.out.weight") == run.weights.at("embed.tok")) << LayoutText(layout);
    EXPECT_NEAR(run.reports[0][0].gradient_norm, norm, kTolerance * norm) << LayoutText(layout);
  }
  TinyJob job{.model = SpecOf(TinyModel::kTiedGpt)};
  job.Lower({.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}, RecomputeMode::kFull);
  EXPECT_FALSE(Train(job, 1).weights.contains("head.out.weight"));  // one rank has both the embedding and the output projection
}

// A custom schedule: stages are placed in a V, and weight gradients are separate, at the end of each half of the batch.
TEST(CustomSchedule, TrainsToTheSameLosses) {
  TinyJob job;
  job.train.global_batch = 4;
  job.Lower({1, 1, 1}, RecomputeMode::kNone);
  const std::vector<double> expected = Train(job, 10).losses();
  ParallelLayout layout{.pp = 2, .schedule = ScheduleKind::kCustom};
  ASSERT_EQ(SetCustomSchedule("custom ranks=2 microbatches=4 placement=v weight=split\n"
                              "0F0 3F0 3B0 0F1 3F1 3B1 0B0 3W0 0B1 3W1 0W0 0W1 0F2 3F2 3B2 0F3 3F3 3B3 0B2 3W2 0B3 3W3 "
                              "0W2 0W3\n"
                              "1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1 2W0 2W1 1W0 1W1 1F2 2F2 2B2 1B2 1F3 2F3 2B3 1B3 2W2 2W3 "
                              "1W2 1W3\n",
                              layout),
            absl::OkStatus());
  job.Lower(layout, RecomputeMode::kSelective);
  const std::vector<double> losses = Train(job, 10).losses();
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(losses[step], expected[step], kTolerance * expected[step]) << "step " << step;
  }
}

// The size of microbatches must not change the losses.
TEST(Microbatches, TheirSizeDoesNotMatter) {
  TinyJob job;
  job.Lower({1, 1, 1}, RecomputeMode::kNone);
  const std::vector<double> expected = Train(job, 10).losses();
  job.train.micro_batch = 4;
  // With sequence parallelism, a rank may have tokens of only some samples.
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 2}, ParallelLayout{.tp = 2, .sequence_parallel = true}}) {
    job.Lower(layout, RecomputeMode::kNone);
    const std::vector<double> losses = Train(job, 10).losses();
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(losses[step], expected[step], kTolerance * expected[step]) << LayoutText(layout) << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace lynx::worker
