#include "planner/search/compare.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/candidates/candidate_bound.h"
#include "planner/candidates/lowered.h"
#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/search/make_plan.h"
#include "planner/search/plan_among.h"

namespace lynx {
namespace {

void Tell(const TellPart& tell, const std::string& part) {
  if (tell) tell(part);
}

absl::StatusOr<Plan> PlanOrReason(const PlanRequest& request) {
  LYNX_ASSIGN_OR_RETURN(PlanResult result, MakePlan(request));
  if (auto* plan = std::get_if<Plan>(&result)) return std::move(*plan);
  const Infeasible& lacking = std::get<Infeasible>(result);
  std::string text = lacking.reason;
  if (!lacking.suggestion.empty()) absl::StrAppend(&text, "; the smallest change that fits: ", lacking.suggestion);
  return absl::FailedPreconditionError(text);
}

// The request with every degree and mode at what the plan has.
PlanRequest InLayoutOf(PlanRequest request, const Plan& plan) {
  request.spec.parallel = SpecOf(plan.layout, request.spec.parallel.partition);
  request.spec.train.micro_batch = plan.micro_batch;
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = plan.layout.ranks();
  return request;
}

PlanRequest WithoutLimits(PlanRequest request) {
  request.spec.resources.activation_memory_per_rank = Bytes(0);
  for (NodeGroup& group : request.cluster.groups) group.memory_per_device = Bytes(0);
  return request;
}

Alternative TryChange(std::string change, const PlanRequest& request) {
  Alternative alternative{.change = std::move(change)};
  absl::StatusOr<Plan> plan = PlanOrReason(request);
  if (plan.ok()) {
    alternative.plan = *std::move(plan);
  } else {
    alternative.reason = std::string(plan.status().message());
  }
  return alternative;
}

// The candidates of one tensor- and one pipeline-parallel size.
struct Family {
  size_t place = 0;  // in the order of the search space
  std::vector<Candidate> candidates;
  Nanos bound{std::numeric_limits<int64_t>::max()};  // no plan of it is faster

  std::string name() const {
    return absl::StrCat("tp ", candidates.front().layout.tp, ", pp ", candidates.front().layout.pp);
  }
};

std::vector<Family> FamiliesBeside(const PlanRequest& request, const Plan& plan, PlanCaches& caches) {
  std::map<std::pair<int32_t, int32_t>, size_t> places;
  std::vector<Family> families;
  for (const Candidate& candidate : SearchSpace(request.spec, request.cluster, request.target)) {
    const std::pair sizes(candidate.layout.tp, candidate.layout.pp);
    if (sizes == std::pair(plan.layout.tp, plan.layout.pp)) continue;
    const auto [it, first] = places.emplace(sizes, families.size());
    if (first) families.push_back({.place = families.size(), .candidates = {}});
    Family& family = families[it->second];
    family.candidates.push_back(candidate);
    family.bound = std::min(family.bound, CandidateBound(request, candidate, caches).Quick());
  }
  return families;
}

// No step of a job takes as long.
constexpr Nanos kAnyStep{int64_t{1} << 50};

// What is shown of the families, while they are looked at.
class Rejected {
 public:
  bool full() const { return shown_.size() == kMaxRejected; }
  // What a plan must not exceed to be shown.
  Nanos slowest() const { return full() ? shown_.back().second.plan->step : kAnyStep; }
  void Add(const Family& family, Plan plan) {
    shown_.emplace_back(family.place, Alternative{.change = family.name(), .plan = std::move(plan), .reason = {}});
    std::sort(shown_.begin(), shown_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.second.plan->step, a.first) < std::tie(b.second.plan->step, b.first);
    });
    if (shown_.size() > kMaxRejected) shown_.pop_back();
  }
  std::vector<Alternative> Take() {
    std::vector<Alternative> taken;
    for (auto& [place, alternative] : shown_) taken.push_back(std::move(alternative));
    return taken;
  }

 private:
  std::vector<std::pair<size_t, Alternative>> shown_;  // the fastest first
};

// Whether, by bounds, some candidate takes no longer than `step`.
bool MayTake(const PlanRequest& request, const Family& family, Nanos step, PlanCaches& caches) {
  return std::any_of(family.candidates.begin(), family.candidates.end(), [&](const Candidate& candidate) {
    return CandidateBound(request, candidate, caches).MayTake(step);
  });
}

// The fastest families that seem to fit. They are planned in the order of their bounds, until none that is left may
// be among those that are shown. `without_plan`: those that seem not to fit, where there is room for them.
Rejected FastestFamilies(const PlanRequest& request, const std::vector<Family>& families, PlanCaches& caches,
                         const TellPart& tell, std::vector<const Family*>& without_plan) {
  Rejected fastest;
  for (const Family& family : families) {
    if (family.bound > fastest.slowest()) break;
    std::vector<Candidate> candidates = family.candidates;
    EraseNotLowered(candidates);
    if (MayTake(request, family, fastest.slowest(), caches)) {
      Tell(tell, absl::StrCat("layouts with ", family.name()));
      absl::StatusOr<std::optional<Plan>> made =
          PlanAmong(request, std::move(candidates), caches, {.to_beat = fastest.slowest() + Nanos(1), .effort = SearchEffort::kGlance});
      if (made.ok() && *made) {
        fastest.Add(family, **std::move(made));
        continue;
      }
    }
    without_plan.push_back(&family);
  }
  return fastest;
}

// What seems not to fit is planned only where fewer than kMaxRejected others do, and then says what it lacks.
std::vector<Alternative> OtherLayouts(const PlanRequest& request, const Plan& plan, PlanCaches& caches,
                                      const TellPart& tell) {
  std::vector<Family> families = FamiliesBeside(request, plan, caches);
  std::sort(families.begin(), families.end(),
            [](const Family& a, const Family& b) { return std::tie(a.bound, a.place) < std::tie(b.bound, b.place); });
  std::vector<const Family*> without_plan;
  std::vector<Alternative> others = FastestFamilies(request, families, caches, tell, without_plan).Take();
  std::sort(without_plan.begin(), without_plan.end(),
            [](const Family* a, const Family* b) { return a->place < b->place; });
  for (const Family* family : without_plan) {
    if (others.size() == kMaxRejected) break;
    PlanRequest pinned = request;
    pinned.spec.parallel.tp = family->candidates.front().layout.tp;
    pinned.spec.parallel.pp = family->candidates.front().layout.pp;
    Tell(tell, absl::StrCat("what lacks with ", family->name()));
    others.push_back(TryChange(family->name(), pinned));
  }
  std::stable_sort(others.begin(), others.end(), [](const Alternative& a, const Alternative& b) {
    if (a.plan.has_value() != b.plan.has_value()) return a.plan.has_value();
    return a.plan && a.plan->step < b.plan->step;
  });
  return others;
}

std::vector<Alternative> Sensitivities(const PlanRequest& request, const TellPart& tell) {
  std::vector<Alternative> changes;
  const auto try_change = [&](std::string change, const PlanRequest& with) {
    Tell(tell, change);
    changes.push_back(TryChange(std::move(change), with));
  };
  PlanRequest more = request;
  Bytes& limit = more.spec.resources.activation_memory_per_rank;
  if (limit.value > 0) limit += kGiB;
  bool known = limit.value > 0;
  for (NodeGroup& group : more.cluster.groups) {
    if (group.memory_per_device.value == 0) continue;
    group.memory_per_device += kGiB;
    known = true;
  }
  if (known) try_change("1 GiB more memory per device", more);
  more = request;
  ++more.cluster.groups.back().nodes;
  more.spec.resources.max_ranks += more.cluster.groups.back().devices_per_node;
  try_change("one more node", more);
  const auto faster = [&](const char* change, LinkCost HardwareProfile::*link) {
    PlanRequest with = request;
    for (NodeGroup& group : with.cluster.groups) (group.profile.*link).bytes_per_second *= 2;
    try_change(change, with);
  };
  faster("links inside nodes twice as fast", &HardwareProfile::intra_node);
  if (request.cluster.nodes() > 1) faster("links between nodes twice as fast", &HardwareProfile::inter_node);
  return changes;
}

// Where there is one stage only, there is nothing to compare.
std::vector<ComparedPartition> ComparedPartitions(const PlanRequest& pinned, const TellPart& tell) {
  std::vector<ComparedPartition> rows;
  if (pinned.spec.parallel.pp == 1) return rows;
  for (int method = 0; method < kPartitionMethodCount; ++method) {
    PlanRequest with = pinned;
    with.spec.parallel.partition = static_cast<PartitionMethod>(method);
    ComparedPartition row{.method = with.spec.parallel.partition};
    Tell(tell, absl::StrCat("partition ", PartitionMethodName(row.method)));
    absl::StatusOr<Plan> plan = PlanOrReason(with);
    if (plan.ok()) {
      row.plan = *std::move(plan);
    } else {
      row.reason = std::string(plan.status().message());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

absl::StatusOr<PolicyComparison> ComparePolicies(const PlanRequest& request, const TellPart& tell) {
  PolicyComparison comparison;
  Tell(tell, "the plan");
  LYNX_ASSIGN_OR_RETURN(comparison.best, PlanOrReason(request));
  const PlanRequest pinned = InLayoutOf(request, comparison.best);
  PlanRequest unlimited = WithoutLimits(pinned);
  unlimited.spec.recompute = RecomputeMode::kNone;
  Tell(tell, "unlimited memory");
  if (absl::StatusOr<Plan> plan = PlanOrReason(unlimited); plan.ok()) comparison.unlimited = *std::move(plan);
  const RecomputeMode last = request.exact ? RecomputeMode::kOpt : RecomputeMode::kHeu;
  for (int mode = static_cast<int>(RecomputeMode::kNone); mode <= static_cast<int>(last); ++mode) {
    PlanRequest with = pinned;
    with.spec.recompute = static_cast<RecomputeMode>(mode);
    with.spec.recompute_options.forbidden.clear();
    Tell(tell, absl::StrCat("recompute ", RecomputeModeName(with.spec.recompute)));
    absl::StatusOr<PlanResult> made = MakePlan(with);
    ComparedPolicy row{.mode = with.spec.recompute};
    if (!made.ok()) {
      row.error = std::string(made.status().message());
      comparison.policies.push_back(std::move(row));
      continue;
    }
    PlanResult& result = *made;
    if (auto* plan = std::get_if<Plan>(&result)) {
      row.plan = std::move(*plan);
    } else {
      row.lacking = std::get<Infeasible>(std::move(result));
    }
    comparison.policies.push_back(std::move(row));
  }
  comparison.partitions = ComparedPartitions(pinned, tell);
  return comparison;
}

absl::StatusOr<Explanation> ExplainPlan(const PlanRequest& request, const TellPart& tell) {
  Explanation explanation;
  Tell(tell, "the plan");
  LYNX_ASSIGN_OR_RETURN(explanation.plan, PlanOrReason(request));
  PlanCaches caches(request);
  explanation.rejected = OtherLayouts(request, explanation.plan, caches, tell);
  explanation.sensitivities = Sensitivities(request, tell);
  return explanation;
}

}  // namespace lynx
