#include "planner/compare.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/search.h"

namespace lynx {
namespace {

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

std::vector<Alternative> OtherLayouts(const PlanRequest& request, const Plan& plan) {
  std::vector<Alternative> others;
  const auto candidates = Candidates(request.spec, request.cluster, request.target);
  if (!candidates.ok()) return others;
  std::set<std::pair<int32_t, int32_t>> seen{{plan.layout.tp, plan.layout.pp}};
  for (const Candidate& candidate : *candidates) {
    const auto [tp, pp] = std::pair(candidate.layout.tp, candidate.layout.pp);
    if (!seen.emplace(tp, pp).second) continue;
    PlanRequest other = request;
    other.spec.parallel.tp = tp;
    other.spec.parallel.pp = pp;
    others.push_back(TryChange(absl::StrCat("tp ", tp, ", pp ", pp), other));
  }
  std::stable_sort(others.begin(), others.end(), [](const Alternative& a, const Alternative& b) {
    if (a.plan.has_value() != b.plan.has_value()) return a.plan.has_value();
    return a.plan && a.plan->step < b.plan->step;
  });
  if (others.size() > kMostRejected) others.resize(kMostRejected);
  return others;
}

std::vector<Alternative> Sensitivities(const PlanRequest& request) {
  std::vector<Alternative> changes;
  PlanRequest more = request;
  Bytes& limit = more.spec.resources.activation_memory_per_rank;
  if (limit.value > 0) limit += kGiB;
  bool known = limit.value > 0;
  for (NodeGroup& group : more.cluster.groups) {
    if (group.memory_per_device.value == 0) continue;
    group.memory_per_device += kGiB;
    known = true;
  }
  if (known) changes.push_back(TryChange("1 GiB more memory per device", more));
  more = request;
  ++more.cluster.groups.back().nodes;
  more.spec.resources.max_ranks += more.cluster.groups.back().devices_per_node;
  changes.push_back(TryChange("one more node", more));
  const auto faster = [&](const char* change, LinkCost HardwareProfile::*link) {
    PlanRequest with = request;
    for (NodeGroup& group : with.cluster.groups) (group.profile.*link).bytes_per_second *= 2;
    changes.push_back(TryChange(change, with));
  };
  faster("links inside nodes twice as fast", &HardwareProfile::intra_node);
  if (request.cluster.nodes() > 1) faster("links between nodes twice as fast", &HardwareProfile::inter_node);
  return changes;
}

// Where there is one stage only, there is nothing to compare.
std::vector<ComparedPartition> ComparedPartitions(const PlanRequest& pinned) {
  std::vector<ComparedPartition> rows;
  if (pinned.spec.parallel.pp == 1) return rows;
  for (int method = 0; method < kPartitionMethodCount; ++method) {
    PlanRequest with = pinned;
    with.spec.parallel.partition = static_cast<PartitionMethod>(method);
    ComparedPartition row{.method = with.spec.parallel.partition};
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

absl::StatusOr<PolicyComparison> ComparePolicies(const PlanRequest& request) {
  PolicyComparison comparison;
  LYNX_ASSIGN_OR_RETURN(comparison.best, PlanOrReason(request));
  const PlanRequest pinned = InLayoutOf(request, comparison.best);
  PlanRequest unlimited = WithoutLimits(pinned);
  unlimited.spec.recompute = RecomputeMode::kNone;
  if (absl::StatusOr<Plan> plan = PlanOrReason(unlimited); plan.ok()) comparison.unlimited = *std::move(plan);
  const RecomputeMode last = request.exact ? RecomputeMode::kOpt : RecomputeMode::kHeu;
  for (int mode = static_cast<int>(RecomputeMode::kNone); mode <= static_cast<int>(last); ++mode) {
    PlanRequest with = pinned;
    with.spec.recompute = static_cast<RecomputeMode>(mode);
    with.spec.recompute_options.forbidden.clear();
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
  comparison.partitions = ComparedPartitions(pinned);
  return comparison;
}

absl::StatusOr<Explanation> ExplainPlan(const PlanRequest& request) {
  Explanation explanation;
  LYNX_ASSIGN_OR_RETURN(explanation.plan, PlanOrReason(request));
  explanation.rejected = OtherLayouts(request, explanation.plan);
  explanation.sensitivities = Sensitivities(request);
  return explanation;
}

}  // namespace lynx
