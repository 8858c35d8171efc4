#include "planner/opt/milp.h"

#include <gtest/gtest.h>

namespace lynx {
namespace {

using Status = LinearProgram::Status;

// Returns a knapsack problem with the values 10, 7 and 5, the weights 6, 4 and 3, and a total weight of at most 9.
LinearProgram Knapsack(bool integer) {
  LinearProgram program;
  const int weight = program.AddRow(-kUnbounded, 9);
  for (const auto& [value, w] : {std::pair{10, 6}, {7, 4}, {5, 3}}) {
    program.AddColumn(0, 1, -value, integer);
    program.Add(weight, w);
  }
  return program;
}

TEST(LinearProgram, SolvesARelaxationWithItsPrices) {
  const LinearProgram::LpResult result = Knapsack(true).SolveRelaxed();
  EXPECT_EQ(result.status, Status::kOptimal);
  EXPECT_NEAR(result.objective, -(7 + 5.0 / 3 * 3 + 10.0 / 6 * 2), 1e-9);
  ASSERT_EQ(result.prices.size(), 1u);
  EXPECT_NEAR(result.prices[0], -10.0 / 6, 1e-9);
}

TEST(LinearProgram, SolvesAMixedIntegerProgram) {
  const LinearProgram::MilpResult result = Knapsack(true).Solve(0, 10);
  EXPECT_EQ(result.status, Status::kOptimal);
  ASSERT_TRUE(result.found);
  EXPECT_NEAR(result.objective, -15, 1e-9);
  EXPECT_NEAR(result.bound, -15, 1e-6);
  EXPECT_NEAR(result.values[0], 1, 1e-9);
  EXPECT_NEAR(result.values[1], 0, 1e-9);
  EXPECT_NEAR(result.values[2], 1, 1e-9);
}

TEST(LinearProgram, SolutionsBeyondTheCutoffDoNotCount) {
  EXPECT_EQ(Knapsack(true).Solve(-15, 10).status, Status::kOptimal);
  const LinearProgram::MilpResult result = Knapsack(true).Solve(-15.5, 10);
  EXPECT_EQ(result.status, Status::kInfeasible);
  EXPECT_FALSE(result.found);
}

TEST(LinearProgram, SaysWhatIsInfeasible) {
  LinearProgram program;
  const int row = program.AddRow(3, 4);
  program.AddColumn(0, 1, 1, true);
  program.Add(row, 2);
  EXPECT_EQ(program.SolveRelaxed().status, Status::kInfeasible);
  EXPECT_EQ(program.Solve(100, 10).status, Status::kInfeasible);
}

TEST(LinearProgram, CoefficientsOfOneRowAddUp) {
  LinearProgram program;
  const int row = program.AddRow(6, kUnbounded);
  program.AddColumn(0, kUnbounded, 1);
  program.Add(row, 1);
  program.Add(row, 2);
  EXPECT_NEAR(program.SolveRelaxed().objective, 2, 1e-9);
}

}  // namespace
}  // namespace lynx
