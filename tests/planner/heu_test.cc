#include "planner/heu.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner/plan_fixtures.h"

namespace lynx {
namespace {

using ::testing::SizeIs;

constexpr int kCount = 8;

// held, transient, exposed
using Triple = std::tuple<int64_t, int64_t, int64_t>;

bool In(RecomputableSet set, int i) { return (set >> i & 1) != 0; }

// A layer as a reader of heu.h would play it through: moment by moment, each tensor is made from what is there.
class PlayedLayer {
 public:
  PlayedLayer(const LayerProblem& problem, const LayerPolicy& policy) : problem_(problem), policy_(policy) {}

  std::optional<Triple> Play() {
    for (int i = 0; i < kCount; ++i) {
      if (policy_[i] != Placement::kStore && !WindowExists(i)) return std::nullopt;
    }
    for (int i = 0; i < kCount; ++i) {
      const bool read = In(problem_.read_by_mlp | problem_.read_by_attn, i) || ReadByRecomputation(i);
      if (policy_[i] != Placement::kStore && !read) return std::nullopt;
      if (policy_[i] == Placement::kStore) there_[i] = true;
      if (policy_[i] == Placement::kStore && read) held_ += problem_.in_flight * problem_.bytes[i].value;
    }
    for (Placement window : {Placement::kForward1, Placement::kForward2, Placement::kStall}) {
      if (!MakeAll(window)) return std::nullopt;
    }
    for (int i = 0; i < kCount; ++i) {
      if (there_[i] && policy_[i] != Placement::kStore) held_ += problem_.bytes[i].value;
      stage_held_[i] = there_[i];
    }
    for (Placement window : {Placement::kAbove1, Placement::kAbove2}) {
      if (!MakeAll(window)) return std::nullopt;
    }
    int64_t above = 0;
    for (int i = 0; i < kCount; ++i) above += there_[i] && !stage_held_[i] ? problem_.bytes[i].value : 0;
    for (int i = 0; i < kCount; ++i) {
      if (In(problem_.read_by_mlp, i) && !MakeCritical(i)) return std::nullopt;
    }
    for (int i = 0;
         i < kCount && !(there_[i] && policy_[i] == Placement::kCritical && In(problem_.not_in_windows, i)); ++i) {
      if (there_[i] && policy_[i] == Placement::kCritical) early_ += problem_.cost[i].value;
    }
    int64_t in_mlp = 0, in_attn = 0;
    for (int i = 0; i < kCount; ++i) in_mlp += there_[i] && !stage_held_[i] ? problem_.bytes[i].value : 0;
    const std::array<bool, kCount> after_mlp = there_;
    if (!MakeAll(Placement::kOwn1)) return std::nullopt;
    for (int i = 0; i < kCount; ++i) {
      if (!MakeCritical(i)) return std::nullopt;
    }
    for (int i = 0; i < kCount; ++i) {
      if (!stage_held_[i] && (!after_mlp[i] || In(problem_.read_by_attn, i))) in_attn += problem_.bytes[i].value;
    }
    return Triple{held_, std::max(in_mlp, in_attn) + above, Exposed()};
  }

 private:
  bool WindowExists(int i) const {
    const Placement p = policy_[i];
    if (p == Placement::kCritical) return true;
    if (In(problem_.not_in_windows, i) || problem_.capacity[static_cast<int>(p)].value == 0) return false;
    if (p == Placement::kOwn1 && In(problem_.read_by_mlp, i)) return false;
    return problem_.in_flight > 1 || p > Placement::kStall;
  }
  bool ReadByRecomputation(int i) const {
    for (int reader = i + 1; reader < kCount; ++reader) {
      if (policy_[reader] != Placement::kStore && In(problem_.inputs[reader], i)) return true;
    }
    return false;
  }
  bool Make(int i) {
    for (int input = 0; input < i; ++input) {
      if (In(problem_.inputs[i], input) && !there_[input]) return false;
    }
    there_[i] = true;
    return true;
  }
  bool MakeAll(Placement window) {
    for (int i = 0; i < kCount; ++i) {
      if (policy_[i] == window && !Make(i)) return false;
    }
    return true;
  }
  // Makes i, and before it whatever critical tensors it needs. False if it needs one that comes later.
  bool MakeCritical(int i) {
    if (there_[i]) return true;
    if (policy_[i] != Placement::kCritical) return false;
    for (int input = 0; input < i; ++input) {
      if (In(problem_.inputs[i], input) && !MakeCritical(input)) return false;
    }
    return Make(i);
  }
  int64_t Exposed() const {
    std::array<int64_t, kPlacementCount> used{};
    for (int i = 0; i < kCount; ++i) {
      const Placement p = policy_[i] == Placement::kOwn1 ? Placement::kAbove1 : policy_[i];
      used[static_cast<int>(p)] += problem_.cost[i].value;
    }
    int64_t exposed = used[static_cast<int>(Placement::kCritical)];
    for (int p = 1; p < static_cast<int>(Placement::kOwn1); ++p) {
      int64_t capacity = problem_.capacity[p].value;
      if (p == static_cast<int>(Placement::kAbove1)) {
        capacity = std::max(capacity, problem_.capacity[static_cast<int>(Placement::kOwn1)].value);
      }
      exposed += std::max<int64_t>(0, used[p] - capacity);
    }
    return exposed - std::min(early_, problem_.early.value);
  }

  const LayerProblem& problem_;
  const LayerPolicy& policy_;
  std::array<bool, kCount> there_{}, stage_held_{};
  int64_t held_ = 0;
  int64_t early_ = 0;  // critical, before the mlp segment and before any collective
};

void ForEachPolicy(const std::vector<Placement>& placements, int i, LayerPolicy& policy, auto&& visit) {
  if (i == kCount) return visit(policy);
  for (Placement p : placements) {
    policy[i] = p;
    ForEachPolicy(placements, i + 1, policy, visit);
  }
}

std::set<Triple> BruteForceFront(const LayerProblem& problem) {
  std::vector<Placement> placements{Placement::kStore, Placement::kCritical};
  for (int p = 1; p <= static_cast<int>(Placement::kOwn1); ++p) {
    if (problem.capacity[p].value > 0) placements.push_back(static_cast<Placement>(p));
  }
  std::set<Triple> all, front;
  LayerPolicy policy{};
  ForEachPolicy(placements, 0, policy, [&](const LayerPolicy& candidate) {
    if (const auto triple = PlayedLayer(problem, candidate).Play()) all.insert(*triple);
  });
  for (const auto& a : all) {
    const bool bettered = std::any_of(all.begin(), all.end(), [&](const Triple& b) {
      return b != a && std::get<0>(b) <= std::get<0>(a) && std::get<1>(b) <= std::get<1>(a) &&
             std::get<2>(b) <= std::get<2>(a);
    });
    if (!bettered) front.insert(a);
  }
  return front;
}

Triple TripleOf(const LayerChoice& c) { return {c.held.value, c.transient.value, c.exposed.value}; }

LayerProblem RandomProblem(std::mt19937& rng, int windows) {
  const auto number = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng() % static_cast<uint64_t>(high - low + 1));
  };
  // The real layer's readers, with random sizes, times and windows.
  const ModelSpec model = TinyModel(2);
  LayerProblem problem = MakeLayerProblem(CostModel(RoundProfile(model), model, {}, 1, 1), ShapeOf(model, ParallelLayout{}, 1), 1,
                                          LayerPosition::kInner, Nanos(0));
  for (int i = 0; i < kCount; ++i) {
    problem.bytes[i] = Bytes(number(1, 9));
    problem.cost[i] = Nanos(number(0, 9));
  }
  if (number(0, 2) == 0) problem.read_by_mlp = static_cast<RecomputableSet>(rng());
  if (number(0, 2) == 0) problem.read_by_attn = static_cast<RecomputableSet>(rng());
  problem.capacity.fill(Nanos(0));
  constexpr std::array kWindows = {Placement::kForward1, Placement::kForward2, Placement::kStall,
                                   Placement::kAbove1,   Placement::kAbove2,   Placement::kOwn1};
  for (int k = 0; k < windows; ++k) {
    problem.capacity[static_cast<int>(kWindows[number(0, 5)])] = Nanos(number(1, 20));
  }
  if (number(0, 1) == 0) {
    problem.capacity[static_cast<int>(Placement::kOwn1)] =
        problem.capacity[static_cast<int>(Placement::kAbove1)];
  }
  problem.in_flight = static_cast<int32_t>(number(1, 4));
  problem.early = Nanos(number(0, 1) * number(1, 20));
  return problem;
}

TEST(Heu, EqualsBruteForceOnOneLayer) {
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 rng(seed);
    const LayerProblem problem = RandomProblem(rng, 1 + static_cast<int>(seed % 2));
    std::set<Triple> front;
    for (const LayerChoice& choice : SolveLayer(problem)) {
      EXPECT_TRUE(front.insert(TripleOf(choice)).second) << "twice in the front";
      LayerPolicy policy = choice.policy;
      EXPECT_EQ(PlayedLayer(problem, policy).Play(), TripleOf(choice)) << LayerPolicyText(LayerGraph::Of({}), choice.policy);
      const auto evaluated = EvaluateLayer(problem, choice.policy);
      ASSERT_TRUE(evaluated.has_value());
      EXPECT_EQ(TripleOf(*evaluated), TripleOf(choice));
    }
    EXPECT_EQ(front, BruteForceFront(problem));
  }
}

TEST(Heu, ReadersFollowFromTheLayerGraph) {
  const ModelSpec model = TinyModel(2);
  const CostModel costs(RoundProfile(model), model, {.tp = 2}, 1, 2);
  const LayerProblem problem = MakeLayerProblem(costs, ShapeOf(model, ParallelLayout{.tp = 2}, 1), 2, LayerPosition::kInner, Nanos(30));
  // Order: ln1 qkv probs context x1 ln2 fc1 gelu.
  EXPECT_EQ(problem.inputs,
            (std::array<RecomputableSet, kMaxRecomputable>{0, 0b1, 0b10, 0b110, 0b1000, 0b10000, 0b100000, 0b1000000}));
  EXPECT_EQ(problem.read_by_mlp, 0b11100000);
  EXPECT_EQ(problem.read_by_attn, 0b00011111);
  EXPECT_EQ(problem.not_in_windows, 0b00010000);
  EXPECT_EQ(problem.cost[4], Nanos(200 + 640));  // proj, add1 and the all-reduce between them
  EXPECT_EQ(problem.bytes[7], Bytes(1280));      // 10 * 32 floats, a multiple of the alignment
  EXPECT_EQ(problem.capacity[static_cast<int>(Placement::kForward2)], Nanos(640));
  // Three weight gradients of 100 ns run in each backward window first.
  EXPECT_EQ(problem.capacity[static_cast<int>(Placement::kAbove1)], Nanos(340));
  EXPECT_EQ(problem.capacity[static_cast<int>(Placement::kOwn1)], Nanos(340));
  EXPECT_EQ(problem.capacity[static_cast<int>(Placement::kStall)], Nanos(30));
  const LayerProblem top = MakeLayerProblem(costs, ShapeOf(model, ParallelLayout{.tp = 2}, 1), 2, LayerPosition::kTop, Nanos(0));
  EXPECT_EQ(top.capacity[static_cast<int>(Placement::kAbove1)], Nanos(0));
  EXPECT_EQ(top.early, Nanos(0));
  EXPECT_EQ(top.capacity[static_cast<int>(Placement::kOwn1)], Nanos(340));
  // The head's window of 640 ns, less the weight gradient of the logits.
  const LayerProblem below_head =
      MakeLayerProblem(costs, ShapeOf(model, ParallelLayout{.tp = 2}, 1), 2, LayerPosition::kTopBelowHead, Nanos(0));
  EXPECT_EQ(below_head.early, Nanos(540));
}

TEST(Heu, WithoutWindowsOnlyStoreAndCriticalRemain) {
  const ModelSpec model = TinyModel(2);
  const CostModel costs(RoundProfile(model), model, {}, 1, 1);
  for (const LayerChoice& choice :
       SolveLayer(MakeLayerProblem(costs, ShapeOf(model, ParallelLayout{}, 1), 3, LayerPosition::kInner, Nanos(0)))) {
    for (Placement p : choice.policy) EXPECT_TRUE(p == Placement::kStore || p == Placement::kCritical);
  }
}

TEST(Heu, WideWindowsHideWhatTheyMay) {
  const ModelSpec model = TinyModel(2);
  HardwareProfile profile = RoundProfile(model);
  profile.intra_node.bytes_per_second = 100'000'000;  // windows of 6400 ns
  const CostModel costs(profile, model, {.tp = 2}, 1, 2);
  const LayerProblem problem = MakeLayerProblem(costs, ShapeOf(model, ParallelLayout{.tp = 2}, 1), 4, LayerPosition::kInner, Nanos(0));
  const std::vector<LayerChoice> front = SolveLayer(problem);
  // Everything but x1 can be made again for nothing.
  const auto least = std::min_element(front.begin(), front.end(), [](const LayerChoice& a, const LayerChoice& b) {
    return std::tie(a.exposed, a.held) < std::tie(b.exposed, b.held);
  });
  EXPECT_EQ(least->exposed, Nanos(0));
  EXPECT_EQ(least->held, Bytes(4 * 768));  // x1: 640 bytes, padded
}

TEST(Heu, ForbidsWhatTheRulesForbid) {
  const ModelSpec model = TinyModel(2);
  const CostModel costs(RoundProfile(model), model, {.tp = 2}, 1, 2);
  const LayerProblem problem = MakeLayerProblem(costs, ShapeOf(model, ParallelLayout{.tp = 2}, 1), 2, LayerPosition::kInner, Nanos(0));
  using enum Placement;
  // qkv in f1 from ln1 in b1, which is later.
  EXPECT_FALSE(EvaluateLayer(problem, {kAbove1, kForward1, kStore, kStore, kStore, kStore, kStore, kStore}));
  // x1 in a window.
  EXPECT_FALSE(EvaluateLayer(problem, {kStore, kStore, kStore, kStore, kForward2, kStore, kStore, kStore}));
  // gelu in b3: the mlp segment's own weight gradient reads it first.
  EXPECT_FALSE(EvaluateLayer(problem, {kStore, kStore, kStore, kStore, kStore, kStore, kStore, kOwn1}));
  // context in b3, but x1 is needed before the mlp segment, for ln2.
  EXPECT_FALSE(EvaluateLayer(problem, {kStore, kStore, kStore, kOwn1, kCritical, kCritical, kStore, kStore}));
  EXPECT_TRUE(EvaluateLayer(problem, {kStore, kStore, kStore, kOwn1, kCritical, kStore, kStore, kStore}));
}

// The best mix of at most two inner choices and one top choice, by trying all.
std::optional<int64_t> BruteForceMix(const std::vector<LayerChoice>& inner, const std::vector<LayerChoice>& top,
                                     int32_t layers, int64_t budget) {
  std::optional<int64_t> best;
  for (const LayerChoice& a : inner) {
    for (const LayerChoice& b : inner) {
      for (const LayerChoice& t : top) {
        for (int32_t k = 0; k <= layers - 1; ++k) {
          int64_t transient = t.transient.value;
          if (k > 0) transient = std::max(transient, a.transient.value);
          if (k < layers - 1) transient = std::max(transient, b.transient.value);
          const int64_t held = t.held.value + k * a.held.value + (layers - 1 - k) * b.held.value;
          const int64_t exposed = t.exposed.value + k * a.exposed.value + (layers - 1 - k) * b.exposed.value;
          if (held + transient <= budget && (!best || exposed < *best)) best = exposed;
        }
      }
    }
  }
  return best;
}

TEST(Heu, StageMixEqualsBruteForceAndMoreMemoryNeverHurts) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 rng(seed);
    const LayerProblem problem = RandomProblem(rng, 2);
    LayerProblem top_problem = problem;
    top_problem.capacity[static_cast<int>(Placement::kAbove1)] = Nanos(0);
    top_problem.capacity[static_cast<int>(Placement::kAbove2)] = Nanos(0);
    const std::vector<LayerChoice> inner = SolveLayer(problem), top = SolveLayer(top_problem);
    const StageMixer mixer(inner, top);
    for (int32_t layers : {1, 2, 5}) {
      std::optional<int64_t> previous;
      const int64_t least = mixer.LeastBytes(layers).value;
      EXPECT_FALSE(mixer.Best(layers, Bytes(least - 1)).has_value());
      for (int64_t budget = least; budget < least + 200; budget += 13) {
        const std::optional<StageChoice> choice = mixer.Best(layers, Bytes(budget));
        ASSERT_TRUE(choice.has_value()) << budget;
        EXPECT_THAT(choice->policy.layers, SizeIs(layers));
        EXPECT_LE(choice->bytes().value, budget);
        EXPECT_EQ(choice->exposed.value, BruteForceMix(inner, top, layers, budget)) << budget;
        EXPECT_TRUE(!previous || choice->exposed.value <= *previous) << budget;
        previous = choice->exposed.value;
        Nanos exposed;
        Bytes held;
        for (int32_t l = 0; l < layers; ++l) {
          const auto value = EvaluateLayer(l + 1 == layers ? top_problem : problem, choice->policy.layers[l]);
          ASSERT_TRUE(value.has_value());
          exposed += value->exposed;
          held += value->held;
        }
        EXPECT_EQ(exposed, choice->exposed);
        EXPECT_EQ(held, choice->held);
      }
    }
  }
}

}  // namespace
}  // namespace lynx
