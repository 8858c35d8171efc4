#include "planner/search/infeasible.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/candidates/candidate_bound.h"
#include "planner/search/smallest_change.h"
#include "planner/stages/layout_planner.h"

namespace lynx {
namespace {

constexpr size_t kMaxShortfalls = 16;
// If the activations fit but the arena does not, the arena is assumed to need 1 / kLayoutShare more than the limit.
constexpr int64_t kLayoutShare = 32;

std::string Reason(const PlanRequest& request, const Candidate& candidate, const Shortfall& shortfall) {
  const RecomputeMode mode = request.spec.recompute;
  std::string how = mode == RecomputeMode::kAuto ? std::string("with everything recomputed")
                                                 : absl::StrCat("with recompute ", EnumName(mode));
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
  if (ScoresPrevail(request.spec.model, candidate, shortfall)) {
    absl::StrAppend(&text, "; the scores of unfused attention over model.seq ", request.spec.model.seq, " take ",
                    FormatBytes(ScoresOfLayer(request.spec.model, candidate)), " of it in each layer");
  }
  absl::StrAppend(&text, " (", LayoutText(candidate.layout), ", micro-batch ", candidate.micro_batch,
                  ", the closest of all layouts allowed)");
  return text;
}

// Returns the candidates for which the missing memory is computed: those with the smallest lower bound of missing memory.
std::vector<Candidate> Closest(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches) {
  std::vector<std::pair<Bytes, size_t>> lacking;
  for (size_t i = 0; i < candidates.size(); ++i) {
    // The candidates of a layout come in the order of their micro-batch, and the smallest micro-batch needs the least memory.
    if (i > 0 && candidates[i].layout == candidates[i - 1].layout) continue;
    lacking.emplace_back(CandidateBound(request, candidates[i], caches).Lacking(), i);
  }
  std::stable_sort(lacking.begin(), lacking.end());
  std::vector<Candidate> closest;
  for (size_t i = 0; i < std::min(lacking.size(), kMaxShortfalls); ++i) {
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

Infeasible ExplainInfeasible(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches,
                             Suggesting suggesting) {
  std::optional<Shortfall> least;
  Candidate closest;
  for (const Candidate& candidate : Closest(request, candidates, caches)) {
    const Shortfall shortfall = LayoutPlanner(request, candidate, caches).LeastShortfall();
    if (least && shortfall.excess() >= least->excess()) continue;
    least = shortfall;
    closest = candidate;
  }
  return {.stage = least->stage,
          .needed = NeededOf(*least),
          .limit = std::max(least->limit, Bytes(0)),
          .reason = Reason(request, closest, *least),
          .suggestion = suggesting == Suggesting::kChange ? SmallestChange(request, closest, *least) : ""};
}

}  // namespace lynx
