#include "server/values/job_curves.h"

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

StepReport Step(int64_t step, double loss, int64_t millis = 100, int64_t tokens = 1000) {
  return {.step = step, .loss = loss, .tokens = tokens, .duration = Nanos(millis * 1'000'000)};
}

TEST(JobCurvesTest, EachStepOnceInItsGeneration) {
  JobCurves curves;
  curves.AddStep(Generation(1), Step(0, 5), Nanos(10));
  curves.AddStep(Generation(1), Step(0, 9), Nanos(11));  // a step that another rank reports
  curves.AddStep(Generation(1), Step(1, 4), Nanos(20));
  curves.AddStep(Generation(2), Step(1, 4), Nanos(90));  // the step is done again
  curves.AddStep(Generation(1), Step(2, 3), Nanos(91));  // ranks that the server has given up report this step
  ASSERT_EQ(curves.steps().size(), 3u);
  EXPECT_EQ(
      curves.steps()[0],
      (StepPoint{
          .generation = Generation(1), .time = Nanos(10), .loss = 5, .tokens_per_second = 10'000, .step = Nanos(100'000'000)}));
  EXPECT_EQ(curves.steps()[2].generation, Generation(2));
  EXPECT_EQ(curves.steps()[2].first_step, 1);
}

TEST(JobCurvesTest, ALongRunStaysBoundedAndWhole) {
  JobCurves curves;
  constexpr int64_t kSteps = 10'000;
  for (int64_t step = 0; step < kSteps; ++step)
    curves.AddStep(Generation(1), Step(step, static_cast<double>(step)), Nanos(step));
  EXPECT_LE(curves.steps().size(), JobCurves::kMost);
  EXPECT_GT(curves.steps().size(), JobCurves::kMost / 4);
  int64_t next = 0;
  for (const StepPoint& point : curves.steps()) {
    EXPECT_EQ(point.first_step, next);
    next += point.steps;
    EXPECT_DOUBLE_EQ(point.loss, static_cast<double>(point.first_step) + static_cast<double>(point.steps - 1) / 2)
        << "the mean";
    EXPECT_EQ(point.time, Nanos(next - 1));
    EXPECT_NEAR(point.tokens_per_second, 10'000, 1e-6);
  }
  EXPECT_EQ(next, kSteps);
}

TEST(JobCurvesTest, RatesAreOfTheTimeAndLossesOfTheSteps) {
  JobCurves curves(
      {{.generation = Generation(1), .first_step = 0, .steps = 2, .loss = 1, .tokens_per_second = 1, .step = Nanos(1)}}, {});
  // Makes a new point, because the first point has two steps already.
  curves.AddStep(Generation(1), Step(2, 4, 300, 300), Nanos(1));
  curves.AddStep(Generation(1), Step(3, 8, 100, 500), Nanos(2));
  ASSERT_EQ(curves.steps().size(), 2u);
  EXPECT_DOUBLE_EQ(curves.steps()[1].loss, 6);
  EXPECT_DOUBLE_EQ(curves.steps()[1].tokens_per_second, 2000) << "800 in 0.4 s";
  EXPECT_EQ(curves.steps()[1].step, Nanos(200'000'000));
}

TEST(JobCurvesTest, LoadsOfExpertsAreMeansOverSteps) {
  JobCurves curves({{.generation = Generation(1), .first_step = 0, .steps = 2}}, {});
  const auto add = [&](int64_t step, double skew, int64_t dropped) {
    StepReport report = Step(step, 1);
    report.experts = {.rows_routed = 10, .rows_dropped = dropped, .rows_in_rounds = 2 * dropped, .skew = skew};
    curves.AddStep(Generation(1), report, Nanos(step));
  };
  add(2, 1, 0);
  add(3, 2, 5);
  ASSERT_EQ(curves.steps().size(), 2u);
  EXPECT_DOUBLE_EQ(curves.steps()[1].expert_skew, 1.5);
  EXPECT_DOUBLE_EQ(curves.steps()[1].expert_dropped, 0.25);
  EXPECT_DOUBLE_EQ(curves.steps()[1].expert_in_rounds, 0.5);
}

TEST(JobCurvesTest, ManyRestartsPushOutTheOldest) {
  JobCurves curves;
  for (int64_t generation = 1; generation <= 5000; ++generation)
    curves.AddStep(Generation(generation), Step(7, 1), Nanos(generation));
  EXPECT_LE(curves.steps().size(), JobCurves::kMost);
  EXPECT_EQ(curves.steps().back().generation, Generation(5000));
}

TEST(JobCurvesTest, EvaluationsAreThinnedToo) {
  JobCurves curves;
  for (int64_t steps = 1; steps <= 3000; ++steps) {
    curves.AddEvaluation(steps, 1);
    curves.AddEvaluation(steps, 2);  // the evaluation is done again after a restart
  }
  EXPECT_LE(curves.evaluations().size(), JobCurves::kMost);
  EXPECT_GT(curves.evaluations().size(), JobCurves::kMost / 4);
  EXPECT_EQ(curves.evaluations().back(), (EvaluationPoint{3000, 1}));
}

TEST(JobCurvesTest, StepsWithoutATimeHaveNoRate) {
  JobCurves curves({{.generation = Generation(1), .first_step = 0, .steps = 2}}, {});
  for (int64_t step = 2; step < 4; ++step) curves.AddStep(Generation(1), Step(step, 1, 0), Nanos(1));
  EXPECT_EQ(curves.steps().back().tokens_per_second, 0);
}

}  // namespace
}  // namespace lynx::server
