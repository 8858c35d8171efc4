#include "planner/recompute/layer_choices.h"

#include <gtest/gtest.h>

#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {
namespace {

Nanos Positive(Nanos t) { return std::max(Nanos(0), t); }

// Returns true if a layer with the use `a` can replace a layer with the use `b` in any stage. It can if it needs no more memory
// of any kind, and no more exposed time, even if everything that `a` takes beyond `b` of a shared resource is exposed.
bool CanReplace(const LayerUse& a, const LayerUse& b) {
  if (a.held > b.held || a.host > b.host) return false;
  Nanos exposed = a.exposed + Positive(a.stall - b.stall) + Positive(b.early - a.early) +
                  std::max(Positive(a.copy_out - b.copy_out), Positive(a.copy_in - b.copy_in));
  for (int k = 0; k < kMaxPhases; ++k) {
    if (a.live[k] > b.live[k] || a.above[k] > b.above[k]) return false;
  }
  for (int w = 0; w < kMaxWindows; ++w) {
    exposed += Positive(a.above_work[w] - b.above_work[w]) + Positive(a.own_work[w] - b.own_work[w]);
  }
  return exposed <= b.exposed;
}

RecomputeProblem ProblemOf(uint32_t seed) {
  RandomNumbers number(seed);
  return RandomProblem({.items = 4, .forward = 2, .backward = 2, .stall = seed % 2 == 0, .offload = seed % 3 == 0}, number);
}

TEST(LayerChoices, JoinedPartsArePoliciesOfTheLayer) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RecomputeProblem problem = ProblemOf(seed);
    for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
      for (const PartsOfSet& parts : LayerChoices(problem, place)) {
        EXPECT_FALSE(parts.late.empty() || parts.kept.empty());
        for (const BackwardPart& late : parts.late) {
          for (const KeptPart& kept : parts.kept) {
            const LayerPolicy policy = JoinPolicies(late, kept);
            const absl::StatusOr<LayerUse> use = UseOf(problem, policy, place);
            ASSERT_TRUE(use.ok()) << PolicyText(problem, policy) << ": " << use.status().message();
            ASSERT_EQ(*use, JoinUses(late, kept)) << PolicyText(problem, policy);
          }
        }
      }
    }
  }
}

TEST(LayerChoices, EveryPolicyCanBeReplacedByPartsWhateverTheNeighboursAre) {
  int64_t policies = 0, columns = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RecomputeProblem problem = ProblemOf(seed);
    for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
      std::vector<LayerUse> uses;
      for (const PartsOfSet& parts : LayerChoices(problem, place)) {
        for (const BackwardPart& late : parts.late) {
          for (const KeptPart& kept : parts.kept) uses.push_back(JoinUses(late, kept));
        }
      }
      columns += static_cast<int64_t>(uses.size());
      ForEachPolicy(problem, place, [&](const LayerPolicy& policy, const LayerUse& use) {
        ++policies;
        const bool found = std::any_of(uses.begin(), uses.end(), [&](const LayerUse& u) { return CanReplace(u, use); });
        EXPECT_TRUE(found) << PolicyText(problem, policy);
      });
    }
  }
  EXPECT_LT(columns * 4, policies);
}

TEST(LayerChoices, PartsOfOneSetAreThoseOfAllSets) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RecomputeProblem problem = ProblemOf(seed);
    for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
      std::vector<size_t> sizes(16);
      for (const PartsOfSet& parts : LayerChoices(problem, place)) {
        sizes[parts.late_items] = parts.late.size();
      }
      for (ItemSet set = 0; set < 16; ++set) {
        const std::vector<BackwardPart> late = LatePartsOf(problem, place, set);
        EXPECT_TRUE(sizes[set] == 0 || late.size() == sizes[set]) << set;
        for (const BackwardPart& part : late) {
          for (int i = 0; i < 4; ++i) EXPECT_EQ(part.policy[i] != Placement::kStore, (set >> i & 1) != 0);
        }
      }
    }
  }
}

// A search with a beam returns fewer backward parts than a full search. Nearly always, one of them still has the least exposed
// time, if the neighbouring layers have the same policy.
TEST(LayerChoices, ABeamRarelyLosesTheBestOfLayersThatAreAlike) {
  int narrowed = 0, sets = 0, lost = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = RandomProblem({.items = 6, .forward = 2, .backward = 4}, number);
    for (const ItemSet set : {ItemSet{0b111111}, ItemSet{0b101101}}) {
      const std::vector<BackwardPart> all = LatePartsOf(problem, LayerPlace::kInner, set),
                                      few = LatePartsOf(problem, LayerPlace::kInner, set, 24);
      EXPECT_TRUE(few.empty() || !all.empty());
      sets += all.empty() ? 0 : 1;
      lost += few.empty() && !all.empty() ? 1 : 0;
      if (few.empty()) continue;
      narrowed += few.size() < all.size() ? 1 : 0;
      EXPECT_LE(few.size(), 24u);
      const auto least = [&](const std::vector<BackwardPart>& parts) {
        Nanos exposed = AlikeExposed(problem, LayerPlace::kInner, parts.front());
        for (const BackwardPart& part : parts) exposed = std::min(exposed, AlikeExposed(problem, LayerPlace::kInner, part));
        return exposed;
      };
      EXPECT_GE(least(few), least(all));
      lost += least(few) > least(all) ? 1 : 0;
      for (const BackwardPart& part : few) {
        const absl::StatusOr<LayerUse> use = UseOf(problem, part.policy, LayerPlace::kInner);
        ASSERT_TRUE(use.ok()) << use.status().message();
        EXPECT_EQ(use->own_work, part.own_work);
      }
    }
  }
  EXPECT_GT(narrowed, 10);
  EXPECT_LE(lost * 20, sets) << lost << " of " << sets;
}

}  // namespace
}  // namespace lynx
