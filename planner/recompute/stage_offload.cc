#include "planner/recompute/stage_offload.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "common/check.h"
#include "planner/recompute/local_search.h"

namespace lynx {
namespace {

// Offloading frees device memory, which HEU can use for other tensors. So offloading "buys" memory. The result is estimated for
// kSteps amounts of bought memory, and computed for the kTried amounts with the best estimates.
constexpr int kSteps = 64;
constexpr size_t kTried = 8;
// The search ends after this many amounts that cannot be used, because HEU finds no policy or the host has no room. Such
// amounts are not counted in kTried.
constexpr size_t kMaxWithoutRoom = 24;
// Maximum number of attempts per amount. There is another attempt as long as more memory was freed than was bought.
constexpr int kTries = 4;
// Number of amounts that EstimateWithOffloading considers.
constexpr int kEstimates = 4;
// Maximum number of search nodes of Leaving::Try.
constexpr int kMaxNodes = 400;

Nanos Excess(Nanos work, Nanos capacity) { return std::max(Nanos(0), work - capacity); }

// Items that are stored under the policy, that something reads, and that may be offloaded.
std::vector<int> StoredItems(const RecomputeProblem& problem, const LayerPolicy& policy, LayerPlace place) {
  ItemSet read = 0;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    if (problem.items[i].read_by != 0) read |= static_cast<ItemSet>(1 << i);
    if (IsRecomputed(policy[i])) read |= problem.items[i].inputs;
  }
  std::vector<int> stored;
  for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
    const bool may_leave = Contains(PossiblePlacements(problem, i, place), Placement::kOffload);
    if (policy[static_cast<size_t>(i)] == Placement::kStore && (read >> i & 1) != 0 && may_leave) stored.push_back(i);
  }
  return stored;
}

// Chooses which stored items of a policy to offload, so that enough memory becomes free. This is a covering knapsack problem
// over the stored items of the stage; the copy time should be least. The search is depth first over the items; items with the
// most bytes per copy time come first. For each item it tries to offload the item in as many layers as needed, then in one
// layer fewer, and so on.
class Leaving {
 public:
  explicit Leaving(const RecomputeProblem& problem)
      : problem_(problem), frees_(problem.in_flight - problem.resident), most_bytes_(problem.host_budget / problem.in_flight) {
    for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
      if (problem.items[static_cast<size_t>(i)].bytes.value > 0) order_.push_back(i);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](int x, int y) { return Price(x) < Price(y); });
  }

  // Offloads items and returns the freed memory, which is at least `wanted`. nullopt: no choice was found that frees `wanted`
  // and for which the host has room; then the policy is unchanged.
  std::optional<Bytes> Free(Bytes wanted, StagePolicy& policy) {
    const std::vector<std::vector<int>> stored = Stored(policy);
    best_copies_ = std::numeric_limits<int64_t>::max();
    nodes_ = 0;
    counts_.fill(0);
    Try(0, (wanted + Bytes(frees_ - 1)) / frees_, most_bytes_, 0);
    if (best_copies_ == std::numeric_limits<int64_t>::max()) return std::nullopt;
    Spread(stored, policy);
    Bytes leaves;
    for (const int i : order_) leaves += BytesOf(i) * best_[static_cast<size_t>(i)];
    return leaves * frees_;
  }

  // Offloads as much as the host has room for. The largest items come first.
  void FreeMost(StagePolicy& policy) {
    const std::vector<std::vector<int>> stored = Stored(policy);
    std::vector<int> by_size = order_;
    std::stable_sort(by_size.begin(), by_size.end(), [&](int x, int y) { return BytesOf(x) > BytesOf(y); });
    Bytes room = most_bytes_;
    best_.fill(0);
    for (const int i : by_size) {
      const int64_t count = std::min(int64_t{available_[static_cast<size_t>(i)]}, room.value / BytesOf(i).value);
      best_[static_cast<size_t>(i)] = static_cast<int32_t>(count);
      room -= BytesOf(i) * count;
    }
    Spread(stored, policy);
  }

 private:
  Bytes BytesOf(int i) const { return problem_.items[static_cast<size_t>(i)].bytes; }

  // Returns the stored items of each layer. Also counts, in available_, how many layers store each item.
  std::vector<std::vector<int>> Stored(const StagePolicy& policy) {
    std::vector<std::vector<int>> stored;
    available_.fill(0);
    for (size_t l = 0; l < policy.layers.size(); ++l) {
      stored.push_back(StoredItems(problem_, policy.layers[l], PlaceOf(l, policy.layers.size())));
      for (const int i : stored.back()) ++available_[static_cast<size_t>(i)];
    }
    return stored;
  }

  double Price(int i) const {
    const RecomputeItem& item = problem_.items[static_cast<size_t>(i)];
    return static_cast<double>((item.copy_out + item.copy_in).value) / static_cast<double>(item.bytes.value);
  }

  // Tries the items from the k-th on. `wanted`: bytes of one microbatch that must still be offloaded. `room`: bytes of one
  // microbatch for which the host still has room. `copies`: copy time of the items that are chosen so far.
  void Try(size_t k, Bytes wanted, Bytes room, int64_t copies) {
    if (wanted.value <= 0) {
      if (copies < best_copies_) {
        best_copies_ = copies;
        best_ = counts_;
      }
      return;
    }
    if (k == order_.size() || ++nodes_ > kMaxNodes) return;
    const int i = order_[k];
    const double least = static_cast<double>(copies) + Price(i) * static_cast<double>(wanted.value);
    if (least >= static_cast<double>(best_copies_)) return;
    const RecomputeItem& item = problem_.items[static_cast<size_t>(i)];
    const int64_t enough = (wanted.value + item.bytes.value - 1) / item.bytes.value;
    const int64_t most = std::min({enough, int64_t{available_[static_cast<size_t>(i)]}, room.value / item.bytes.value});
    for (int64_t count = most; count >= 0; --count) {
      counts_[static_cast<size_t>(i)] = static_cast<int32_t>(count);
      Try(k + 1, wanted - item.bytes * count, room - item.bytes * count, copies + (item.copy_out + item.copy_in).value * count);
    }
    counts_[static_cast<size_t>(i)] = 0;
  }

  // Marks each item i as offloaded in best_[i] layers. The copies are spread over the layers as evenly as possible, because the
  // copies of one layer can only be hidden behind the pass of one layer.
  void Spread(const std::vector<std::vector<int>>& stored, StagePolicy& policy) const {
    std::vector<Nanos> copies(policy.layers.size());
    for (const int i : order_) {
      const RecomputeItem& item = problem_.items[static_cast<size_t>(i)];
      for (int32_t n = 0; n < best_[static_cast<size_t>(i)]; ++n) {
        size_t to = policy.layers.size();
        for (size_t l = 0; l < policy.layers.size(); ++l) {
          const bool there = std::find(stored[l].begin(), stored[l].end(), i) != stored[l].end();
          if (!there || policy.layers[l][static_cast<size_t>(i)] == Placement::kOffload) continue;
          if (to == policy.layers.size() || copies[l] < copies[to]) to = l;
        }
        policy.layers[to][static_cast<size_t>(i)] = Placement::kOffload;
        copies[to] += item.copy_out + item.copy_in;
      }
    }
  }

  const RecomputeProblem& problem_;
  const int32_t frees_;
  const Bytes most_bytes_;  // bytes of one microbatch for which the host has room
  std::vector<int> order_;
  std::array<int32_t, kMaxItems> available_{}, counts_{}, best_{};
  int64_t best_copies_ = 0;
  int nodes_ = 0;
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

// The time that it costs to free device memory by offloading. This assumes that the same share of every item is offloaded.
class Purchase {
 public:
  explicit Purchase(const RecomputeProblem& problem) : problem_(problem), frees_(problem.in_flight - problem.resident) {
    for (const RecomputeItem& item : problem.items) {
      bytes_ += item.bytes;
      out_ += item.copy_out;
      in_ += item.copy_in;
    }
  }

  // Returns the largest amount of device memory that offloading can free.
  Bytes Most() const {
    if (problem_.host_budget.value == 0 || frees_ <= 0) return Bytes(0);
    return std::min(bytes_ * problem_.layers, problem_.host_budget / problem_.in_flight) * frees_;
  }
  // Returns the time that the copies cost if they free `freed` bytes: the copy time that is not hidden, and the time by which
  // copies slow down ops.
  Nanos Cost(Bytes freed, int32_t copy_slowdown_permille) const {
    const Nanos out = Copies(out_, freed), in = Copies(in_, freed);
    return std::max(Excess(out, problem_.copy_out), Excess(in, problem_.copy_in)) + Slowed(out + in, copy_slowdown_permille);
  }

 private:
  Nanos Copies(Nanos layer, Bytes freed) const {
    const __int128 times = static_cast<__int128>(layer.value) * freed.value / frees_;
    return Nanos(static_cast<int64_t>(times / std::max<int64_t>(1, bytes_.value)));
  }

  const RecomputeProblem& problem_;
  const int32_t frees_;
  Bytes bytes_;  // bytes of all items of a layer
  Nanos out_, in_;
};

// Three policies with the least memory on the device. The first offloads as much as possible of what HEU's policy with the
// least memory stores. The second offloads as much as possible and stores the rest. The third is HEU's policy with the least
// memory, without offloading.
std::vector<StagePolicy> LeastPolicies(const StageHeu& heu, const RecomputeProblem& problem) {
  const std::optional<StageSolution> least = heu.Best(problem.layers, heu.LeastBytes(problem.layers));
  LYNX_CHECK(least.has_value());
  std::vector<StagePolicy> policies{least->policy, {std::vector<LayerPolicy>(static_cast<size_t>(problem.layers))}};
  Leaving leaving(problem);
  for (StagePolicy& policy : policies) leaving.FreeMost(policy);
  policies.push_back(least->policy);
  return policies;
}

// Tries policies and keeps the best one that fits.
class OffloadSearch {
 public:
  OffloadSearch(const StageHeu& heu, const StageHeu& offloading, const RecomputeProblem& problem,
                int32_t copy_slowdown_permille)
      : heu_(heu), offloading_(offloading), problem_(problem), slowdown_(copy_slowdown_permille), purchase_(problem),
        leaving_(problem) {}

  std::optional<OffloadSolution> Run() {
    if (problem_.budget >= heu_.LeastBytes(problem_.layers)) {
      if (auto stored = heu_.Best(problem_.layers, problem_.budget)) Consider(std::move(stored->policy));
    }
    if (purchase_.Most().value == 0 || (best_ && best_->value.exposed.value == 0)) return std::move(best_);
    if (auto found = offloading_.Best(problem_.layers, problem_.budget)) Consider(std::move(found->policy));
    TryAmounts();
    // If all stored tensors can be offloaded, they take device memory only for the `resident` microbatches that are being
    // copied.
    const int32_t resident = std::max(kLeastInFlight, problem_.resident);
    if (resident < problem_.in_flight) {
      TryAmount(heu_.ForStage(problem_.layers, resident, problem_.stall), Bytes(0));
    }
    if (!best_) {
      for (StagePolicy& policy : LeastPolicies(heu_, problem_)) Consider(std::move(policy));
    }
    if (best_) {
      const std::vector<LayerPolicy> others(layers_.begin(), layers_.end());
      Consider(Improved(problem_, best_->policy, others, slowdown_));
    }
    return std::move(best_);
  }

 private:
  // At least 2. With one microbatch in flight, there is no forward pass of another microbatch before a backward pass, and
  // StageHeu would have no forward windows.
  static constexpr int32_t kLeastInFlight = 2;

  bool Consider(StagePolicy policy) {
    layers_.insert(policy.layers.begin(), policy.layers.end());
    OffloadSolution solution = SolutionOf(problem_, std::move(policy), slowdown_);
    if (!Fits(problem_, solution.value) || (best_ && !Better(solution, *best_))) return false;
    best_ = std::move(solution);
    return true;
  }

  struct Amount {
    Nanos cost;  // estimate of exposed time plus slowdown by copies
    Bytes bought;
    StageValue stored;  // estimate of HEU's solution with a budget that is larger by `bought`
  };

  // Returns the amounts that can be worthwhile, in the order of their cost.
  std::vector<Amount> Amounts() const {
    std::vector<Amount> amounts;
    for (int i = 1; i <= kSteps; ++i) {
      const Bytes bought = purchase_.Most() / kSteps * i;
      const StageValue value = heu_.Estimate(problem_.layers, problem_.budget + bought);
      const Bytes freed = std::max(Bytes(0), value.bytes() - problem_.budget);
      if (freed <= bought) amounts.push_back({value.exposed + purchase_.Cost(freed, slowdown_), bought, value});
    }
    std::stable_sort(amounts.begin(), amounts.end(),
                     [](const Amount& a, const Amount& b) { return std::tie(a.cost, a.bought) < std::tie(b.cost, b.bought); });
    return amounts;
  }

  void TryAmounts() {
    size_t tried = 0;
    std::set<StageValue> without_room;
    for (const Amount& amount : Amounts()) {
      if (tried == kTried || without_room.size() == kMaxWithoutRoom) return;
      if (without_room.contains(amount.stored)) continue;
      if (TryAmount(heu_, amount.bought)) {
        ++tried;
      } else {
        without_room.insert(amount.stored);
      }
    }
  }

  // Solves the stage with a budget that is larger by `bought`, and offloads as much as is needed to fit. If this frees more
  // than `bought`, tries again with the freed amount, which can give a better policy. Returns false if HEU finds no policy for
  // the first amount, or if the host has no room for what must be offloaded.
  bool TryAmount(const StageHeu& heu, Bytes bought) {
    for (int i = 0; i < kTries; ++i) {
      std::optional<StageSolution> stored = heu.Best(problem_.layers, problem_.budget + bought);
      if (!stored) return i > 0;
      const absl::StatusOr<StageValue> value = EvaluateStage(problem_, stored->policy);
      LYNX_CHECK(value.ok());
      const std::optional<Bytes> freed = leaving_.Free(value->bytes() - problem_.budget, stored->policy);
      if (!freed) return i > 0;
      if (!Consider(std::move(stored->policy)) || *freed <= bought) return true;
      bought = *freed;
    }
    return true;
  }

  const StageHeu& heu_;
  const StageHeu& offloading_;
  const RecomputeProblem& problem_;
  const int32_t slowdown_;
  const Purchase purchase_;
  Leaving leaving_;
  std::optional<OffloadSolution> best_;
  std::set<LayerPolicy> layers_;  // all layer policies that were considered
};

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
  const bool fits = stored.bytes() <= budget;
  const Purchase purchase(problem);
  const Bytes most = purchase.Most();
  if (most.value == 0 || (fits && stored.exposed.value == 0)) return stored;
  std::optional<StageValue> best;
  if (fits) best = stored;
  for (int i = kEstimates; i > 0; --i) {
    StageValue with = heu.Estimate(problem.layers, budget + most / kEstimates * i);
    const Bytes freed = std::clamp(with.bytes() - budget, Bytes(0), most / kEstimates * i);
    with.exposed += purchase.Cost(freed, copy_slowdown_permille);
    with.held = with.bytes() - freed;
    with.transient = Bytes(0);
    const bool fits_so = with.bytes() <= budget;
    if (!best || (fits_so && with.exposed < best->exposed)) best = with;
    if (!fits_so) break;  // smaller amounts free less memory, so they do not fit either
  }
  return *best;
}

std::optional<OffloadSolution> BestWithOffloading(const StageHeu& heu, const StageHeu& offloading,
                                                  const RecomputeProblem& problem, int32_t copy_slowdown_permille) {
  return OffloadSearch(heu, offloading, problem, copy_slowdown_permille).Run();
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
