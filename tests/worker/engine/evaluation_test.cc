// Tests the loss of held-out data. It needs only the forward pass, works with any schedule, uses no dropout, and has no effect
// on training.
#include <gtest/gtest.h>

#include <cstring>

#include "common/status.h"
#include "planner/problem/layout_schedule.h"
#include "tests/worker/engine/tiny_cluster.h"

namespace lynx::worker {
namespace {

constexpr double kTolerance = 1e-4;  // relative difference between layouts, as in layouts_test.cc
constexpr int32_t kBatches = 2;

std::vector<ParallelLayout> SomeLayouts() {
  return {ParallelLayout{},
          {.tp = 2, .pp = 2, .dp = 2},
          {.tp = 2, .pp = 2, .sequence_parallel = true},
          {.pp = 2, .schedule = ScheduleKind::kGpipe},
          {.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved},
          {.pp = 4, .schedule = ScheduleKind::kZeroBubble},
          {.pp = 2, .schedule = ScheduleKind::kZeroBubbleV},
          {.pp = 2, .dp = 2, .schedule = ScheduleKind::kChimera}};
}

class Evaluation : public testing::TestWithParam<TinySetting> {};

// Here the held-out samples are the first samples of the training. Without dropout, a step reports the loss that its batch has
// before the step. So the evaluation of one batch must give exactly the same loss.
TEST_P(Evaluation, IsTheLossOfAStepWithoutDropout) {
  TinyJob plain{.model = SpecOf(GetParam().model)};
  plain.model.dropout = 0;
  plain.Lower(GetParam().layout, RecomputeMode::kSelective);
  const double expected = Train(plain, 1).losses()[0];
  TinyJob job{.model = SpecOf(GetParam().model)};
  job.train.eval_batches = 1;
  job.Lower(GetParam().layout, RecomputeMode::kSelective);
  for (const absl::Status& status : OnRanks(job, [&](TinyRank& rank) -> absl::Status {
         LYNX_ASSIGN_OR_RETURN(const double loss, rank.engine->Evaluate(*rank.dataset));
         EXPECT_EQ(loss, expected);
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Evaluation between steps gives the same losses in every layout, and training continues with the same bits.
TEST_P(Evaluation, LeavesTrainingAloneAndIsTheSameInEveryLayout) {
  const auto evaluated = [&](const ParallelLayout& layout) {
    TinyJob job{.model = SpecOf(GetParam().model)};
    job.train.eval_batches = kBatches;
    job.Lower(layout, RecomputeMode::kFull);
    const std::vector<double> undisturbed = Train(job, 3).losses();
    std::vector<double> losses;
    for (const absl::Status& status : OnRanks(job, [&](TinyRank& rank) -> absl::Status {
           for (int64_t step = 0; step < 3; ++step) {
             LYNX_ASSIGN_OR_RETURN(const StepReport report, rank.engine->RunStep(step));
             EXPECT_EQ(report.loss, undisturbed[step]) << "step " << step;
             for (int again = 0; again < 2; ++again) {
               LYNX_ASSIGN_OR_RETURN(const double loss, rank.engine->Evaluate(*rank.dataset));
               if (rank.rank == 0) losses.push_back(loss);
             }
           }
           return absl::OkStatus();
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
    return losses;
  };
  const std::vector<double> losses = evaluated(GetParam().layout), expected = evaluated({});
  ASSERT_EQ(losses.size(), 6u);
  ASSERT_EQ(expected.size(), 6u);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], kTolerance * expected[i]) << i;
  for (size_t i = 0; i < losses.size(); i += 2) EXPECT_EQ(losses[i], losses[i + 1]) << i;
  EXPECT_LT(losses[4], losses[0]);
}

INSTANTIATE_TEST_SUITE_P(, Evaluation, testing::ValuesIn(ModelsIn(SomeLayouts())),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace lynx::worker
