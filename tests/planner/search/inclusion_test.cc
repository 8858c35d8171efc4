// Tests that a larger search space does not give a slower plan than a part of it, and that a relaxed request (more memory, a
// faster network) does not give a slower plan than the stricter one. The search is not exact, so some relations have
// exceptions; the tests limit how many and how large they are.
//
// LYNX_REQUESTS=1000 makes each test try this number of random requests and print what it found.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "planner/candidates/supported.h"
#include "planner/search/make_plan.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

int Requests(int usual) {
  const char* text = std::getenv("LYNX_REQUESTS");
  return text == nullptr ? usual : std::atoi(text);
}

// A random request that leaves the schedule, all sizes and the policy open. The network is slow or fast, and there are few or
// many microbatches.
PlanRequest OpenRequest(std::mt19937_64& rng) {
  PlanRequest request = RandomRequest(rng);
  request.target = PlanTarget::kLynxEngine;
  request.spec.train.global_batch = 8 << Draw(rng, 0, 5);
  HardwareProfile& profile = request.cluster.groups[0].profile;
  profile.inter_node.bytes_per_second = int64_t{10'000'000} << Draw(rng, 0, 8);
  profile.intra_node.bytes_per_second = int64_t{200'000'000} << Draw(rng, 0, 6);
  return request;
}

// Returns the step of the request's plan. nullopt: nothing fits, or the request has no layout.
std::optional<Nanos> StepOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  const Plan* plan = result.ok() ? std::get_if<Plan>(&*result) : nullptr;
  return plan == nullptr ? std::nullopt : std::optional(plan->step);
}

// Pairs of requests, of which the larger one allows everything that the smaller one allows.
struct Relation {
  int pairs = 0, worse = 0;
  double most_percent = 0;  // the larger request's step is longer by at most this

  void Add(const std::optional<Nanos>& smaller, const std::optional<Nanos>& larger) {
    if (!smaller) return;
    ++pairs;
    ASSERT_TRUE(larger.has_value()) << "the smaller request has a plan";
    if (*larger <= *smaller) return;
    ++worse;
    most_percent = std::max(most_percent, 100 * (Seconds(*larger) / Seconds(*smaller) - 1));
  }
  // At most this share of the pairs has a longer step for the larger request, and no step is longer by more than `percent`.
  void ExpectAtMost(double share, double percent) const {
    std::printf("%d of %d pairs are worse, by at most %.2f%%\n", worse, pairs, most_percent);
    EXPECT_GT(pairs, 0);
    EXPECT_LE(worse, share * pairs);
    EXPECT_LE(most_percent, percent);
  }
};

constexpr auto kAsItIs = [](std::mt19937_64&, PlanRequest&) {};

// Compares random requests with what `change` makes of them. If the changed request is the smaller one, `to_smaller` is true.
// `prepare` changes both.
template <class Change, class Prepare = decltype(kAsItIs)>
Relation Compare(int usual, bool to_smaller, const Change& change, const Prepare& prepare = kAsItIs) {
  Relation relation;
  for (int i = 1; i <= Requests(usual); ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << i);
    std::mt19937_64 rng(static_cast<uint64_t>(i));
    PlanRequest open = OpenRequest(rng);
    prepare(rng, open);
    PlanRequest changed = open;
    change(rng, changed);
    std::optional<Nanos> smaller = StepOf(open), larger = StepOf(changed);
    if (to_smaller) std::swap(smaller, larger);
    relation.Add(smaller, larger);
  }
  return relation;
}

TEST(Inclusion, AnyFrameworkContainsTheEngine) {
  Compare(10, false, [](auto&, PlanRequest& request) { request.target = PlanTarget::kAnyFramework; }).ExpectAtMost(0, 0);
}

TEST(Inclusion, UnevenBatchesContainTheEvenOnes) {
  const auto odd_batch = [](auto& rng, PlanRequest& request) { request.spec.train.global_batch = Draw(rng, 8, 100); };
  Compare(
      20, true, [](auto&, PlanRequest& request) { request.even_batches = true; }, odd_batch)
      .ExpectAtMost(0.05, 1);
}

TEST(Inclusion, AutoContainsEachPolicy) {
  Compare(20, true, [](auto& rng, PlanRequest& request) {
    request.spec.recompute =
        static_cast<RecomputeMode>(Draw(rng, static_cast<int>(RecomputeMode::kNone), static_cast<int>(RecomputeMode::kHeu)));
  }).ExpectAtMost(0.1, 1);
}

TEST(Inclusion, AutoContainsEachSchedule) {
  Compare(20, true, [](auto& rng, PlanRequest& request) {
    using enum ScheduleKind;
    constexpr std::array kKinds = {kOneForwardOneBackward, kInterleaved, kZeroBubble};
    request.spec.parallel.schedule = kKinds[rng() % kKinds.size()];
  }).ExpectAtMost(0.1, 1);
}

TEST(Inclusion, AutoContainsEachNumberOfStages) {
  Compare(20, true, [](auto& rng, PlanRequest& request) {
    request.spec.parallel.pp = 1 << Draw(rng, 0, 2);
  }).ExpectAtMost(0.1, 1);
}

TEST(Inclusion, AutoContainsEachOrderOfRanks) {
  Compare(20, true, [](auto& rng, PlanRequest& request) {
    request.spec.parallel.rank_order = rng() % 2 ? RankOrder::kTpDpPp : RankOrder::kTpPpDp;
  }).ExpectAtMost(0.1, 1);
}

TEST(Inclusion, AFasterNetworkIsNeverSlower) {
  Compare(20, false, [](auto&, PlanRequest& request) {
    int64_t& rate = request.cluster.groups[0].profile.inter_node.bytes_per_second;
    rate = rate * 3 / 2;
  }).ExpectAtMost(0.02, 1);
}

TEST(Inclusion, MoreMemoryIsSeldomSlower) {
  Compare(20, false, [](auto&, PlanRequest& request) {
    Bytes& limit = request.spec.resources.activation_memory_per_rank;
    limit = limit * 5 / 4;
  }).ExpectAtMost(0.1, 5);
}

// The same relations on nodes of two kinds.
TEST(Inclusion, MixedNodesAutoContainsEachNumberOfStages) {
  Compare(
      20, true, [](auto& rng, PlanRequest& request) { request.spec.parallel.pp = 1 << Draw(rng, 0, 2); }, MakeMixed)
      .ExpectAtMost(0.1, 3);
}

TEST(Inclusion, MixedNodesAutoContainsEachOrderOfRanks) {
  Compare(
      20, true,
      [](auto& rng, PlanRequest& request) {
        request.spec.parallel.rank_order = rng() % 2 ? RankOrder::kTpDpPp : RankOrder::kTpPpDp;
      },
      MakeMixed)
      .ExpectAtMost(0.1, 2);
}

TEST(Inclusion, MixedNodesMoreMemoryOfOneKindIsSeldomSlower) {
  Compare(
      20, false,
      [](auto& rng, PlanRequest& request) {
        Bytes& memory = request.cluster.groups[rng() % 2].memory_per_device;
        memory = memory * 5 / 4;
      },
      MakeMixed)
      .ExpectAtMost(0.1, 3);
}

TEST(Inclusion, MixedNodesAFasterKindIsSeldomSlower) {
  Compare(
      20, false,
      [](auto& rng, PlanRequest& request) {
        HardwareProfile& profile = request.cluster.groups[rng() % 2].profile;
        profile.flops_per_second = profile.flops_per_second * 5 / 4;
        profile.memory_bytes_per_second = profile.memory_bytes_per_second * 5 / 4;
      },
      MakeMixed)
      .ExpectAtMost(0.1, 5);
}

// Plans every candidate completely, woven ones too, and returns the best step.
std::optional<Nanos> Exhaustive(const PlanRequest& request) {
  const absl::StatusOr<std::vector<Candidate>> plain = SupportedCandidates(request);
  if (!plain.ok()) return std::nullopt;
  std::vector<Candidate> candidates = *plain;
  for (const WeaveMode weave : kGroupedWeaves) {
    std::vector<Candidate> woven = WovenCandidates(*plain, weave);
    EraseUnsupported(request.spec.model, woven);
    candidates.insert(candidates.end(), woven.begin(), woven.end());
  }
  return BestOfAll(request, candidates);
}

// The regret is by how much the chosen plan is slower than the best of all completely planned candidates.
TEST(Inclusion, TheRegretIsSmall) {
  double sum = 0, most = 0;
  int plans = 0;
  for (int i = 1; i <= Requests(6); ++i) {
    std::mt19937_64 rng(static_cast<uint64_t>(i));
    const PlanRequest request = OpenRequest(rng);
    const std::optional<Nanos> step = StepOf(request), best = Exhaustive(request);
    ASSERT_EQ(step.has_value(), best.has_value()) << "seed " << i;
    if (!step) continue;
    const double percent = std::max(0.0, 100 * (Seconds(*step) / Seconds(*best) - 1));
    ++plans;
    sum += percent;
    most = std::max(most, percent);
  }
  std::printf("regret over %d requests: %.3f%% in the mean, %.2f%% at most\n", plans, sum / plans, most);
  EXPECT_GE(plans, 1);
  EXPECT_LE(sum / plans, 1);
  EXPECT_LE(most, 3);
}

}  // namespace
}  // namespace lynx
