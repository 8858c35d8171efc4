#include "planner/search/smallest_change.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/candidates/candidate_bound.h"
#include "planner/candidates/plan_caches.h"
#include "planner/candidates/supported.h"
#include "planner/problem/stage_context.h"
#include "planner/search/infeasible.h"
#include "planner/search/plan_search.h"

namespace lynx {
namespace {

using Suggestion = std::optional<std::string>;

// The search for an amount of memory tries multiples of a step. The step is a power of two divided by kMemorySteps: the largest
// power that is at most the amount where the search starts.
constexpr int64_t kMemorySteps = 64;
constexpr int kMaxDoublings = 16;
constexpr int32_t kSequenceParts = 16;
// Nodes are added until the cluster has at most kMaxGrowth times its present number of devices.
constexpr int32_t kMaxGrowth = 8;
constexpr int64_t kMaxGrownDevices = 1 << 16;  // the maximum number of ranks of a job
constexpr Nanos kAnyStep{int64_t{1} << 50};

bool Fits(const PlanRequest& request) {
  if (!CheckSupported(request).ok()) return false;
  const absl::StatusOr<std::vector<Candidate>> candidates = SupportedCandidates(request);
  if (!candidates.ok()) return false;
  PlanCaches caches(request);
  return PlanSearch(request, *candidates, caches).Any().has_value();
}

// Returns the smallest number that fits. `low` must not fit, and `high` must fit.
template <class FitsAt>
int64_t LeastThatFits(int64_t low, int64_t high, const FitsAt& fits) {
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

// Returns the smallest amount above `present` that fits, up to an error of about 1 / kMemorySteps. The search starts at
// `guess`.
template <class FitsWith>
std::optional<Bytes> LeastMemory(Bytes present, Bytes guess, const FitsWith& fits) {
  const auto unit = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max(guess, present).value)));
  const Bytes step = std::max(kKiB, Bytes(unit / kMemorySteps));
  const auto at = [&](int64_t count) { return fits(step * count); };
  int64_t low = present.value / step.value, high = std::max(low + 1, (guess.value + step.value - 1) / step.value);
  int doublings = 0;
  while (!at(high)) {
    if (++doublings > kMaxDoublings) return std::nullopt;
    low = std::exchange(high, high + std::max<int64_t>(1, high - low));
  }
  return step * LeastThatFits(low, high, at);
}

// The size in the notation of the job file.
std::string SizeField(Bytes bytes) {
  for (const auto& [unit, name] : {std::pair(kGiB, "GiB"), std::pair(kMiB, "MiB")}) {
    if (bytes.value % unit.value == 0) return absl::StrCat(bytes.value / unit.value, name);
  }
  return absl::StrCat(bytes.value / kKiB.value, "KiB");
}

Suggestion FusedAttention(PlanRequest request) {
  if (request.spec.model.attention == AttentionKernel::kFused) return std::nullopt;
  request.spec.model.attention = AttentionKernel::kFused;
  if (!Fits(request)) return std::nullopt;
  return "model.attention: fused";
}

Suggestion AutoRecompute(PlanRequest request) {
  if (request.spec.recompute == RecomputeMode::kAuto) return std::nullopt;
  request.spec.recompute = RecomputeMode::kAuto;
  // The mode auto uses neither recomputeOptions.layers nor .modules, so a job that has one of them must also take it away.
  RecomputeOptions& options = request.spec.recompute_options;
  const bool numbered = std::exchange(options.layers, 0) > 0, listed = !std::exchange(options.modules, {}).empty();
  if (!Fits(request)) return std::nullopt;
  return absl::StrCat("recompute: auto", numbered ? ", recomputeOptions.layers: 0" : "",
                      listed ? ", recomputeOptions.modules: \"\"" : "");
}

Suggestion SmallerMicroBatch(PlanRequest request) {
  for (int32_t size = request.spec.train.micro_batch - 1; size >= 1; --size) {
    if (request.spec.train.global_batch % size != 0) continue;  // another size would leave places empty
    request.spec.train.micro_batch = size;
    if (Fits(request)) return absl::StrCat("train.microBatch: ", size);
  }
  return std::nullopt;
}

// Tries the value auto for `zero`, which says what replicas shard, then for `ep`, which says what part of the experts a rank
// has, then for `sequenceParallel`, which says what tensor-parallel ranks shard. At last tries passes that do not run side by
// side, and stages with other numbers of layers.
Suggestion AutoModes(const PlanRequest& request) {
  PlanRequest changed = request;
  changed.spec.parallel.zero = ZeroStage::kAuto;
  if (request.spec.parallel.zero != ZeroStage::kAuto && Fits(changed)) return "parallel.zero: auto";
  changed = request;
  changed.spec.parallel.ep = 0;
  if (request.spec.parallel.ep != 0 && request.spec.model.moe.any() && Fits(changed)) return "parallel.ep: auto";
  changed = request;
  changed.spec.parallel.sequence_parallel = Choice::kAuto;
  if (request.spec.parallel.sequence_parallel != Choice::kAuto && Fits(changed)) return "parallel.sequenceParallel: auto";
  changed = request;
  changed.spec.parallel.weave = WeaveMode::kOff;
  if (request.spec.parallel.weave != WeaveMode::kOff && Fits(changed)) return "parallel.weave: off";
  changed = request;
  changed.spec.parallel.stage_layers.clear();
  if (!request.spec.parallel.stage_layers.empty() && Fits(changed)) return "parallel.stageLayers: []";
  return std::nullopt;
}

Suggestion LargerLimit(PlanRequest request, Bytes needed) {
  Bytes& limit = request.spec.resources.activation_memory_per_rank;
  const Bytes present = std::exchange(limit, Bytes(0));
  if (present.value == 0 || !Fits(request)) return std::nullopt;
  const std::optional<Bytes> least = LeastMemory(present, needed, [&](Bytes with) {
    limit = with;
    return Fits(request);
  });
  if (!least) return std::nullopt;
  return absl::StrCat("resources.activationMemoryPerRank: ", SizeField(*least));
}

// Returns the layout of a plan that fits and has the fewest ranks between `from` and `to`.
std::optional<ParallelLayout> WithFewestRanks(PlanRequest request, int32_t from, int32_t to) {
  if (from > to) return std::nullopt;
  request.spec.resources.min_ranks = from;
  request.spec.resources.max_ranks = to;
  const absl::StatusOr<std::vector<Candidate>> all = SupportedCandidates(request);
  if (!all.ok()) return std::nullopt;
  PlanCaches caches(request);
  for (auto next = all->begin(); next != all->end();) {
    const int32_t ranks = next->layout.ranks();
    std::vector<Candidate> candidates;
    for (; next != all->end() && next->layout.ranks() == ranks; ++next) {
      if (CandidateBound(request, *next, caches).MayTake(kAnyStep)) candidates.push_back(*next);
    }
    if (candidates.empty()) continue;
    if (const std::optional<Plan> plan = PlanSearch(request, candidates, caches).Any()) return plan->layout;
  }
  return std::nullopt;
}

// A size of the layout (dp, pp or tp) that the job can pin and that the planner could choose. The members are its name in the
// job file and its fields in the two structs.
struct PinnedSize {
  const char* field;
  int32_t ParallelSpec::*spec;
  int32_t ParallelLayout::*layout;
};
constexpr std::array kPipelineAndReplicas = {PinnedSize{"parallel.dp", &ParallelSpec::dp, &ParallelLayout::dp},
                                             PinnedSize{"parallel.pp", &ParallelSpec::pp, &ParallelLayout::pp}};
constexpr PinnedSize kTensor = {"parallel.tp", &ParallelSpec::tp, &ParallelLayout::tp};

// The fields that the job must change for this layout, such as "resources.ranks: 8, parallel.pp: 2".
std::string RanksAndSizes(const JobSpec& spec, const ParallelLayout& layout, const std::vector<PinnedSize>& open) {
  std::vector<std::string> changes;
  if (layout.ranks() < spec.resources.min_ranks || layout.ranks() > spec.resources.max_ranks) {
    changes.push_back(absl::StrCat("resources.ranks: ", layout.ranks()));
  }
  for (const PinnedSize& size : open) {
    if (layout.*size.layout == spec.parallel.*size.spec) continue;
    changes.push_back(absl::StrCat(size.field, ": ", layout.*size.layout));
  }
  return absl::StrJoin(changes, ", ");
}

// Returns sets of the job's pinned sizes that the planner could choose. Small sets come first. If `with_tp`, every set contains
// tp; otherwise no set contains it.
std::vector<std::vector<PinnedSize>> OpenSizes(const ParallelSpec& parallel, bool with_tp) {
  std::vector<std::vector<PinnedSize>> sets(1);
  if (with_tp) sets.front().push_back(kTensor);
  if (parallel.schedule == ScheduleKind::kCustom) return sets;  // a custom schedule fixes the pipeline's sizes
  std::vector<PinnedSize> pinned;
  for (const PinnedSize& size : kPipelineAndReplicas) {
    if (parallel.*size.spec != 0) pinned.push_back(size);
  }
  for (const PinnedSize& size : pinned) {
    sets.push_back(sets.front());
    sets.back().push_back(size);
  }
  if (pinned.size() > 1) {
    sets.push_back(sets.front());
    sets.back().insert(sets.back().end(), pinned.begin(), pinned.end());
  }
  return sets;
}

struct RankChange {
  int32_t ranks = 0;
  std::string text;
};

// Tries `from` to `to` ranks. Changes as few sizes as possible; then uses as few ranks as possible.
std::optional<RankChange> OtherSizes(const PlanRequest& request, bool with_tp, int32_t from, int32_t to) {
  for (const std::vector<PinnedSize>& open : OpenSizes(request.spec.parallel, with_tp)) {
    PlanRequest changed = request;
    for (const PinnedSize& size : open) changed.spec.parallel.*size.spec = 0;
    if (const std::optional<ParallelLayout> layout = WithFewestRanks(changed, from, to)) {
      return RankChange{layout->ranks(), RanksAndSizes(request.spec, *layout, open)};
    }
  }
  return std::nullopt;
}

Suggestion OtherLayout(const PlanRequest& request) {
  const ResourceSpec& resources = request.spec.resources;
  const int32_t devices = request.cluster.devices();
  const int32_t most = std::min(resources.max_ranks, devices);
  for (const bool with_tp : {false, true}) {
    if (with_tp && request.spec.parallel.tp == 0) continue;
    std::optional<RankChange> found = OtherSizes(request, with_tp, resources.min_ranks, most);
    if (!found) found = OtherSizes(request, with_tp, most + 1, devices);
    if (found) return found->text;
  }
  return std::nullopt;
}

Suggestion ShorterSequence(PlanRequest request) {
  const int32_t part = request.spec.model.seq / kSequenceParts;
  if (part == 0) return std::nullopt;
  // `fewer` is the number of parts by which the sequence is shorter than the job's, so the smallest `fewer` gives the longest
  // sequence.
  const auto fits = [&](int64_t fewer) {
    request.spec.model.seq = static_cast<int32_t>(part * (kSequenceParts - fewer));
    return Fits(request);
  };
  if (!fits(kSequenceParts - 1)) return std::nullopt;
  fits(LeastThatFits(0, kSequenceParts - 1, fits));
  return absl::StrCat("model.seq: ", request.spec.model.seq);
}

Suggestion MoreNodes(PlanRequest request) {
  const int32_t devices = request.cluster.devices();
  NodeGroup& last = request.cluster.groups.back();
  const int32_t more_nodes = std::max(1, devices * (kMaxGrowth - 1) / last.devices_per_node);
  const int64_t most = int64_t{devices} + int64_t{more_nodes} * last.devices_per_node;
  if (most > kMaxGrownDevices) return std::nullopt;
  last.nodes += more_nodes;
  const std::optional<RankChange> found = OtherSizes(request, /*with_tp=*/false, devices + 1, static_cast<int32_t>(most));
  if (!found) return std::nullopt;
  const int32_t nodes = (found->ranks - devices + last.devices_per_node - 1) / last.devices_per_node;
  return absl::StrCat(found->text, " (", nodes, nodes == 1 ? " more node)" : " more nodes)");
}

Suggestion LargerDevices(PlanRequest request, Bytes needed) {
  Bytes present(std::numeric_limits<int64_t>::max());
  std::vector<Bytes> before;
  for (const NodeGroup& group : request.cluster.groups) {
    before.push_back(group.memory_per_device);
    if (group.memory_per_device.value > 0) present = std::min(present, group.memory_per_device);
  }
  if (present.value == std::numeric_limits<int64_t>::max()) return std::nullopt;  // the memory of no device is known
  const std::optional<Bytes> least = LeastMemory(present, needed, [&](Bytes with) {
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].value > 0) request.cluster.groups[i].memory_per_device = std::max(before[i], with);
    }
    return Fits(request);
  });
  if (!least) return std::nullopt;
  return absl::StrCat("devices with at least ", SizeField(*least), " each");
}

}  // namespace

Bytes ScoresOfLayer(const ModelSpec& model, const Candidate& candidate) {
  const LayerShape shape = ShapeOf(model, candidate.layout, candidate.micro_batch);
  const LayerGraph& graph = LayerGraph::Of(shape);
  Bytes scores;
  if (graph.Has(Op::kProbs)) scores += StoredBytes(Tensor::kProbs, shape);
  if (graph.Has(Op::kDrop)) scores += StoredBytes(Tensor::kProbsDropped, shape);
  return scores;
}

bool ScoresPrevail(const ModelSpec& model, const Candidate& candidate, const Shortfall& shortfall) {
  return ScoresOfLayer(model, candidate) * 2 > shortfall.needed;
}

std::string SmallestChange(const PlanRequest& original, const Candidate& closest, const Shortfall& shortfall) {
  PlanRequest request = original;
  // If HEU finds a plan that fits, the exact solver also finds one, but needs much more time.
  if (request.spec.recompute == RecomputeMode::kOpt) request.spec.recompute = RecomputeMode::kHeu;
  request.exact = nullptr;
  const Bytes needed = NeededOf(shortfall);
  using Kind = std::function<Suggestion()>;
  const auto fused = [&] { return FusedAttention(request); };
  const std::vector<Kind> kinds = {
      [&] { return ScoresPrevail(request.spec.model, closest, shortfall) ? fused() : std::nullopt; },
      [&] { return original.spec.recompute == RecomputeMode::kOpt ? std::nullopt : AutoRecompute(request); },
      [&] { return SmallerMicroBatch(request); },
      [&] { return AutoModes(request); },
      [&] { return LargerLimit(request, needed); },
      fused,
      [&] { return OtherLayout(request); },
      [&] { return ShorterSequence(request); },
      [&] { return MoreNodes(request); },
      [&] { return LargerDevices(request, shortfall.states + needed); },
  };
  for (const Kind& kind : kinds) {
    if (const Suggestion suggestion = kind()) return *suggestion;
  }
  return "a smaller model";
}

}  // namespace lynx
