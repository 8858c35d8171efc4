// compare, explain and whatif show plans beside each other. See commands.h.
#include <array>
#include <cstdio>

#include "cli/output/exit_code.h"
#include "cli/output/plan_answers.h"
#include "cli/output/plan_rows.h"
#include "cli/output/waiting_line.h"
#include "cli/spec/what_if.h"
#include "cli/verbs/commands.h"
#include "cli/verbs/plan_request.h"
#include "common/cores.h"
#include "common/status.h"
#include "planner/report/timeline.h"
#include "planner/search/compare.h"
#include "planner/search/make_plan.h"

namespace lynx::cli {
namespace {

// Reports the error. If the error says that no plan fits, this is an answer to the question, so it has an exit code of its own.
int FailPlanning(const absl::Status& status) {
  const int code = Fail(status);
  return absl::IsFailedPrecondition(status) ? kExitJobFailed : code;
}

// Prints the tables, or the rows in the format that -o asks for.
int ShowPlans(const GlobalOptions& global, const PlansAnswer& answer) {
  if (global.output != OutputFormat::kTable && global.output != OutputFormat::kWide) {
    return ShowListing(global.output, PlanRowsJson(answer.rows), PlanRowsListing(answer.rows));
  }
  std::fputs(answer.tables.c_str(), stdout);
  return kExitOk;
}

absl::Status CheckPlansOutput(const GlobalOptions& global) {
  using enum OutputFormat;
  return CheckOutput(global.output, {kTable, kWide, kJson, kYaml, kCsv});
}

absl::StatusOr<PlanRequest> ChangedRequest(const WhatIfOptions& options, const PlanRequest& base) {
  PlanOptions changed = options.base;
  changed.overrides.insert(changed.overrides.end(), options.changes.begin(), options.changes.end());
  if (!options.cluster.empty()) changed.cluster = options.cluster;
  LYNX_ASSIGN_OR_RETURN(PlanRequest request, ReadPlanRequest(changed));
  LYNX_RETURN_IF_ERROR(ChangeNodes(base, options.nodes, request));
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
  return ShowPlans(global, ComparisonAnswer(*request, *comparison));
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
  return ShowPlans(global, ExplanationAnswer(*request, *explanation, *at_skews));
}

int WhatIf(const GlobalOptions& global, const WhatIfOptions& options) {
  if (const absl::Status known = CheckPlansOutput(global); !known.ok()) return Fail(known);
  absl::StatusOr<PlanRequest> base = ReadPlanRequest(options.base);
  if (!base.ok()) return Fail(base.status());
  absl::StatusOr<PlanRequest> changed = ChangedRequest(options, *base);
  if (!changed.ok()) return Fail(changed.status());
  std::array<absl::StatusOr<PlanResult>, 2> results;
  for (size_t i = 0; i < results.size(); ++i) {
    const char* const name = kWhatIfNames[i];
    results[i] = WithWaitingLine("planning", [&](const TellPart& tell) {
      tell(name);
      PlanRequest& request = i == 0 ? *base : *changed;
      ArrangeNodes(options.base, request);
      return MakePlan(request);
    });
    if (!results[i].ok()) return Fail(Annotate(results[i].status(), name));
  }
  const PlansAnswer answer = WhatIfAnswer(*base, *results[0], *changed, *results[1]);
  const int code = ShowPlans(global, answer);
  return code == kExitOk && answer.rows[1].plan == nullptr ? kExitJobFailed : code;
}

}  // namespace lynx::cli
