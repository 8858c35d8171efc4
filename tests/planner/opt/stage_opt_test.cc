#include "planner/opt/stage_opt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/opt/stage_milp.h"
#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

OptResult Solve(const RecomputeProblem& problem, const OptOptions& options = {}) {
  absl::StatusOr<OptResult> result = SolveStage(problem, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *std::move(result) : OptResult{};
}

// Returns a random problem. Its budget is between zero and the memory that storing everything takes.
RecomputeProblem ProblemOf(uint32_t seed, int items, int layers, RandomNumbers& number) {
  RecomputeProblem problem =
      RandomProblem({.items = items, .layers = layers, .stall = seed % 2 == 0, .offload = seed % 3 == 0}, number);
  problem.budget = Bytes(number(0, StoreAllBytes(problem).value));
  return problem;
}

TEST(StageOpt, EqualsBruteForceOnSmallProblems) {
  int infeasible = 0, milps = 0, improved = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = ProblemOf(seed, 3, 1 + static_cast<int>(seed % 3), number);
    const std::optional<BruteForceSolution> best = BruteForce(problem);
    const OptResult opt = Solve(problem);
    milps += opt.milps;
    infeasible += best ? 0 : 1;
    ASSERT_EQ(opt.status, best ? OptStatus::kOptimal : OptStatus::kInfeasible);
    ASSERT_EQ(opt.solution.has_value(), best.has_value());
    if (!best) continue;
    EXPECT_EQ(opt.solution->value.exposed, best->value.exposed);
    EXPECT_TRUE(opt.least_memory);
    EXPECT_EQ(opt.solution->value.bytes(), best->value.bytes());
    EXPECT_EQ(opt.bound, best->value.exposed);
    EXPECT_EQ(opt.gap(), 0);
    const absl::StatusOr<StageValue> value = EvaluateStage(problem, opt.solution->policy);
    ASSERT_TRUE(value.ok()) << value.status().message();
    EXPECT_EQ(*value, opt.solution->value);
    EXPECT_TRUE(Fits(problem, *value));
    improved += opt.start && *opt.start > best->value.exposed ? 1 : 0;
  }
  EXPECT_GT(infeasible, 5);
  EXPECT_GT(milps, 40);
  EXPECT_GE(improved, 3);
}

// The MILP must find the optimum alone. It gets no solution from HEU, and no bounds that leave out nodes.
TEST(StageMilp, AloneEqualsBruteForceOnSmallProblems) {
  int solved = 0;
  for (uint32_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = ProblemOf(seed, 3, 1 + static_cast<int>(seed % 2), number);
    const std::optional<BruteForceSolution> best = BruteForce(problem);
    const StageChain chain(problem);
    const StageMilpResult milp =
        SolveStageMilp(chain, chain.Everything(), {}, Nanos(10'000), StageGoal::kExposed, {.seconds = 60});
    ASSERT_EQ(milp.policy.has_value(), best.has_value());
    if (!best) continue;
    EXPECT_EQ(milp.status, LinearProgram::Status::kOptimal);
    const absl::StatusOr<StageValue> value = CheckedValue(problem, *milp.policy, best->value.exposed);
    EXPECT_TRUE(value.ok()) << value.status().message();
    ++solved;
    // This exposed time is possible, and one nanosecond less is not possible.
    EXPECT_TRUE(SolveStageMilp(chain, chain.Everything(), {}, best->value.exposed, StageGoal::kExposed, {.seconds = 60})
                    .policy.has_value());
    EXPECT_EQ(
        SolveStageMilp(chain, chain.Everything(), {}, best->value.exposed - Nanos(1), StageGoal::kExposed, {.seconds = 60})
            .status,
        LinearProgram::Status::kInfeasible);
    // The memory that the best policy takes is enough, and one byte less is not enough.
    ChainScope scope = chain.Everything();
    scope.budget = best->value.bytes();
    EXPECT_TRUE(SolveStageMilp(chain, scope, {}, best->value.exposed, StageGoal::kMemory, {.seconds = 60}).policy.has_value());
    scope.budget -= Bytes(1);
    EXPECT_FALSE(SolveStageMilp(chain, scope, {}, best->value.exposed, StageGoal::kMemory, {.seconds = 60}).policy.has_value());
  }
  EXPECT_GT(solved, 50);
}

TEST(StageMilp, RefusesMoreColumnsThanAskedFor) {
  RandomNumbers number(1);
  const RecomputeProblem problem = ProblemOf(1, 4, 3, number);
  const StageChain chain(problem);
  const StageMilpResult milp =
      SolveStageMilp(chain, chain.Everything(), {}, Nanos(10'000), StageGoal::kExposed, {.seconds = 60, .columns = 20});
  EXPECT_TRUE(milp.too_large);
  EXPECT_FALSE(milp.policy.has_value());
  EXPECT_EQ(milp.status, LinearProgram::Status::kStopped);
}

// If its allowed effort is not enough, OPT says so. The bound that it has proved until then must still be true.
TEST(StageOpt, GivesUpOnLargeMilps) {
  int gave_up = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = ProblemOf(seed, 4, 3, number);
    const OptResult least = Solve(problem, {.columns = 1}), all = Solve(problem);
    EXPECT_EQ(least.milps, 0);
    EXPECT_LE(least.bound, all.bound);
    if (least.status == OptStatus::kOptimal || least.status == OptStatus::kInfeasible) {
      EXPECT_EQ(least.status, all.status);
    } else {
      ++gave_up;
    }
  }
  EXPECT_GT(gave_up, 2);
}

// Checks that the optimum is not worse after `change`. `change` names a change that cannot make a problem harder.
void ExpectNotWorse(const RecomputeProblem& problem, const OptResult& before, const std::string& change) {
  const OptResult after = Solve(problem);
  if (before.status != OptStatus::kOptimal) return;
  ASSERT_EQ(after.status, OptStatus::kOptimal) << change;
  EXPECT_FALSE(Better(before.solution->value, after.solution->value) &&
               before.solution->value.bytes() != after.solution->value.bytes() &&
               before.solution->value.exposed < after.solution->value.exposed)
      << change;
  EXPECT_LE(after.solution->value.exposed, before.solution->value.exposed) << change;
}

TEST(StageOpt, MoreOfAnythingNeverMakesTheOptimumWorse) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = ProblemOf(seed, 4, 2 + static_cast<int>(seed % 4), number);
    const OptResult before = Solve(problem);
    RecomputeProblem more = problem;
    more.budget += Bytes(number(1, 30));
    ExpectNotWorse(more, before, "memory");
    for (size_t w = 0; w < problem.forward.size(); ++w) {
      more = problem;
      more.forward[w] += Nanos(number(1, 9));
      ExpectNotWorse(more, before, "forward window");
    }
    for (size_t w = 0; w < problem.backward.size(); ++w) {
      more = problem;
      more.backward[w] += Nanos(number(1, 9));
      ExpectNotWorse(more, before, "backward window");
    }
    more = problem;
    more.stall += Nanos(number(1, 9));
    ExpectNotWorse(more, before, "stall");
    more = problem;
    more.early += Nanos(number(1, 9));
    ExpectNotWorse(more, before, "early");
    more = problem;
    more.host_budget += Bytes(number(1, 50));
    more.copy_in += Nanos(number(1, 9));
    more.copy_out += Nanos(number(1, 9));
    ExpectNotWorse(more, before, "host memory and copies");
    more = problem;
    for (RecomputeItem& item : more.items) item.allowed = kAnyPlacement;
    ExpectNotWorse(more, before, "placements");
  }
}

TEST(StageOpt, SaysWhatItCannotProveInTime) {
  int feasible = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = ProblemOf(seed, 4, 4, number);
    const OptResult opt = Solve(problem, {.seconds = 0});
    if (opt.solution) {
      EXPECT_EQ(opt.status, opt.bound == opt.solution->value.exposed ? OptStatus::kOptimal : OptStatus::kFeasible);
      EXPECT_EQ(opt.solution->value.exposed, *opt.start);
      EXPECT_LE(opt.bound, Solve(problem).solution->value.exposed);
      feasible += opt.status == OptStatus::kFeasible ? 1 : 0;
      EXPECT_EQ(opt.gap() > 0, opt.status == OptStatus::kFeasible);
    } else {
      EXPECT_TRUE(opt.status == OptStatus::kStopped || opt.status == OptStatus::kInfeasible);
    }
    EXPECT_EQ(opt.milps, 0);
  }
  EXPECT_GT(feasible, 2);
}

TEST(StageOpt, SameProblemSameResult) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = ProblemOf(seed, 5, 5, number);
    const OptResult a = Solve(problem), b = Solve(problem);
    ASSERT_EQ(a.solution.has_value(), b.solution.has_value());
    if (a.solution) EXPECT_EQ(a.solution->policy, b.solution->policy);
    EXPECT_EQ(a.nodes, b.nodes);
    EXPECT_EQ(a.milps, b.milps);
  }
}

TEST(StageOpt, RefusesInvalidProblems) {
  EXPECT_THAT(std::string(SolveStage({.layers = 0}).status().message()), HasSubstr("layers is 0"));
}

TEST(StageOpt, AStageWithoutItemsIsTrivial) {
  const OptResult opt = Solve({.layers = 3, .budget = Bytes(0)});
  EXPECT_EQ(opt.status, OptStatus::kOptimal);
  EXPECT_EQ(opt.solution->value, StageValue{});
}

TEST(StageOpt, TheCheckRefusesWhatTheMilpGotWrong) {
  RecomputeProblem problem{.forward = {Nanos(3)}, .budget = Bytes(20), .host_budget = Bytes(5)};
  problem.items = {{.bytes = Bytes(10), .cost = Nanos(7), .read_by = 1}};
  problem.in_flight = 2;
  using enum Placement;
  EXPECT_EQ(CheckedValue(problem, {{{kForward1}}}, Nanos(4))->held, Bytes(10));
  const auto error = [&](Placement p, Nanos most) {
    const absl::Status status = CheckedValue(problem, {{{p}}}, most).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    return std::string(status.message());
  };
  EXPECT_THAT(error(kForward1, Nanos(3)), HasSubstr("exposes 4 ns where 3 were allowed"));
  EXPECT_THAT(error(kOwn1, Nanos(9)), HasSubstr("item 0 in o1: not possible here"));
  EXPECT_THAT(error(kOffload, Nanos(9)), HasSubstr("20 of 5 bytes of the host"));
  problem.budget = Bytes(19);
  EXPECT_THAT(error(kStore, Nanos(9)), HasSubstr("takes 20 of 19 bytes"));
}

}  // namespace
}  // namespace lynx
