#include "planner/search/compare.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/candidates/candidate_bound.h"
#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/candidates/supported.h"
#include "planner/search/infeasible.h"
#include "planner/search/make_plan.h"
#include "planner/search/plan_among.h"

namespace lynx {
namespace {

void Tell(const CompareOptions& options, const std::string& part) {
  if (options.tell) options.tell(part);
}

void RunAll(const PlanRequest& request, const CompareOptions& options, const std::vector<std::function<void()>>& tasks) {
  if (options.run && !request.exact) return options.run(tasks);
  for (const std::function<void()>& task : tasks) task();
}

absl::StatusOr<Plan> PlanOrReason(absl::StatusOr<PlanResult> made) {
  LYNX_ASSIGN_OR_RETURN(PlanResult result, std::move(made));
  if (auto* plan = std::get_if<Plan>(&result)) return std::move(*plan);
  const Infeasible& lacking = std::get<Infeasible>(result);
  std::string text = lacking.reason;
  if (!lacking.suggestion.empty()) absl::StrAppend(&text, "; the smallest change that fits: ", lacking.suggestion);
  return absl::FailedPreconditionError(text);
}

// Returns the request with layout, micro-batch and number of ranks fixed to the plan's values.
PlanRequest InLayoutOf(PlanRequest request, const Plan& plan) {
  request.spec.parallel = SpecOf(plan.layout, request.spec.parallel);
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
  absl::StatusOr<Plan> plan = PlanOrReason(MakePlanWithoutAdvice(request));
  if (plan.ok()) {
    alternative.plan = *std::move(plan);
  } else {
    alternative.reason = std::string(plan.status().message());
  }
  return alternative;
}

// Plans every value of parallel.weave in the layout of `plan`: one task for each row. `plan` itself is a plan of its own value,
// so it is the row if the other plan is slower. Passes one after another ("off") are then not planned again: this rarely gives
// a faster plan. `plan` and `pinned`, which is InLayoutOf the plan, must outlive the tasks.
void AddWeaves(const PlanRequest& pinned, const Plan& plan, const CompareOptions& options, std::vector<Alternative>& rows,
               std::vector<std::function<void()>>& tasks) {
  if (pinned.spec.parallel.tp * pinned.spec.parallel.ep == 1 || pinned.target != PlanTarget::kLynxEngine) return;
  std::vector<WeaveMode> modes;
  for (size_t i = 0; i < kEnumNames<WeaveMode>.size(); ++i) {
    if (static_cast<WeaveMode>(i) != WeaveMode::kAuto) modes.push_back(static_cast<WeaveMode>(i));
  }
  rows.resize(modes.size());
  for (size_t i = 0; i < modes.size(); ++i) {
    const bool own = modes[i] == plan.layout.weave;
    if (own && modes[i] == WeaveMode::kOff) {
      rows[i] = {.change = EnumName(modes[i]), .plan = plan, .reason = {}};
      continue;
    }
    tasks.push_back([&pinned, &plan, &options, &row = rows[i], mode = modes[i], own] {
      Tell(options, absl::StrCat("weave ", EnumName(mode)));
      PlanRequest with = pinned;
      with.spec.parallel.weave = mode;
      row = TryChange(EnumName(mode), with);
      if (own && (!row.plan || plan.step < row.plan->step)) row = {.change = EnumName(mode), .plan = plan, .reason = {}};
    });
  }
}

// All candidates that have the same tensor- and pipeline-parallel sizes.
struct Family {
  size_t place = 0;  // index of its first candidate in the search space
  std::vector<Candidate> candidates;
  std::vector<Candidate> woven;  // woven variants of `candidates` (pairs and quads); empty if the planner may not weave
  Nanos bound{std::numeric_limits<int64_t>::max()};  // lower bound for the step of all plans of the family

  std::string name() const { return absl::StrCat("tp ", candidates.front().layout.tp, ", pp ", candidates.front().layout.pp); }
};

void ForEachCandidate(const Family& family, absl::FunctionRef<void(const Candidate&)> visit) {
  for (const std::vector<Candidate>* part : {&family.candidates, &family.woven}) {
    for (const Candidate& candidate : *part) visit(candidate);
  }
}

std::vector<Family> FamiliesBeside(const PlanRequest& request, const Plan& plan, PlanCaches& caches) {
  std::map<std::pair<int32_t, int32_t>, size_t> places;
  std::vector<Family> families;
  for (const Candidate& candidate : SearchSpace(request.spec, request.cluster, request.target, request.even_batches)) {
    const std::pair sizes(candidate.layout.tp, candidate.layout.pp);
    if (sizes == std::pair(plan.layout.tp, plan.layout.pp)) continue;
    const auto [it, first] = places.emplace(sizes, families.size());
    if (first) families.push_back({.place = families.size(), .candidates = {}});
    Family& family = families[it->second];
    family.candidates.push_back(candidate);
  }
  for (Family& family : families) {
    if (MayChooseWeave(request)) {
      for (const WeaveMode weave : kGroupedWeaves) {
        const std::vector<Candidate> woven = WovenCandidates(family.candidates, weave);
        family.woven.insert(family.woven.end(), woven.begin(), woven.end());
      }
    }
    ForEachCandidate(family, [&](const Candidate& candidate) {
      family.bound = std::min(family.bound, CandidateBound(request, candidate, caches).Quick());
    });
  }
  return families;
}

// A time that is longer than the step of any job.
constexpr Nanos kAnyStep{int64_t{1} << 50};

// The fastest families found so far, at most kMaxRejected.
class Rejected {
 public:
  bool full() const { return shown_.size() == kMaxRejected; }
  // The longest step among the families that are shown; kAnyStep if there is room for another family.
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
  std::vector<std::pair<size_t, Alternative>> shown_;  // the fastest family comes first
};

// True if the bounds do not exclude that some candidate has a step of at most `step`.
bool MayTake(const PlanRequest& request, const Family& family, Nanos step, PlanCaches& caches) {
  const auto may_take = [&](const Candidate& candidate) { return CandidateBound(request, candidate, caches).MayTake(step); };
  return std::any_of(family.candidates.begin(), family.candidates.end(), may_take) ||
         std::any_of(family.woven.begin(), family.woven.end(), may_take);
}

// The families, grouped by the result of FastestFamilies.
struct Sorted {
  Rejected fastest;
  std::vector<const Family*> bounded;       // by their bounds, these may be among the fastest, but they were not planned
  std::vector<const Family*> without_plan;  // families that seem not to fit, or cannot be planned
};

int64_t ActionsOf(const Plan& plan) {
  int64_t actions = 0;
  for (const StagePlan& stage : plan.stages) actions += static_cast<int64_t>(stage.program.size());
  return actions;
}

// Plans the families in the order of their bounds, until no remaining family can be among those that are shown, or until the
// limits in the options are reached.
Sorted FastestFamilies(const PlanRequest& request, const std::vector<Family>& families, PlanCaches& caches,
                       const CompareOptions& options) {
  Sorted sorted;
  int64_t actions = 0, stages_left = options.rejected_stages;
  for (const Family& family : families) {
    if (family.bound > sorted.fastest.slowest()) break;
    std::vector<Candidate> candidates = family.candidates;
    EraseUnsupported(request.spec.model, candidates);
    const bool may_fit = MayTake(request, family, sorted.fastest.slowest(), caches);
    if (may_fit && (actions >= options.rejected_actions || stages_left <= 0)) {
      sorted.bounded.push_back(&family);
      continue;
    }
    if (may_fit) {
      Tell(options, absl::StrCat("layouts with ", family.name()));
      absl::StatusOr<std::optional<Plan>> made = PlanAmong(request, std::move(candidates), caches,
                                                           {.to_beat = sorted.fastest.slowest() + Nanos(1),
                                                            .effort = SearchEffort::kGlance,
                                                            .solved_stages_left = &stages_left});
      if (made.ok() && *made) {
        actions += ActionsOf(**made);
        sorted.fastest.Add(family, **std::move(made));
        continue;
      }
      if (made.ok() && stages_left <= 0) {
        sorted.bounded.push_back(&family);
        continue;
      }
    }
    sorted.without_plan.push_back(&family);
  }
  std::sort(sorted.without_plan.begin(), sorted.without_plan.end(),
            [](const Family* a, const Family* b) { return a->place < b->place; });
  return sorted;
}

// Returns a lower bound for the steps of all plans of the family.
Nanos BoundOf(const PlanRequest& request, const Family& family, PlanCaches& caches) {
  Nanos bound = kAnyStep;
  ForEachCandidate(family, [&](const Candidate& candidate) {
    bound = std::min(bound, CandidateBound(request, candidate, caches).Bound().value_or(kAnyStep));
  });
  return std::max(bound, family.bound);
}

Alternative NotPlanned(const Family& family, Nanos bound) {
  return {.change = family.name(),
          .plan = {},
          .reason = absl::StrCat("not planned: every plan takes at least about ", FormatDuration(bound),
                                 "; pin parallel.tp and parallel.pp to see the fastest"),
          .bound = bound};
}

// Plans a family that seems not to fit. If it has a plan after all, the row has this plan; otherwise the row says how much
// memory lacks. The row suggests no change to the job, because the job has a plan in any case.
Alternative WhatLacks(const PlanRequest& request, const Family& family) {
  Alternative row{.change = family.name(), .plan = {}, .reason = {}};
  std::vector<Candidate> candidates = family.candidates;
  EraseUnsupported(request.spec.model, candidates);
  if (candidates.empty()) {
    PlanRequest pinned = request;
    pinned.spec.parallel.tp = family.candidates.front().layout.tp;
    pinned.spec.parallel.pp = family.candidates.front().layout.pp;
    return TryChange(family.name(), pinned);
  }
  PlanCaches caches(request);
  std::optional<Infeasible> lacking_host;
  absl::StatusOr<std::optional<Plan>> made =
      PlanAmong(request, candidates, caches, {.effort = SearchEffort::kGlance, .lacking_host = &lacking_host});
  if (!made.ok()) {
    row.reason = std::string(made.status().message());
  } else if (*made) {
    row.plan = **std::move(made);
  } else if (lacking_host) {
    row.reason = lacking_host->reason;
  } else {
    row.reason = ExplainInfeasible(request, candidates, caches, Suggesting::kNothing).reason;
  }
  return row;
}

Sorted OtherLayouts(const PlanRequest& request, const Plan& plan, const CompareOptions& options,
                    std::vector<Family>& families) {
  PlanCaches caches(request);
  families = FamiliesBeside(request, plan, caches);
  std::sort(families.begin(), families.end(),
            [](const Family& a, const Family& b) { return std::tie(a.bound, a.place) < std::tie(b.bound, b.place); });
  return FastestFamilies(request, families, caches, options);
}

// Makes the rows: first the fastest families, then those that have only a bound, then those that seem not to fit. Families that
// seem not to fit are planned only while there are fewer than kMaxRejected rows.
std::vector<Alternative> RejectedRows(const PlanRequest& request, Sorted sorted, const CompareOptions& options) {
  std::vector<Alternative> rows = sorted.fastest.Take();
  const auto room = [&] { return kMaxRejected - rows.size(); };
  PlanCaches caches(request);
  std::vector<std::pair<Nanos, const Family*>> bounded;
  for (const Family* family : sorted.bounded) bounded.emplace_back(BoundOf(request, *family, caches), family);
  std::stable_sort(bounded.begin(), bounded.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [bound, family] : bounded) {
    if (room() > 0) rows.push_back(NotPlanned(*family, bound));
  }
  if (sorted.without_plan.size() > room()) sorted.without_plan.resize(room());
  std::vector<Alternative> lacking(sorted.without_plan.size());
  std::vector<std::function<void()>> tasks;
  for (size_t i = 0; i < lacking.size(); ++i) {
    tasks.push_back([&, i] {
      Tell(options, absl::StrCat("what lacks with ", sorted.without_plan[i]->name()));
      lacking[i] = WhatLacks(request, *sorted.without_plan[i]);
    });
  }
  RunAll(request, options, tasks);
  for (Alternative& row : lacking) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const Alternative& a, const Alternative& b) {
    if (a.plan.has_value() != b.plan.has_value()) return a.plan.has_value();
    return a.plan && a.plan->step < b.plan->step;
  });
  return rows;
}

// A changed request. keeps_plan: the original request's plan also fits this request and takes the same time.
struct Change {
  std::string text;
  PlanRequest request;
  bool keeps_plan = false;
};

std::vector<Change> ChangesOf(const PlanRequest& request) {
  std::vector<Change> changes;
  PlanRequest more = request;
  Bytes& limit = more.spec.resources.activation_memory_per_rank;
  if (limit.value > 0) limit += kGiB;
  bool known = limit.value > 0;
  for (NodeGroup& group : more.cluster.groups) {
    if (group.memory_per_device.value == 0) continue;
    group.memory_per_device += kGiB;
    known = true;
  }
  if (known) changes.push_back({"1 GiB more memory per device", more, true});
  more = request;
  ++more.cluster.groups.back().nodes;
  more.spec.resources.max_ranks += more.cluster.groups.back().devices_per_node;
  changes.push_back({"one more node", more, true});
  const auto faster = [&](const char* change, LinkCost HardwareProfile::*link) {
    PlanRequest with = request;
    for (NodeGroup& group : with.cluster.groups) (group.profile.*link).bytes_per_second *= 2;
    changes.push_back({change, std::move(with)});
  };
  faster("links inside nodes twice as fast", &HardwareProfile::intra_node);
  if (request.cluster.nodes() > 1) faster("links between nodes twice as fast", &HardwareProfile::inter_node);
  return changes;
}

// Plans the changed request. `plan` is the plan of the original request.
Alternative TryChange(const Change& change, const Plan& plan) {
  Alternative with = TryChange(change.text, change.request);
  if (change.keeps_plan && (!with.plan || plan.step < with.plan->step)) with = {change.text, plan, ""};
  return with;
}

ComparedPartition PlanPartition(const PlanRequest& pinned, PartitionMethod method) {
  PlanRequest with = pinned;
  with.spec.parallel.partition = method;
  with.spec.parallel.stage_layers.clear();
  ComparedPartition row{.method = method};
  absl::StatusOr<Plan> plan = PlanOrReason(MakePlanWithoutAdvice(with));
  if (plan.ok()) {
    row.plan = *std::move(plan);
  } else {
    row.reason = std::string(plan.status().message());
  }
  return row;
}

ComparedPolicy PlanPolicy(const PlanRequest& pinned, RecomputeMode mode) {
  PlanRequest with = pinned;
  with.spec.recompute = mode;
  with.spec.recompute_options.forbidden.clear();
  ComparedPolicy row{.mode = mode};
  absl::StatusOr<PlanResult> made = MakePlanWithoutAdvice(with);
  if (!made.ok()) {
    row.error = std::string(made.status().message());
  } else if (auto* plan = std::get_if<Plan>(&*made)) {
    row.plan = std::move(*plan);
  } else {
    row.lacking = std::get<Infeasible>(*std::move(made));
  }
  return row;
}

// Lower bound for all plans of the request's space. Most candidates are left out by their quick bounds.
Nanos BoundOfSpace(const PlanRequest& request) {
  PlanCaches caches(request);
  std::vector<Candidate> candidates = SearchSpace(request.spec, request.cluster, request.target, request.even_batches);
  if (request.spec.parallel.weave == WeaveMode::kAuto) {
    const std::vector<Candidate> plain =
        SearchSpace(request.spec, request.cluster, PlanTarget::kLynxEngine, request.even_batches);
    for (const WeaveMode weave : {WeaveMode::kPairs, WeaveMode::kQuads, WeaveMode::kNeighbours}) {
      const std::vector<Candidate> woven = WovenCandidates(plain, weave);
      candidates.insert(candidates.end(), woven.begin(), woven.end());
    }
  }
  EraseUnsupported(request.spec.model, candidates);
  std::vector<std::pair<Nanos, size_t>> quick;
  for (size_t i = 0; i < candidates.size(); ++i) {
    quick.emplace_back(CandidateBound(request, candidates[i], caches).Quick(), i);
  }
  std::sort(quick.begin(), quick.end());
  Nanos least = kAnyStep;
  for (const auto& [bound, i] : quick) {
    if (bound >= least) break;
    const CandidateBound of(request, candidates[i], caches);
    if (of.MayTake(least)) least = std::min(least, of.Bound().value_or(least));
  }
  return least;
}

// One task for the bound, and one for each sensitivity. `explanation` has the plan; it must outlive the tasks, as the request
// and the options must.
void AddLimits(const PlanRequest& request, const CompareOptions& options, Explanation& explanation,
               std::vector<std::function<void()>>& tasks) {
  tasks.push_back([&] {
    Tell(options, "the bound of all layouts");
    explanation.bound = std::min(BoundOfSpace(request), explanation.plan.step);
  });
  std::vector<Change> changes = ChangesOf(request);
  explanation.sensitivities.resize(changes.size());
  for (size_t i = 0; i < changes.size(); ++i) {
    tasks.push_back([&, i, change = std::move(changes[i])] {
      Tell(options, change.text);
      explanation.sensitivities[i] = TryChange(change, explanation.plan);
    });
  }
}

}  // namespace

absl::StatusOr<PolicyComparison> ComparePolicies(const PlanRequest& request, const CompareOptions& options) {
  PolicyComparison comparison;
  Tell(options, "the plan");
  LYNX_ASSIGN_OR_RETURN(comparison.best, PlanOrReason(MakePlan(request)));
  const PlanRequest pinned = InLayoutOf(request, comparison.best);
  std::vector<std::function<void()>> tasks;
  tasks.push_back([&] {
    Tell(options, "unlimited memory");
    PlanRequest unlimited = WithoutLimits(pinned);
    unlimited.spec.recompute = RecomputeMode::kNone;
    if (absl::StatusOr<Plan> plan = PlanOrReason(MakePlanWithoutAdvice(unlimited)); plan.ok())
      comparison.unlimited = *std::move(plan);
  });
  const int last = static_cast<int>(request.exact ? RecomputeMode::kOpt : RecomputeMode::kHeu);
  const int first = static_cast<int>(RecomputeMode::kNone);
  comparison.policies.resize(static_cast<size_t>(last - first + 1));
  for (int mode = first; mode <= last; ++mode) {
    tasks.push_back([&, mode] {
      Tell(options, absl::StrCat("recompute ", EnumName(static_cast<RecomputeMode>(mode))));
      comparison.policies[static_cast<size_t>(mode - first)] = PlanPolicy(pinned, static_cast<RecomputeMode>(mode));
    });
  }
  // With only one stage there is nothing to compare.
  if (pinned.spec.parallel.pp > 1) comparison.partitions.resize(kPartitionMethodCount);
  for (size_t i = 0; i < comparison.partitions.size(); ++i) {
    tasks.push_back([&, i] {
      const auto method = static_cast<PartitionMethod>(i);
      Tell(options, absl::StrCat("partition ", EnumName(method)));
      comparison.partitions[i] = PlanPartition(pinned, method);
    });
  }
  AddWeaves(pinned, comparison.best, options, comparison.weaves, tasks);
  RunAll(request, options, tasks);
  return comparison;
}

absl::StatusOr<Explanation> ExplainPlan(const PlanRequest& request, const CompareOptions& options) {
  Explanation explanation;
  Tell(options, "the plan");
  LYNX_ASSIGN_OR_RETURN(explanation.plan, PlanOrReason(MakePlan(request)));
  std::vector<Family> families;
  Sorted sorted;
  std::vector<std::function<void()>> tasks;
  AddLimits(request, options, explanation, tasks);
  tasks.push_back([&] { sorted = OtherLayouts(request, explanation.plan, options, families); });
  const PlanRequest pinned = InLayoutOf(request, explanation.plan);
  AddWeaves(pinned, explanation.plan, options, explanation.weaves, tasks);
  RunAll(request, options, tasks);
  explanation.rejected = RejectedRows(request, std::move(sorted), options);
  return explanation;
}

Explanation ExplainLimits(const PlanRequest& request, Plan plan, const CompareOptions& options) {
  Explanation explanation{.plan = std::move(plan)};
  std::vector<std::function<void()>> tasks;
  AddLimits(request, options, explanation, tasks);
  RunAll(request, options, tasks);
  return explanation;
}

}  // namespace lynx
