#include "planner/opt/exact_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

// Returns a problem of two layers with one item each. The item has 10 bytes. Recomputing it takes 7 ns, of which a forward
// window hides 3 ns.
RecomputeProblem Problem(int64_t budget) {
  RecomputeProblem problem{.forward = {Nanos(3)}, .layers = 2, .in_flight = 2, .budget = Bytes(budget)};
  problem.items = {{.bytes = Bytes(10), .cost = Nanos(7), .read_by = 1}};
  return problem;
}

TEST(ExactStage, AnswersWithAProof) {
  const StageSolver solve = ExactStageSolver({.seconds = 60});
  const absl::StatusOr<StageAnswer> answer = solve(Problem(30));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_TRUE(answer->proven);
  ASSERT_TRUE(answer->solution.has_value());
  EXPECT_EQ(answer->solution->value.exposed, Nanos(4));  // one layer stores its item, and the other layer uses its window
  EXPECT_EQ(answer->bound, Nanos(4));
}

TEST(ExactStage, SaysWhatNothingFits) {
  const absl::StatusOr<StageAnswer> answer = ExactStageSolver({.seconds = 60})(Problem(9));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_TRUE(answer->proven);
  EXPECT_FALSE(answer->solution.has_value());
}

TEST(ExactStage, WithoutTimeItAnswersWithoutAProof) {
  RecomputeProblem problem = Problem(0);
  RandomNumbers number(3);
  int not_proven = 0;
  for (int i = 0; i < 20; ++i) {
    problem = RandomProblem({.items = 4, .layers = 4}, number);
    problem.budget = Bytes(StoreAllBytes(problem).value / 2);
    const absl::StatusOr<StageAnswer> answer = ExactStageSolver({.seconds = 0})(problem);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    if (answer->proven) continue;
    ++not_proven;
    if (answer->solution) EXPECT_LT(answer->bound, answer->solution->value.exposed);
  }
  EXPECT_GT(not_proven, 0);
}

TEST(ExactStage, RefusesInvalidProblems) {
  EXPECT_THAT(std::string(ExactStageSolver({})({.layers = 0}).status().message()), HasSubstr("layers is 0"));
}

}  // namespace
}  // namespace lynx
