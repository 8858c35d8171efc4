// compare, explain and whatif show plans beside each other. See commands.h.
#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/output/exit_code.h"
#include "cli/output/plan_rows.h"
#include "cli/output/waiting_line.h"
#include "cli/verbs/commands.h"
#include "cli/verbs/plan_request.h"
#include "common/cores.h"
#include "common/status.h"
#include "planner/report/skew_cost.h"
#include "planner/search/compare.h"
#include "planner/search/make_plan.h"

namespace lynx::cli {
namespace {

// Reports the error. If the error says that no plan fits, this is an answer to the question, so it has an exit code of its own.
int FailPlanning(const absl::Status& status) {
  const int code = Fail(status);
  return absl::IsFailedPrecondition(status) ? kExitJobFailed : code;
}

// Prints `tables`, or the rows in the format that -o asks for.
int ShowPlans(const GlobalOptions& global, const std::vector<PlanRow>& rows, const std::string& tables) {
  if (global.output != OutputFormat::kTable && global.output != OutputFormat::kWide) {
    return ShowListing(global.output, PlanRowsJson(rows), PlanRowsListing(rows));
  }
  std::fputs(tables.c_str(), stdout);
  return kExitOk;
}

absl::Status CheckPlansOutput(const GlobalOptions& global) {
  using enum OutputFormat;
  return CheckOutput(global.output, {kTable, kWide, kJson, kYaml, kCsv});
}

const Plan* PlanOf(const std::optional<Plan>& plan) { return plan ? &*plan : nullptr; }

// "optimal on 3 of 4 stages, gap at most 2.1%"; "" if there was nothing to prove.
std::string ProofText(const Plan& plan) {
  int proofs = 0, optimal = 0;
  double gap = 0;
  for (const StagePlan& stage : plan.stages) {
    if (!stage.proof) continue;
    ++proofs;
    if (stage.proof->status == ProofStatus::kOptimal) {
      ++optimal;
      continue;
    }
    gap = std::max(gap, 1 - static_cast<double>(stage.proof->bound.value) / static_cast<double>(stage.proof->exposed.value));
  }
  if (proofs == 0) return "";
  if (optimal == proofs) return "optimal on every stage";
  return absl::StrFormat("optimal on %d of %d stages, gap at most %.1f%%", optimal, proofs, 100 * gap);
}

std::vector<PlanRow> PolicyRows(const PlanRequest& request, const PolicyComparison& comparison) {
  const Plan* const unlimited = PlanOf(comparison.unlimited);
  std::vector<PlanRow> rows;
  if (unlimited != nullptr)
    rows.push_back({"policy", "unlimited memory", &request, unlimited, unlimited, "everything stored, as if it fitted"});
  for (const ComparedPolicy& policy : comparison.policies) {
    PlanRow& row =
        rows.emplace_back(PlanRow{"policy", EnumName(policy.mode), &request, PlanOf(policy.plan), unlimited, policy.error});
    if (policy.plan) {
      row.note = ProofText(*policy.plan);
    } else if (policy.lacking) {
      row.note = absl::StrCat("does not fit: stage ", policy.lacking->stage, " lacks ",
                              FormatBytes(policy.lacking->needed - policy.lacking->limit));
    }
  }
  rows.push_back({"policy", absl::StrCat("chosen (", EnumName(request.spec.recompute), ")"), &request, &comparison.best,
                  unlimited, ProofText(comparison.best)});
  return rows;
}

std::vector<PlanRow> PartitionRows(const PlanRequest& request, const PolicyComparison& comparison) {
  std::vector<PlanRow> rows;
  for (const ComparedPartition& partition : comparison.partitions) {
    rows.push_back({"partition", EnumName(partition.method), &request, PlanOf(partition.plan),
                    PlanOf(comparison.partitions.front().plan), partition.reason});
  }
  return rows;
}

// The first alternative, "off", is the base. No rows if there are no alternatives.
std::vector<PlanRow> WeaveRows(const PlanRequest& request, const std::vector<Alternative>& weaves) {
  std::vector<PlanRow> rows;
  for (const Alternative& weave : weaves) {
    rows.push_back({"weave", weave.change, &request, PlanOf(weave.plan), PlanOf(weaves.front().plan), weave.reason});
  }
  return rows;
}

std::string WeaveTable(const std::vector<PlanRow>& rows) {
  return PlanRowsTable(rows, {"WEAVE", "OF OFF", ""}, LastCell::kNote);
}

std::vector<PlanRow> AlternativeRows(const char* kind, const PlanRequest& request, const Explanation& explanation,
                                     const std::vector<Alternative>& alternatives) {
  std::vector<PlanRow> rows = {{"chosen", "chosen", &request, &explanation.plan, &explanation.plan, ""}};
  for (const Alternative& other : alternatives)
    rows.push_back({kind, other.change, &request, PlanOf(other.plan), &explanation.plan, other.reason});
  return rows;
}

// Says how far the plan can be from the best plan of its space.
std::string BoundText(const Explanation& explanation) {
  const int64_t permille =
      (explanation.plan.step - explanation.bound).value * 1000 / std::max<int64_t>(1, explanation.bound.value);
  return absl::StrCat("No plan of this space takes less than ", FormatDuration(explanation.bound),
                      " (a bound): this plan takes at most ", permille / 10, ".", permille % 10, "% more than the best.\n");
}

// The skews at which explain shows the plan: even, as planned, and one and a half times and twice the even share.
std::vector<double> ShownSkews(const MoeSpec& moe) {
  std::vector<double> skews = {1, 1.5, 2, moe.skew};
  std::erase_if(skews, [&](double skew) { return skew > moe.experts; });
  std::sort(skews.begin(), skews.end());
  skews.erase(std::unique(skews.begin(), skews.end()), skews.end());
  return skews;
}

// `plans`: the result of PlanAtSkews. The first plan, of an even load, is the base.
std::vector<PlanRow> SkewRows(const PlanRequest& request, const std::vector<Plan>& plans) {
  std::vector<PlanRow> rows;
  for (const Plan& plan : plans) {
    const double skew = plan.model.moe.skew;
    rows.push_back({"skew", absl::StrFormat("%.4g", skew), &request, &plan, &plans.front(),
                    skew == request.spec.model.moe.skew ? "as planned" : ""});
    // Without a capacity, tensors grow with the skew, and the plan's arena is only that of the planned one.
    rows.back().peak_known = plan.model.moe.capacity > 0 || skew == request.spec.model.moe.skew;
  }
  return rows;
}

// Reads a number, or "+N" for N more than `base`.
absl::StatusOr<int32_t> CountOf(const std::string& option, const std::string& text, int32_t base) {
  const bool more = !text.empty() && text[0] == '+';
  int32_t count = 0;
  if (!absl::SimpleAtoi(more ? text.substr(1) : text, &count) || count < 1 || count > (1 << 20) - base) {
    return absl::InvalidArgumentError(absl::StrCat(option, " ", text, ": expected a number of nodes, or +N more"));
  }
  return more ? base + count : count;
}

absl::StatusOr<PlanRequest> ChangedRequest(const WhatIfOptions& options, const PlanRequest& base) {
  PlanOptions changed = options.base;
  changed.overrides.insert(changed.overrides.end(), options.changes.begin(), options.changes.end());
  if (!options.cluster.empty()) changed.cluster = options.cluster;
  LYNX_ASSIGN_OR_RETURN(PlanRequest request, ReadPlanRequest(changed));
  if (!options.nodes.empty()) {
    NodeGroup& last = request.cluster.groups.back();
    LYNX_ASSIGN_OR_RETURN(last.nodes, CountOf("--with-nodes", options.nodes, last.nodes));
  }
  // More devices help only if the job may use them. The limit of the job is max_ranks. If the job may use every device of the
  // base cluster, and the changes leave this limit as it was, the job may use every device of the changed cluster too.
  const bool all = base.spec.resources.max_ranks == base.cluster.devices();
  if (all && request.spec.resources.max_ranks == base.spec.resources.max_ranks) {
    request.spec.resources.max_ranks = request.cluster.devices();
  }
  return request;
}

}  // namespace

int Compare(const GlobalOptions& global, const PlanOptions& options) {
  if (const absl::Status known = CheckPlansOutput(global); !known.ok()) return Fail(known);
  absl::StatusOr<PlanRequest> request = ReadPlanRequest(options);
  if (!request.ok()) return Fail(request.status());
  const absl::StatusOr<PolicyComparison> comparison = WithWaitingLine("comparing", [&](const TellPart& tell) {
    ArrangeNodes(options, *request);
    return ComparePolicies(*request, {tell, RunOnAllCores});
  });
  if (!comparison.ok()) return FailPlanning(comparison.status());
  std::vector<PlanRow> rows = PolicyRows(*request, *comparison);
  const std::vector<PlanRow> partitions = PartitionRows(*request, *comparison);
  std::string text = absl::StrCat(LayoutText(comparison->best.layout), ", micro-batch ", comparison->best.micro_batch,
                                  ": predicted, every policy in this layout\n\n",
                                  PlanRowsTable(rows, {"POLICY", "OF UNLIMITED", ""}, LastCell::kNote));
  if (!partitions.empty()) {
    absl::StrAppend(&text, "\nrecompute ", EnumName(request->spec.recompute), ", layers spread by\n",
                    PlanRowsTable(partitions, {"PARTITION", "OF EXACT", "LAYERS"}, LastCell::kLayers));
  }
  const std::vector<PlanRow> weaves = WeaveRows(*request, comparison->weaves);
  if (!weaves.empty()) {
    absl::StrAppend(&text, "\nrecompute ", EnumName(request->spec.recompute), ", passes of microbatches side by side\n",
                    WeaveTable(weaves));
  }
  rows.insert(rows.end(), partitions.begin(), partitions.end());
  rows.insert(rows.end(), weaves.begin(), weaves.end());
  return ShowPlans(global, rows, text);
}

int Explain(const GlobalOptions& global, const PlanOptions& options) {
  if (const absl::Status known = CheckPlansOutput(global); !known.ok()) return Fail(known);
  absl::StatusOr<PlanRequest> request = ReadPlanRequest(options);
  if (!request.ok()) return Fail(request.status());
  const absl::StatusOr<Explanation> explanation = WithWaitingLine("explaining", [&](const TellPart& tell) {
    ArrangeNodes(options, *request);
    return ExplainPlan(*request, {tell, RunOnAllCores});
  });
  if (!explanation.ok()) return FailPlanning(explanation.status());
  const absl::StatusOr<std::vector<Plan>> at_skews =
      PlanAtSkews(request->cluster, explanation->plan, ShownSkews(request->spec.model.moe));
  if (!at_skews.ok()) return FailPlanning(at_skews.status());
  const PlanTitles titles = {"", "THROUGHPUT", "LAYOUT"};
  std::vector<PlanRow> rows = AlternativeRows("layout", *request, *explanation, explanation->rejected);
  const std::vector<PlanRow> more = AlternativeRows("more", *request, *explanation, explanation->sensitivities);
  std::string text = explanation->rejected.empty() ? "NO OTHER LAYOUT: parallel and resources of the job leave no other "
                                                     "tensor- and pipeline-parallel sizes on these devices\n"
                                                   : absl::StrCat("REJECTED LAYOUTS, the fastest plan of each\n",
                                                                  PlanRowsTable(rows, titles, LastCell::kLayout));
  const std::vector<PlanRow> weaves = WeaveRows(*request, explanation->weaves);
  if (!weaves.empty()) {
    absl::StrAppend(&text, "\nPASSES SIDE BY SIDE (parallel.weave) in the chosen layout\n", WeaveTable(weaves));
  }
  const std::vector<PlanRow> skews = SkewRows(*request, *at_skews);
  if (!skews.empty()) {
    absl::StrAppend(&text, "\nWHAT AN UNEVEN LOAD OF EXPERTS COSTS (model.moe.skew), with the chosen plan\n",
                    PlanRowsTable(skews, {"SKEW", "OF EVEN", ""}, LastCell::kNote));
  }
  absl::StrAppend(&text, "\n", BoundText(*explanation));
  absl::StrAppend(&text, "\nWHAT MORE WOULD BRING\n", PlanRowsTable(more, titles, LastCell::kLayout));
  rows.insert(rows.end(), weaves.begin(), weaves.end());
  rows.insert(rows.end(), skews.begin(), skews.end());
  rows.insert(rows.end(), more.begin() + 1, more.end());  // the chosen plan is already in the list
  return ShowPlans(global, rows, text);
}

int WhatIf(const GlobalOptions& global, const WhatIfOptions& options) {
  if (const absl::Status known = CheckPlansOutput(global); !known.ok()) return Fail(known);
  absl::StatusOr<PlanRequest> base = ReadPlanRequest(options.base);
  if (!base.ok()) return Fail(base.status());
  absl::StatusOr<PlanRequest> changed = ChangedRequest(options, *base);
  if (!changed.ok()) return Fail(changed.status());
  std::vector<PlanRow> rows = {{.kind = "plan", .name = "now", .request = &*base},
                               {.kind = "plan", .name = "what if", .request = &*changed}};
  std::array<absl::StatusOr<PlanResult>, 2> results;
  const Plan* first = nullptr;
  for (size_t i = 0; i < rows.size(); ++i) {
    results[i] = WithWaitingLine("planning", [&](const TellPart& tell) {
      tell(rows[i].name);
      ArrangeNodes(options.base, i == 0 ? *base : *changed);
      return MakePlan(*rows[i].request);
    });
    if (!results[i].ok()) return Fail(Annotate(results[i].status(), rows[i].name));
    if (const auto* lacking = std::get_if<Infeasible>(&*results[i])) {
      rows[i].note = absl::StrCat("does not fit: ", lacking->reason, "; the smallest change that fits: ", lacking->suggestion);
      continue;
    }
    rows[i].plan = &std::get<Plan>(*results[i]);
    if (first == nullptr) first = rows[i].plan;
    rows[i].base = first;
  }
  const int code = ShowPlans(global, rows, PlanRowsTable(rows, {"", "THROUGHPUT", "LAYOUT"}, LastCell::kLayout));
  return code == kExitOk && rows[1].plan == nullptr ? kExitJobFailed : code;
}

}  // namespace lynx::cli
