#include "planner/stage_offload.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "common/check.h"

namespace lynx {
namespace {

// Shares of the copy time that passes hide, in thousandths. Beyond all of it copies are exposed: only where nothing
// else fits.
constexpr int64_t kAllHidden = 1000;
constexpr int64_t kLeastShare = 500;
constexpr int64_t kMostShare = int64_t{1} << 16;
// Tries to find the budget at which what leaves makes up for what is too much.
constexpr int kTries = 2;

struct LayerLimit {
  Nanos copy_out, copy_in;
  Bytes host;
};

// A layer's equal share of what the stage has.
LayerLimit LimitOf(const RecomputeProblem& problem, int64_t permille) {
  return {.copy_out = problem.copy_out / problem.layers * permille / kAllHidden,
          .copy_in = problem.copy_in / problem.layers * permille / kAllHidden,
          .host = problem.host_budget / problem.layers};
}

// Items that exist under the policy and are stored.
std::vector<int> StoredItems(const RecomputeProblem& problem, const LayerPolicy& policy, bool top) {
  ItemSet read = 0;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    if (problem.items[i].read_by != 0) read |= static_cast<ItemSet>(1 << i);
    if (IsRecomputed(policy[i])) read |= problem.items[i].inputs;
  }
  std::vector<int> stored;
  for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
    const bool may_leave = Contains(PossiblePlacements(problem, i, top), Placement::kOffload);
    if (policy[static_cast<size_t>(i)] == Placement::kStore && (read >> i & 1) != 0 && may_leave) stored.push_back(i);
  }
  return stored;
}

class Leaving {
 public:
  Leaving(const RecomputeProblem& problem, int64_t permille)
      : problem_(problem), limit_(LimitOf(problem, permille)), frees_(problem.in_flight - problem.resident) {}

  // Of what the policy stores as much leaves, item by item and layer by layer, as frees so many bytes, if the layers'
  // limits allow it. What has freed.
  Bytes Free(Bytes wanted, StagePolicy& policy) const {
    const size_t layers = policy.layers.size();
    std::vector<std::vector<int>> stored(layers);
    std::vector<LayerLimit> left(layers, limit_);
    for (size_t l = 0; l < layers; ++l) stored[l] = StoredItems(problem_, policy.layers[l], l + 1 == layers);
    Bytes freed;
    for (bool any = true; any && freed < wanted;) {
      any = false;
      for (size_t l = 0; l < layers && freed < wanted; ++l) {
        const auto next = Next(stored[l], left[l], wanted - freed);
        if (next == stored[l].end()) continue;
        const RecomputeItem& item = problem_.items[static_cast<size_t>(*next)];
        policy.layers[l][static_cast<size_t>(*next)] = Placement::kOffload;
        left[l].copy_out -= item.copy_out;
        left[l].copy_in -= item.copy_in;
        left[l].host -= item.bytes * problem_.in_flight;
        freed += item.bytes * frees_;
        stored[l].erase(next);
        any = true;
      }
    }
    return freed;
  }

 private:
  // Of those within the limit the smallest that frees what is wanted, else the largest.
  std::vector<int>::iterator Next(std::vector<int>& stored, const LayerLimit& left, Bytes wanted) const {
    auto best = stored.end();
    for (auto it = stored.begin(); it != stored.end(); ++it) {
      const RecomputeItem& item = problem_.items[static_cast<size_t>(*it)];
      if (item.copy_out > left.copy_out || item.copy_in > left.copy_in || item.bytes.value == 0 ||
          item.bytes * problem_.in_flight > left.host) {
        continue;
      }
      if (best == stored.end()) {
        best = it;
        continue;
      }
      const Bytes a = item.bytes, b = problem_.items[static_cast<size_t>(*best)].bytes;
      const bool enough = a * frees_ >= wanted, enough_before = b * frees_ >= wanted;
      if (enough != enough_before ? enough : enough ? a < b : a > b) best = it;
    }
    return best;
  }

  const RecomputeProblem& problem_;
  const LayerLimit limit_;
  const int32_t frees_;
};

Nanos Slowed(Nanos copies, int32_t copy_slowdown_permille) {
  return copies * (copy_slowdown_permille - 1000) / copy_slowdown_permille;
}

OffloadSolution SolutionOf(const RecomputeProblem& problem, StagePolicy policy, int32_t copy_slowdown_permille) {
  const absl::StatusOr<StageValue> value = EvaluateStage(problem, policy);
  LYNX_CHECK(value.ok());
  const Nanos slowed = SlowedByCopies(problem, policy, copy_slowdown_permille);
  return {std::move(policy), *value, slowed};
}

bool Better(const OffloadSolution& a, const OffloadSolution& b) {
  const Nanos of_a = a.value.exposed + a.slowed, of_b = b.value.exposed + b.slowed;
  return of_a != of_b ? of_a < of_b : Better(a.value, b.value);
}

// If all items of a layer left.
struct LayerCopies {
  Bytes bytes;
  Nanos out, in;
};

LayerCopies CopiesOfLayer(const RecomputeProblem& problem) {
  LayerCopies all;
  for (const RecomputeItem& item : problem.items) {
    all.bytes += item.bytes;
    all.out += item.copy_out;
    all.in += item.copy_in;
  }
  return all;
}

// What a share of the copy time adds to the budget: as much leaves as that lets through, at the rate of all items
// together.
Bytes Bought(const RecomputeProblem& problem, int64_t permille) {
  if (problem.host_budget.value == 0) return Bytes(0);
  const LayerCopies all = CopiesOfLayer(problem);
  const LayerLimit limit = LimitOf(problem, permille);
  const auto in_time = [&](Nanos time, Nanos copies) {
    if (copies <= time) return all.bytes;
    return Bytes(static_cast<int64_t>(static_cast<__int128>(all.bytes.value) * time.value / copies.value));
  };
  const Bytes of_layer = std::min(
      {all.bytes, limit.host / problem.in_flight, in_time(limit.copy_out, all.out), in_time(limit.copy_in, all.in)});
  return of_layer * problem.layers * (problem.in_flight - problem.resident);
}

// Both ways to leave least on the device: what HEU stores where it stores least leaves, or everything does.
std::vector<StagePolicy> LeastPolicies(const StageHeu& heu, const RecomputeProblem& problem) {
  const std::optional<StageSolution> least = heu.Best(problem.layers, heu.LeastBytes(problem.layers));
  LYNX_CHECK(least.has_value());
  const Bytes everything(std::numeric_limits<int64_t>::max());
  std::vector<StagePolicy> policies{least->policy, {std::vector<LayerPolicy>(static_cast<size_t>(problem.layers))}};
  for (StagePolicy& policy : policies) Leaving(problem, kMostShare).Free(everything, policy);
  policies.push_back(least->policy);
  return policies;
}

}  // namespace

Nanos SlowedByCopies(const RecomputeProblem& problem, const StagePolicy& policy, int32_t copy_slowdown_permille) {
  Nanos copies;
  for (const LayerPolicy& layer : policy.layers) {
    for (size_t i = 0; i < problem.items.size(); ++i) {
      if (layer[i] == Placement::kOffload) copies += problem.items[i].copy_out + problem.items[i].copy_in;
    }
  }
  return Slowed(copies, copy_slowdown_permille);
}

StageValue EstimateWithOffloading(const StageHeu& heu, const RecomputeProblem& problem, Bytes budget,
                                  int32_t copy_slowdown_permille) {
  const StageValue stored = heu.Estimate(problem.layers, budget);
  const Bytes bought = Bought(problem, kAllHidden);
  const bool fits = stored.bytes() <= budget;
  if (bought.value == 0 || (fits && stored.exposed.value == 0)) return stored;
  StageValue with = heu.Estimate(problem.layers, budget + bought);
  const Bytes freed = std::clamp(with.bytes() - budget, Bytes(0), bought);
  const LayerCopies all = CopiesOfLayer(problem);
  const __int128 leaves = freed.value / (problem.in_flight - problem.resident);
  const Nanos copies(static_cast<int64_t>(leaves * (all.out + all.in).value / std::max<int64_t>(1, all.bytes.value)));
  with.exposed += Slowed(copies, copy_slowdown_permille);
  with.held = with.bytes() - freed;
  with.transient = Bytes(0);
  return fits && stored.exposed <= with.exposed ? stored : with;
}

std::optional<OffloadSolution> BestWithOffloading(const StageHeu& heu, const RecomputeProblem& problem,
                                                  int32_t copy_slowdown_permille) {
  std::optional<OffloadSolution> best;
  const auto consider = [&](StagePolicy policy) {
    OffloadSolution solution = SolutionOf(problem, std::move(policy), copy_slowdown_permille);
    if (!Fits(problem, solution.value) || (best && !Better(solution, *best))) return false;
    best = std::move(solution);
    return true;
  };
  if (problem.budget >= heu.LeastBytes(problem.layers)) {
    if (const auto stored = heu.Best(problem.layers, problem.budget)) consider(stored->policy);
  }
  if (best && best->value.exposed.value == 0) return best;
  // Whether that share of the copy time leads to a better policy.
  const auto with_share = [&](int64_t permille) {
    Bytes bought = Bought(problem, permille);
    bool better = false;
    for (int i = 0; i < kTries && bought.value > 0; ++i) {
      std::optional<StageSolution> stored = heu.Best(problem.layers, problem.budget + bought);
      if (!stored) break;
      const Bytes wanted = stored->value.bytes() - problem.budget;
      const Bytes freed = Leaving(problem, permille).Free(wanted, stored->policy);
      better = consider(std::move(stored->policy)) || better;
      if (freed >= wanted) break;
      bought = freed;
    }
    return better;
  };
  for (int64_t share = kAllHidden; share >= kLeastShare && with_share(share); share /= 2) {
  }
  for (int64_t share = kAllHidden * 2; !best && share <= kMostShare; share *= 2) with_share(share);
  if (!best) {
    for (StagePolicy& policy : LeastPolicies(heu, problem)) consider(std::move(policy));
  }
  return best;
}

Bytes LeastBytesWithOffloading(const StageHeu& heu, const RecomputeProblem& problem) {
  if (problem.host_budget.value == 0) return heu.LeastBytes(problem.layers);
  Bytes least(std::numeric_limits<int64_t>::max());
  for (StagePolicy& policy : LeastPolicies(heu, problem)) {
    const OffloadSolution solution = SolutionOf(problem, std::move(policy), 1000);
    if (solution.value.host <= problem.host_budget) least = std::min(least, solution.value.bytes());
  }
  return least;
}

}  // namespace lynx
