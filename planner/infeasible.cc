#include "planner/infeasible.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/candidate_bound.h"
#include "planner/layout_planner.h"
#include "planner/plan_search.h"

namespace lynx {
namespace {

constexpr size_t kMostShortfalls = 16;
// Share of a limit that arenas may lack where activations fit.
constexpr int64_t kLayoutShare = 32;

// A size in the job file's notation: whole KiB, or whole MiB where that is less than two per cent off; rounded up.
std::string SizeField(Bytes bytes) {
  const Bytes unit = bytes > kMiB * 64 ? kMiB : kKiB;
  return absl::StrCat((bytes.value + unit.value - 1) / unit.value, unit == kMiB ? "MiB" : "KiB");
}

Bytes SizeOfField(Bytes bytes) {
  const Bytes unit = bytes > kMiB * 64 ? kMiB : kKiB;
  return unit * ((bytes.value + unit.value - 1) / unit.value);
}

std::optional<std::string> SuggestAutoRecompute(PlanRequest request) {
  if (request.spec.recompute == RecomputeMode::kAuto) return std::nullopt;
  request.spec.recompute = RecomputeMode::kAuto;
  if (!FastestPlan(request)) return std::nullopt;
  return "recompute: auto";
}

std::optional<std::string> SuggestMicroBatch(PlanRequest request) {
  for (int32_t size = request.spec.train.micro_batch - 1; size >= 1; --size) {
    if (request.spec.train.global_batch % size != 0) continue;
    request.spec.train.micro_batch = size;
    if (FastestPlan(request)) return absl::StrCat("train.microBatch: ", size);
  }
  return std::nullopt;
}

std::optional<std::string> SuggestLimit(PlanRequest request, Bytes needed) {
  Bytes& limit = request.spec.resources.activation_memory_per_rank;
  if (limit.value == 0 || limit >= needed) return std::nullopt;
  limit = SizeOfField(needed);
  if (!FastestPlan(request)) return std::nullopt;
  return absl::StrCat("resources.activationMemoryPerRank: ", SizeField(needed));
}

std::optional<std::string> SuggestLayout(PlanRequest request) {
  const JobSpec before = request.spec;
  request.spec.parallel = {};
  request.spec.resources.max_ranks =
      std::max(before.resources.max_ranks, request.cluster.devices());
  const std::optional<Plan> plan = FastestPlan(request);
  if (!plan) return std::nullopt;
  std::vector<std::string> changes;
  const ParallelLayout& layout = plan->layout;
  if (layout.ranks() > before.resources.max_ranks) {
    changes.push_back(absl::StrCat("resources.ranks: ", layout.ranks()));
  }
  const auto pin = [&](const char* field, int32_t pinned, int32_t value) {
    if (pinned != 0 && pinned != value) changes.push_back(absl::StrCat("parallel.", field, ": ", value));
  };
  pin("tp", before.parallel.tp, layout.tp);
  pin("pp", before.parallel.pp, layout.pp);
  pin("dp", before.parallel.dp, layout.dp);
  return absl::StrJoin(changes, ", ");
}

std::string Reason(const PlanRequest& request, const Candidate& candidate, const Shortfall& shortfall) {
  const RecomputeMode mode = request.spec.recompute;
  std::string how = mode == RecomputeMode::kAuto ? std::string("with everything recomputed")
                                                 : absl::StrCat("with recompute ", RecomputeModeName(mode));
  if (shortfall.offloading) how += " or in the host's memory";
  std::string text = LackingText(shortfall, how);
  const Bytes device = DeviceMemoryOfStage(request.cluster, candidate.layout, shortfall.stage);
  if (shortfall.limit.value < 0) {
    absl::StrAppend(&text, " and its model states alone ", FormatBytes(shortfall.states), " of a device's ",
                    FormatBytes(device));
  } else {
    absl::StrAppend(&text, ", the limit is ", FormatBytes(shortfall.limit));
    if (device.value > 0 && shortfall.limit != request.spec.resources.activation_memory_per_rank) {
      absl::StrAppend(&text, " (what ", FormatBytes(shortfall.states), " of model states leave of a device's ",
                      FormatBytes(device), ")");
    }
  }
  absl::StrAppend(&text, " (", LayoutText(candidate.layout), ", micro-batch ", candidate.micro_batch,
                  ", the closest of all layouts allowed)");
  return text;
}

// Candidates whose shortfall is looked at: those that lack least by a bound.
std::vector<Candidate> Closest(const PlanRequest& request, const std::vector<Candidate>& candidates,
                               PlanCaches& caches) {
  std::vector<std::pair<Bytes, size_t>> lacking;
  for (size_t i = 0; i < candidates.size(); ++i) {
    // Candidates of a layout are in order of micro-batch, and the smallest needs least.
    if (i > 0 && candidates[i].layout == candidates[i - 1].layout) continue;
    lacking.emplace_back(CandidateBound(request, candidates[i], caches).Lacking(), i);
  }
  std::stable_sort(lacking.begin(), lacking.end());
  std::vector<Candidate> closest;
  for (size_t i = 0; i < std::min(lacking.size(), kMostShortfalls); ++i) {
    closest.push_back(candidates[lacking[i].second]);
  }
  return closest;
}

}  // namespace

Bytes NeededOf(const Shortfall& shortfall) {
  if (shortfall.excess().value > 0) return shortfall.needed;
  return shortfall.limit + std::max(shortfall.limit / kLayoutShare, Bytes(1));
}

std::string LackingText(const Shortfall& shortfall, const std::string& how) {
  if (shortfall.excess().value > 0) {
    return absl::StrCat("stage ", shortfall.stage, " needs ", FormatBytes(shortfall.excess()), " more ", how,
                        ": its activations take ", FormatBytes(shortfall.needed));
  }
  return absl::StrCat("stage ", shortfall.stage, " needs a little more ", how, ": its activations take ",
                      FormatBytes(shortfall.needed),
                      " at any time, but not every arena of the whole step can be laid out "
                      "without gaps");
}

Infeasible ExplainInfeasible(const PlanRequest& request, const std::vector<Candidate>& candidates,
                             PlanCaches& caches) {
  std::optional<Shortfall> least;
  Candidate closest;
  for (const Candidate& candidate : Closest(request, candidates, caches)) {
    const Shortfall shortfall = LayoutPlanner(request, candidate, caches).LeastShortfall();
    if (least && shortfall.excess() >= least->excess()) continue;
    least = shortfall;
    closest = candidate;
  }
  Infeasible infeasible{.stage = least->stage,
                        .needed = NeededOf(*least),
                        .limit = std::max(least->limit, Bytes(0)),
                        .reason = Reason(request, closest, *least)};
  std::optional<std::string> suggestion = SuggestAutoRecompute(request);
  if (!suggestion) suggestion = SuggestMicroBatch(request);
  if (!suggestion) suggestion = SuggestLimit(request, infeasible.needed);
  if (!suggestion) suggestion = SuggestLayout(request);
  infeasible.suggestion = suggestion.value_or("a smaller model, or devices with more memory");
  return infeasible;
}

}  // namespace lynx
