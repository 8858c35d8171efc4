// Tests that a plan in a given layout does not get slower if there is more memory, less contention in windows, or one more
// policy that the planner may choose. For the optimum of a stage, opt/monotone_test.cc checks this. A whole plan is not a
// proven optimum: the best use of more memory in HEU's model may be a little slower as a program.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "planner/search/make_plan.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

// Returns a request for one layout with at least two stages, so that the search has no other choice.
PlanRequest InALayout(std::mt19937_64& rng, WeaveMode weave) {
  PlanRequest request = RandomRequest(rng);
  request.target = PlanTarget::kLynxEngine;
  const int32_t devices = request.spec.resources.max_ranks;
  const int32_t tp = 1 << Draw(rng, 0, 2);
  request.spec.parallel = {.tp = tp,
                           .pp = std::min(devices / tp, 4),
                           .dp = devices / tp / std::min(devices / tp, 4),
                           .virtual_stages = 1,
                           .sequence_parallel = Choice::kOff,
                           .schedule = ScheduleKind::kOneForwardOneBackward,
                           .weave = weave};
  request.spec.train.micro_batch = 1;
  request.spec.train.global_batch = 8 * request.spec.parallel.dp;
  request.spec.resources.activation_memory_per_rank = kKiB * Draw(rng, 300, 3000);
  return request;
}

// Returns the time of a step of the plan. nullopt: no plan fits.
std::optional<Nanos> StepOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  const Plan* plan = result.ok() ? std::get_if<Plan>(&*result) : nullptr;
  return plan == nullptr ? std::nullopt : std::optional(plan->step);
}

// Counts how many plans became faster (or possible) and how many became slower after the request was relaxed. Some must become
// faster: otherwise the relaxation has no effect, and the test proves nothing.
struct Outcomes {
  int better = 0, worse = 0;
  double most_percent = 0;  // the largest increase of the step's time, in percent

  void Add(const PlanRequest& more, const std::optional<Nanos>& before) {
    const std::optional<Nanos> after = StepOf(more);
    if (!before) {
      better += after.has_value();
      return;
    }
    ASSERT_TRUE(after.has_value()) << "it fitted with less";
    better += *after < *before;
    worse += *after > *before;
    most_percent =
        std::max(most_percent, 100 * static_cast<double>((*after - *before).value) / static_cast<double>(before->value));
  }
};

// The parameter says which passes run side by side: none, or those that the planner chooses. A list scheduler orders a woven
// program. Given more of a resource, this scheduler may find a longer order. So for woven plans, the tests allow more cases
// that become slower, and larger increases.
class PlanMonotone : public ::testing::TestWithParam<WeaveMode> {
 protected:
  bool woven() const { return GetParam() != WeaveMode::kOff; }
};

TEST_P(PlanMonotone, MoreMemory) {
  Outcomes outcomes;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    PlanRequest request = InALayout(rng, GetParam());
    const std::optional<Nanos> before = StepOf(request);
    request.spec.resources.activation_memory_per_rank += kKiB * Draw(rng, 1, 400);
    outcomes.Add(request, before);
  }
  EXPECT_GE(outcomes.better, 20);
  EXPECT_LE(outcomes.worse, 5);
  EXPECT_LE(outcomes.most_percent, woven() ? 3 : 2);
}

TEST_P(PlanMonotone, LongerWindows) {
  Outcomes outcomes;
  for (uint64_t seed = 101; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    PlanRequest request = InALayout(rng, GetParam());
    const std::optional<Nanos> before = StepOf(request);
    for (NodeGroup& group : request.cluster.groups) group.profile.overlap_slowdown_permille = 1000;
    outcomes.Add(request, before);
  }
  EXPECT_GE(outcomes.better, 20);
  EXPECT_EQ(outcomes.worse, 0);
}

TEST_P(PlanMonotone, OneMorePolicy) {
  Outcomes outcomes;
  for (uint64_t seed = 201; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    PlanRequest request = InALayout(rng, GetParam());
    std::vector<RecomputeMode>& forbidden = request.spec.recompute_options.forbidden;
    for (int mode = static_cast<int>(RecomputeMode::kNone); mode <= static_cast<int>(RecomputeMode::kHeu); ++mode) {
      if (rng() % 2) forbidden.push_back(static_cast<RecomputeMode>(mode));
    }
    if (forbidden.empty()) continue;
    const std::optional<Nanos> before = StepOf(request);
    forbidden.erase(forbidden.begin() + Draw(rng, 0, static_cast<int32_t>(forbidden.size()) - 1));
    outcomes.Add(request, before);
  }
  EXPECT_GE(outcomes.better, 5);
  EXPECT_LE(outcomes.worse, woven() ? 1 : 0);
  EXPECT_LE(outcomes.most_percent, 5);
}

INSTANTIATE_TEST_SUITE_P(AllWeaves, PlanMonotone, ::testing::Values(WeaveMode::kOff, WeaveMode::kAuto),
                         [](const auto& info) { return EnumName(info.param); });

}  // namespace
}  // namespace lynx
