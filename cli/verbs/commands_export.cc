#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/output/exit_code.h"
#include "cli/output/export_answer.h"
#include "cli/output/output_file.h"
#include "cli/output/waiting_line.h"
#include "cli/verbs/commands.h"
#include "cli/verbs/plan_request.h"
#include "common/status.h"
#include "node/file.h"
#include "planner/export/export.h"

namespace lynx::cli {
namespace {

constexpr char kMissingFile[] = "not_expressed.txt";

absl::Status WriteFiles(const ExportOptions& options, const ExportedPlan& exported) {
  if (const absl::Status made = MakeDirectories(options.folder); !made.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out ", options.folder, ": ", std::string(made.message()), "; name a folder that you may write to"));
  }
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(options.folder, "/", name);
    LYNX_RETURN_IF_ERROR(WriteOutput("--out", path, text));
    std::printf("%s\n", path.c_str());
    return absl::OkStatus();
  };
  for (const ExportedFile& file : exported.files) LYNX_RETURN_IF_ERROR(write(file.name, file.text));
  return write(kMissingFile, ExportMissingText(options.format, exported));
}

}  // namespace

int ExportJob(const GlobalOptions& global, const ExportOptions& options) {
  ExportFormat format;
  if (!ParseEnum(options.format, format)) {
    return Fail(
        absl::InvalidArgumentError(absl::StrCat("--format ", options.format, ": expected megatron, deepspeed or torchtitan")));
  }
  const absl::StatusOr<ExportTarget> target =
      options.version.empty() ? NewestTarget(format) : FindTarget(format, options.version);
  if (!target.ok()) return Fail(Annotate(target.status(), "--target-version"));
  if (!options.folder.empty()) {
    const absl::Status known = CheckOutput(global.output, {OutputFormat::kTable, OutputFormat::kWide});
    if (!known.ok()) return Fail(Annotate(known, "--out"));
  }
  auto request = ReadPlanRequest(options.plan);
  if (!request.ok()) return Fail(request.status());
  const auto result = WithWaitingLine("planning", [&](const auto&) {
    ArrangeNodes(options.plan, *request);
    return MakePlanFor(format, *request);
  });
  if (!result.ok()) return Fail(result.status());
  if (const auto* infeasible = std::get_if<Infeasible>(&*result)) return PrintInfeasible(*infeasible);
  const auto exported =
      WithWaitingLine("exporting", [&](const auto&) { return ExportPlan(*target, *request, std::get<Plan>(*result)); });
  if (!exported.ok()) return Fail(exported.status());
  if (global.output != OutputFormat::kTable && global.output != OutputFormat::kWide) {
    return ShowJson(global.output, ExportJson(*target, *exported), "");
  }
  if (!options.folder.empty()) {
    if (const absl::Status written = WriteFiles(options, *exported); !written.ok()) return Fail(written);
  } else {
    for (const ExportedFile& file : exported->files) std::fputs(file.text.c_str(), stdout);
  }
  std::fputs(ExportMissingText(options.format, *exported).c_str(), stderr);
  return kExitOk;
}

}  // namespace lynx::cli
