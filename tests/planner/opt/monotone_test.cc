// Tests that the optimum of a problem never gets worse with more memory, longer windows or one more allowed placement.
#include <gtest/gtest.h>

#include "planner/opt/stage_opt.h"
#include "tests/planner/recompute/random_stages.h"

namespace lynx {
namespace {

OptResult Solved(const RecomputeProblem& problem) {
  const absl::StatusOr<OptResult> opt = SolveStage(problem, {.seconds = 60, .columns = 2000, .least_memory = false});
  EXPECT_TRUE(opt.ok()) << opt.status();
  const std::optional<StageSolution> heu = StageHeu(problem).Best(problem.layers, problem.budget);
  EXPECT_EQ(heu.has_value(), opt->solution.has_value());
  if (heu && opt->solution) {
    EXPECT_GE(heu->value.exposed, opt->solution->value.exposed) << "HEU beats OPT";
    EXPECT_GE(heu->value.exposed, opt->bound) << "HEU beats OPT's bound";
  }
  return *opt;
}

// Returns the problem with one restriction relaxed; `what` names the restriction.
RecomputeProblem Relaxed(RecomputeProblem problem, RandomNumbers& number, std::string& what) {
  const auto longer = [&](Nanos& time) { time += Nanos(number(1, 1 + time.value / 2)); };
  switch (number(0, 4)) {
    case 0:
      what = "more memory";
      problem.budget += Bytes(number(1, 1 + problem.budget.value / 4));
      break;
    case 1:
      what = "a longer forward window";
      if (problem.forward.empty()) break;
      longer(problem.forward[static_cast<size_t>(number(0, static_cast<int64_t>(problem.forward.size()) - 1))]);
      break;
    case 2:
      what = "a longer backward window";
      if (problem.backward.empty()) break;
      longer(problem.backward[static_cast<size_t>(number(0, static_cast<int64_t>(problem.backward.size()) - 1))]);
      break;
    case 3:
      what = "a longer stall, or the head's window";
      longer(number.OneIn(2) ? problem.stall : problem.early);
      break;
    default:
      what = "one more placement";
      if (problem.items.empty()) break;
      problem.items[static_cast<size_t>(number(0, static_cast<int64_t>(problem.items.size()) - 1))].allowed |=
          BitOf(static_cast<Placement>(number(0, kPlacementCount - 1)));
  }
  return problem;
}

// Relaxes the problem three times, and checks that its optimum never gets worse.
void Check(RecomputeProblem problem, RandomNumbers& number, int& proven) {
  OptResult before = Solved(problem);
  for (int step = 0; step < 3; ++step) {
    std::string what;
    problem = Relaxed(std::move(problem), number, what);
    SCOPED_TRACE(absl::StrCat("step ", step, ": ", what));
    OptResult after = Solved(problem);
    if (before.status == OptStatus::kOptimal && after.status == OptStatus::kOptimal) {
      ++proven;
      EXPECT_LE(after.solution->value.exposed, before.solution->value.exposed);
    }
    EXPECT_FALSE(before.solution.has_value() && after.status == OptStatus::kInfeasible);
    if (before.solution) {
      EXPECT_LE(after.bound, before.solution->value.exposed);
    }
    before = std::move(after);
  }
}

TEST(Monotone, ArbitraryProblems) {
  int proven = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    RecomputeProblem problem =
        RandomProblem({.items = 4, .layers = 1 + static_cast<int>(seed % 4), .stall = true, .offload = seed % 3 == 0}, number);
    for (RecomputeItem& item : problem.items) item.allowed &= static_cast<PlacementSet>(number(0, 0xffff));
    problem.budget = Bytes(StoreAllBytes(problem).value * number(0, 100) / 100);
    Check(problem, number, proven);
  }
  EXPECT_GT(proven, 150);
}

TEST(Monotone, TransformerStages) {
  int proven = 0;
  for (uint32_t seed = 1001; seed <= 1030; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = RandomStage(number, 2);
    Check(problem, number, proven);
  }
  EXPECT_GT(proven, 60);
}

}  // namespace
}  // namespace lynx
