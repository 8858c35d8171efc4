#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/frameworks/imported_run.h"
#include "cli/output/exit_code.h"
#include "cli/output/output_file.h"
#include "cli/verbs/commands.h"
#include "cli/verbs/import_request.h"

namespace lynx::cli {
namespace {

std::string Json(const ImportedRun& run) {
  nlohmann::ordered_json json;
  json["framework"] = EnumName(run.framework);
  json["devices"] = run.devices;
  json["job"] = JobFileText(run.job);
  json["assumed"] = run.assumed;
  json["notTaken"] = run.not_taken;
  json["unknown"] = run.unknown;
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

int ImportJob(const GlobalOptions& global, const ImportOptions& options) {
  const absl::StatusOr<ImportedRun> run = ReadImportedRun(options);
  if (!run.ok()) return Fail(run.status());
  const std::string text = ImportedJobFile(*run, options.file);
  if (!options.out.empty()) {
    if (const absl::Status written = WriteOutput("--out", options.out, text); !written.ok()) return Fail(written);
  }
  std::fputs(ImportRemarks(*run).c_str(), stderr);
  return ShowJson(global.output, Json(*run), options.out.empty() ? text : "");
}

}  // namespace lynx::cli
