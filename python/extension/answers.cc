#include "python/extension/answers.h"

#include <nlohmann/json.hpp>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/output/export_answer.h"
#include "cli/spec/cluster_file.h"
#include "cli/spec/job_fields.h"
#include "cli/spec/job_file.h"
#include "cli/spec/what_if.h"
#include "common/cores.h"
#include "common/status.h"
#include "planner/problem/model_presets.h"
#include "planner/report/framework_table.h"
#include "planner/report/timeline.h"
#include "planner/search/make_plan.h"
#include "python/extension/background.h"
#include "python/extension/errors.h"

namespace lynx::python {
namespace {

absl::StatusOr<AnswerTexts> TextsOf(const cli::PlansAnswer& answer) {
  LYNX_ASSIGN_OR_RETURN(const std::string csv, cli::ListingText(cli::PlanRowsListing(answer.rows), cli::OutputFormat::kCsv));
  return AnswerTexts{answer.tables, cli::PlanRowsJson(answer.rows), csv};
}

}  // namespace

AnswerTexts Compare(const std::shared_ptr<const Request>& request) {
  return Take(Unlocked([request]() -> absl::StatusOr<AnswerTexts> {
    const PlanRequest arranged = request->Arranged();
    LYNX_ASSIGN_OR_RETURN(const PolicyComparison comparison, ComparePolicies(arranged, {.run = RunOnAllCores}));
    return TextsOf(cli::ComparisonAnswer(arranged, comparison));
  }));
}

AnswerTexts Explain(const std::shared_ptr<const Request>& request) {
  return Take(Unlocked([request]() -> absl::StatusOr<AnswerTexts> {
    const PlanRequest arranged = request->Arranged();
    LYNX_ASSIGN_OR_RETURN(const Explanation explanation, ExplainPlan(arranged, {.run = RunOnAllCores}));
    LYNX_ASSIGN_OR_RETURN(const std::vector<Plan> at_skews,
                          PlanAtSkews(arranged.cluster, explanation.plan, cli::ShownSkews(arranged.spec.model.moe)));
    return TextsOf(cli::ExplanationAnswer(arranged, explanation, at_skews));
  }));
}

AnswerTexts WhatIf(const std::shared_ptr<const Request>& now, const std::shared_ptr<const Request>& changed,
                   const std::string& nodes) {
  return Take(Unlocked([now, changed, nodes]() -> absl::StatusOr<AnswerTexts> {
    Request after = *changed;
    LYNX_RETURN_IF_ERROR(cli::ChangeNodes(now->request, nodes, after.request));
    const PlanRequest first = now->Arranged(), second = after.Arranged();
    const absl::StatusOr<PlanResult> before = MakePlan(first);
    if (!before.ok()) return Annotate(before.status(), cli::kWhatIfNames[0]);
    const absl::StatusOr<PlanResult> result = MakePlan(second);
    if (!result.ok()) return Annotate(result.status(), cli::kWhatIfNames[1]);
    return TextsOf(cli::WhatIfAnswer(first, *before, second, *result));
  }));
}

FrameworkAnswer PlanOfFramework(const std::shared_ptr<const Request>& request, const std::string& framework) {
  Framework known = Framework::kLynx;
  if (!ParseEnum(framework, known)) {
    Raise(absl::InvalidArgumentError(
        absl::StrCat("framework '", framework, "': expected one of ", absl::StrJoin(kEnumNames<Framework>, ", "))));
  }
  return Take(Unlocked([request, known]() -> absl::StatusOr<FrameworkAnswer> {
    const PlanRequest& asked = request->request;
    LYNX_ASSIGN_OR_RETURN(const FrameworkPlan plan, PlanForFramework(asked.spec, asked.cluster, known));
    const HardwareProfile& profile = asked.cluster.groups.front().profile;
    return FrameworkAnswer{FrameworkPlanText(plan, profile), cli::FrameworkAnswerJson(plan, profile), plan.fits()};
  }));
}

ExportTexts Export(const std::shared_ptr<const Request>& request, const std::string& format, const std::string& version) {
  ExportFormat known = ExportFormat::kMegatron;
  if (!ParseEnum(format, known)) {
    Raise(absl::InvalidArgumentError(
        absl::StrCat("format '", format, "': expected one of ", absl::StrJoin(kEnumNames<ExportFormat>, ", "))));
  }
  const absl::StatusOr<ExportTarget> found = version.empty() ? NewestTarget(known) : FindTarget(known, version);
  const ExportTarget target = Take(found.ok() ? found : absl::StatusOr<ExportTarget>(Annotate(found.status(), "version")));
  using Result = absl::StatusOr<std::variant<ExportTexts, Infeasible>>;
  auto result = Take(Unlocked([request, target, format]() -> Result {
    PlanRequest arranged = request->Arranged();
    LYNX_ASSIGN_OR_RETURN(const PlanResult planned, MakePlanFor(target.format, arranged));
    if (const auto* infeasible = std::get_if<Infeasible>(&planned)) return *infeasible;
    LYNX_ASSIGN_OR_RETURN(const ExportedPlan exported, ExportPlan(target, arranged, std::get<Plan>(planned)));
    return ExportTexts{cli::ExportJson(target, exported), cli::ExportMissingText(format, exported)};
  }));
  if (const auto* infeasible = std::get_if<Infeasible>(&result)) RaiseInfeasible(*infeasible);
  return std::get<ExportTexts>(std::move(result));
}

std::string CompleteJob(const std::string& text, const std::string& name, const std::string& folder,
                        const std::vector<std::string>& overrides) {
  return cli::JobFileText(Take(cli::ParseJobFile(text, name, folder, overrides)));
}

std::vector<std::pair<std::string, std::string>> FieldsOfJobs() {
  std::vector<std::pair<std::string, std::string>> fields;
  for (const cli::JobField& field : cli::JobFields()) fields.emplace_back(field.path, field.meaning);
  return fields;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const ModelPreset& preset : ModelPresets()) names.push_back(preset.name);
  return names;
}

std::string DescribeCluster(const std::string& text, const std::string& name) {
  const cli::ClusterFile file = Take(cli::ParseClusterFile(text, name));
  nlohmann::ordered_json json = {{"name", file.name}, {"groups", nlohmann::ordered_json::array()}};
  for (const NodeGroup& group : file.cluster.groups) {
    json["groups"].push_back({{"name", group.name},
                              {"device", group.profile.device_kind},
                              {"nodes", group.nodes},
                              {"devices_per_node", group.devices_per_node},
                              {"memory_bytes", group.memory_per_device.value}});
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lynx::python
