#include "planner/plan.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/status.h"
#include "planner/layout_planner.h"
#include "planner/search.h"

namespace lynx {
namespace {

constexpr Nanos kForever{std::numeric_limits<int64_t>::max()};
constexpr int kAssemblyTries = 4;

// All candidates of a request, from the one with the best bound on.
class Search {
 public:
  Search(const PlanRequest& request, const std::vector<Candidate>& candidates, FrontCache& fronts) {
    for (const Candidate& candidate : candidates) {
      auto planner = std::make_unique<LayoutPlanner>(request, candidate, fronts);
      const Nanos bound = planner->LowerBound();
      entries_.push_back({bound, std::move(planner)});
    }
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.bound < b.bound; });
  }

  std::optional<Plan> Fastest() {
    while (true) {
      std::optional<Draft> best;
      Entry* winner = nullptr;
      for (Entry& entry : entries_) {
        if (entry.dropped) continue;
        const Nanos to_beat = best ? best->simulation.step : kForever;
        if (entry.bound >= to_beat) break;
        std::optional<Draft> draft = entry.planner->Best(to_beat);
        if (!draft || (best && !Faster(*draft, *best))) continue;
        best = std::move(draft);
        winner = &entry;
      }
      if (winner == nullptr) return std::nullopt;
      if (std::optional<Plan> plan = Assemble(*winner->planner, *std::move(best))) return plan;
      winner->dropped = true;
    }
  }

 private:
  struct Entry {
    Nanos bound;
    std::unique_ptr<LayoutPlanner> planner;
    bool dropped = false;
  };

  static std::optional<Plan> Assemble(LayoutPlanner& planner, Draft draft) {
    if (draft.mode == RecomputeMode::kAuto) {
      if (std::optional<Draft> better = planner.UseStalls(draft)) draft = *std::move(better);
    }
    for (int i = 0; i < kAssemblyTries; ++i) {
      if (std::optional<Plan> plan = planner.Assemble(draft)) return plan;
      std::optional<Draft> next = planner.Best(kForever);
      if (!next) break;
      draft = *std::move(next);
    }
    return std::nullopt;
  }

  std::vector<Entry> entries_;
};

absl::Status NotPlanned(const std::string& what, const std::string& instead) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is not planned by this version: ", instead));
}

// What the search space knows of layouts, but lowering does not yet.
absl::Status CheckLowered(const ParallelLayout& layout) {
  if (layout.cp > 1) return NotPlanned("parallel.cp above 1", "use 1 or auto");
  if (layout.virtual_stages > 1) return NotPlanned("parallel.virtualStages above 1", "use 1 or auto");
  if (layout.zero != ZeroStage::kNone) return NotPlanned("parallel.zero", "use none or auto");
  if (layout.schedule != ScheduleKind::kOneForwardOneBackward) {
    return NotPlanned(absl::StrCat("parallel.schedule ", ScheduleKindName(layout.schedule)), "use 1f1b or auto");
  }
  return absl::OkStatus();
}

// The same of policies.
absl::Status CheckLowered(const JobSpec& spec) {
  if (spec.recompute == RecomputeMode::kOpt) return NotPlanned("recompute opt", "use heu");
  if (spec.recompute == RecomputeMode::kUniform && spec.recompute_options.layers > 1) {
    return NotPlanned(absl::StrCat("recompute uniform with recomputeOptions.layers ", spec.recompute_options.layers),
                      "use 1, which is recompute full");
  }
  if (spec.recompute_options.offload_permille > 0) return NotPlanned("recomputeOptions.offloadShare", "leave it at 0");
  return CheckLowered(PinnedLayout(spec.parallel));
}

// Those of the search space that can be lowered; never empty.
absl::StatusOr<std::vector<Candidate>> LoweredCandidates(const PlanRequest& request) {
  LYNX_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, Candidates(request.spec, request.cluster, request.target));
  const absl::Status refusal = CheckLowered(candidates.front().layout);
  std::erase_if(candidates, [](const Candidate& c) { return !CheckLowered(c.layout).ok(); });
  if (candidates.empty()) return refusal;
  return candidates;
}

// nullopt: nothing fits into memory, or there is no candidate.
std::optional<Plan> FastestPlan(const PlanRequest& request, FrontCache& fronts) {
  const absl::StatusOr<std::vector<Candidate>> candidates = LoweredCandidates(request);
  if (!candidates.ok()) return std::nullopt;
  return Search(request, *candidates, fronts).Fastest();
}

// A size in the job file's notation: whole KiB, or whole MiB where that is less than two per cent off; rounded up.
std::string SizeField(Bytes bytes) {
  const Bytes unit = bytes > kMiB * 64 ? kMiB : kKiB;
  return absl::StrCat((bytes.value + unit.value - 1) / unit.value, unit == kMiB ? "MiB" : "KiB");
}

Bytes SizeOfField(Bytes bytes) {
  const Bytes unit = bytes > kMiB * 64 ? kMiB : kKiB;
  return unit * ((bytes.value + unit.value - 1) / unit.value);
}

std::optional<std::string> SuggestAutoRecompute(PlanRequest request, FrontCache& fronts) {
  if (request.spec.recompute == RecomputeMode::kAuto) return std::nullopt;
  request.spec.recompute = RecomputeMode::kAuto;
  if (!FastestPlan(request, fronts)) return std::nullopt;
  return "recompute: auto";
}

std::optional<std::string> SuggestMicroBatch(PlanRequest request, FrontCache& fronts) {
  for (int32_t size = request.spec.train.micro_batch - 1; size >= 1; --size) {
    if (request.spec.train.global_batch % size != 0) continue;
    request.spec.train.micro_batch = size;
    if (FastestPlan(request, fronts)) return absl::StrCat("train.microBatch: ", size);
  }
  return std::nullopt;
}

std::optional<std::string> SuggestLimit(PlanRequest request, Bytes needed, FrontCache& fronts) {
  Bytes& limit = request.spec.resources.activation_memory_per_rank;
  if (limit.value == 0 || limit >= needed) return std::nullopt;
  limit = SizeOfField(needed);
  if (!FastestPlan(request, fronts)) return std::nullopt;
  return absl::StrCat("resources.activationMemoryPerRank: ", SizeField(needed));
}

std::optional<std::string> SuggestLayout(PlanRequest request, FrontCache& fronts) {
  const JobSpec before = request.spec;
  request.spec.parallel = {};
  request.spec.resources.max_ranks =
      std::max(before.resources.max_ranks, request.cluster.devices());
  const std::optional<Plan> plan = FastestPlan(request, fronts);
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
  const std::string how = mode == RecomputeMode::kAuto ? std::string("with everything recomputed")
                                                       : absl::StrCat("with recompute ", RecomputeModeName(mode));
  std::string text = absl::StrCat("stage ", shortfall.stage, " needs ", FormatBytes(shortfall.excess()), " more ",
                                  how, ": its activations take ", FormatBytes(shortfall.needed));
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

Infeasible ExplainInfeasible(const PlanRequest& request, const std::vector<Candidate>& candidates,
                             FrontCache& fronts) {
  std::optional<Shortfall> least;
  Candidate closest;
  for (size_t i = 0; i < candidates.size(); ++i) {
    // Candidates of a layout are in order of micro-batch, and the smallest needs least.
    if (i > 0 && candidates[i].layout == candidates[i - 1].layout) continue;
    const Shortfall shortfall = LayoutPlanner(request, candidates[i], fronts).LeastShortfall();
    if (least && shortfall.excess() >= least->excess()) continue;
    least = shortfall;
    closest = candidates[i];
  }
  Infeasible infeasible{.stage = least->stage, .needed = least->needed, .limit = std::max(least->limit, Bytes(0)),
                        .reason = Reason(request, closest, *least)};
  std::optional<std::string> suggestion = SuggestAutoRecompute(request, fronts);
  if (!suggestion) suggestion = SuggestMicroBatch(request, fronts);
  if (!suggestion) suggestion = SuggestLimit(request, least->needed, fronts);
  if (!suggestion) suggestion = SuggestLayout(request, fronts);
  infeasible.suggestion = suggestion.value_or("a smaller model, or devices with more memory");
  return infeasible;
}

}  // namespace

absl::StatusOr<PlanResult> MakePlan(const PlanRequest& request) {
  LYNX_RETURN_IF_ERROR(CheckCluster(request.cluster));
  LYNX_RETURN_IF_ERROR(Candidates(request.spec, request.cluster, request.target).status());
  LYNX_RETURN_IF_ERROR(CheckLowered(request.spec));
  LYNX_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, LoweredCandidates(request));
  FrontCache fronts;
  std::optional<Plan> plan = Search(request, candidates, fronts).Fastest();
  if (!plan) return PlanResult(ExplainInfeasible(request, candidates, fronts));
  plan->digest = Sha256Hex(PlanText(*plan));
  return PlanResult(*std::move(plan));
}

}  // namespace lynx
