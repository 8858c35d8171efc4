#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/output/exit_code.h"
#include "cli/output/output_file.h"
#include "cli/output/plan_answers.h"
#include "cli/output/waiting_line.h"
#include "cli/spec/cluster_file.h"
#include "cli/spec/job_file.h"
#include "cli/spec/job_schema.h"
#include "cli/verbs/commands.h"
#include "cli/verbs/plan_request.h"
#include "common/status.h"
#include "planner/frameworks/framework_plan.h"
#include "planner/plan/plan.h"
#include "planner/report/chrome_trace.h"
#include "planner/report/framework_table.h"
#include "planner/report/html_page.h"
#include "planner/search/faster_model.h"
#include "planner/search/make_plan.h"
#include "proto/convert.h"

namespace lynx::cli {
namespace {

int PrintActions(const Plan& plan, int32_t rank) {
  if (rank >= plan.layout.ranks()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("--actions ", rank, ": the plan has ranks 0 to ",
                                                        plan.layout.ranks() - 1, " (", LayoutText(plan.layout), ")")));
  }
  const auto& stage = plan.stages[static_cast<size_t>(CoordinatesOf(plan.layout, rank).stage)];
  std::fputs(ProgramText(stage.program).c_str(), stdout);
  return kExitOk;
}

absl::Status WriteReports(const PlanOptions& options, const PlanRequest& request, const Plan& plan) {
  if (options.html.empty() && options.trace.empty()) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(const PredictedStep step, PredictStep(request, plan));
  if (!options.html.empty()) {
    LYNX_ASSIGN_OR_RETURN(const std::string page, HtmlPage(step));
    LYNX_RETURN_IF_ERROR(WriteOutput("--html", options.html, page));
    TellWritten("page", options.html, page.size(), "open it in a browser");
  }
  if (!options.trace.empty()) {
    LYNX_ASSIGN_OR_RETURN(const ChromeTraceText trace, ChromeTrace(step));
    LYNX_RETURN_IF_ERROR(WriteTrace("--trace", options.trace, trace, plan.step));
  }
  return absl::OkStatus();
}

// Options that show a plan of our own engine, and mean nothing for another framework.
absl::Status CheckFrameworkOptions(const PlanOptions& options) {
  const char* given = options.actions_rank >= 0  ? "--actions"
                      : !options.html.empty()    ? "--html"
                      : !options.trace.empty()   ? "--trace"
                      : options.target != "lynx" ? "--for"
                                                 : nullptr;
  if (given == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(given,
                                                 " goes with plans for Lynx's own engine; leave it out, or leave out "
                                                 "--framework"));
}

int PlanFramework(const GlobalOptions& global, const PlanOptions& options, Framework framework) {
  if (const absl::Status known = CheckFrameworkOptions(options); !known.ok()) return Fail(known);
  PlanOptions any = options;
  any.target = "any";
  auto request = ReadPlanRequest(any);
  if (!request.ok()) return Fail(request.status());
  const auto plan =
      WithWaitingLine("planning", [&](const auto&) { return PlanForFramework(request->spec, request->cluster, framework); });
  if (!plan.ok()) return Fail(plan.status());
  const HardwareProfile& profile = request->cluster.groups.front().profile;
  const int code = ShowJson(global.output, FrameworkAnswerJson(*plan, profile), FrameworkPlanText(*plan, profile));
  return code == kExitOk && !plan->fits() ? kExitJobFailed : code;
}

}  // namespace

int PlanJob(const GlobalOptions& global, const PlanOptions& options) {
  using enum OutputFormat;
  Framework framework = Framework::kLynx;
  if (!ParseEnum(options.framework, framework)) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("--framework ", options.framework, ": expected one of ", absl::StrJoin(kEnumNames<Framework>, ", "))));
  }
  if (framework != Framework::kLynx) return PlanFramework(global, options, framework);
  if (options.actions_rank >= 0) {
    if (const absl::Status known = CheckOutput(global.output, {kTable, kWide}); !known.ok())
      return Fail(Annotate(known, "--actions"));
  }
  auto request = ReadPlanRequest(options);
  if (!request.ok()) return Fail(request.status());
  const bool table = global.output == kTable || global.output == kWide;
  const bool shows_programs = !table || !options.html.empty() || !options.trace.empty() || options.actions_rank >= 0;
  if (shows_programs) request->most_program_actions = 0;
  std::optional<FasterModel> faster;
  const auto result = WithWaitingLine("planning", [&](const auto&) {
    ArrangeNodes(options, *request);
    absl::StatusOr<PlanResult> made = MakePlan(*request);
    const Plan* plan = made.ok() ? std::get_if<Plan>(&*made) : nullptr;
    if (table && plan != nullptr && options.actions_rank < 0) faster = FindFasterModel(*request, *plan);
    return made;
  });
  if (!result.ok()) return Fail(result.status());
  if (const auto* infeasible = std::get_if<Infeasible>(&*result)) return PrintInfeasible(*infeasible);
  const Plan& plan = std::get<Plan>(*result);
  if (const absl::Status written = WriteReports(options, *request, plan); !written.ok()) return Fail(written);
  if (options.actions_rank >= 0) return PrintActions(plan, options.actions_rank);
  const TimesFrom from = !options.profile.empty()   ? TimesFrom::kProfile
                         : !options.cluster.empty() ? TimesFrom::kClusterFile
                                                    : TimesFrom::kStatedCore;
  return Show(global.output, ToProto(plan), PlanAnswer(plan, from, faster));
}

int Defaults(const GlobalOptions& global, const std::string& file, const std::vector<std::string>& overrides,
             ReferencePage reference) {
  using enum OutputFormat;
  // The formats that are possible: a job file is YAML, and a schema is JSON.
  const std::vector<OutputFormat> known = reference == ReferencePage::kNone        ? std::vector{kTable, kWide, kYaml, kJson}
                                          : reference == ReferencePage::kJobSchema ? std::vector{kTable, kWide, kJson}
                                                                                   : std::vector{kTable, kWide};
  if (const absl::Status checked = CheckOutput(global.output, known); !checked.ok()) return Fail(checked);
  if (reference != ReferencePage::kNone) {
    const std::string text = reference == ReferencePage::kJobFile     ? JobFileReference()
                             : reference == ReferencePage::kJobSchema ? JobSchemaText()
                                                                      : ClusterFileReference();
    std::fputs(text.c_str(), stdout);
    return kExitOk;
  }
  JobSpec spec;
  if (!file.empty()) {
    auto read = ReadJobFile(file, overrides);
    if (!read.ok()) return Fail(read.status());
    spec = *read;
  }
  std::fputs((global.output == kJson ? JsonText(ToProto(spec)) : JobFileText(spec)).c_str(), stdout);
  return kExitOk;
}

}  // namespace lynx::cli
