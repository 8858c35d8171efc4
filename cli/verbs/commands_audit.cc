#include <cstdio>
#include <optional>
#include <utility>

#include "cli/frameworks/audit.h"
#include "cli/output/exit_code.h"
#include "cli/output/waiting_line.h"
#include "cli/spec/cluster_file.h"
#include "cli/verbs/commands.h"
#include "cli/verbs/import_request.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

absl::StatusOr<RunAudit> ReadAudit(const AuditRunOptions& options) {
  LYNX_ASSIGN_OR_RETURN(ImportedRun run, ReadImportedRun(options.run));
  LYNX_ASSIGN_OR_RETURN(ClusterFile file, ReadClusterFile(options.cluster));
  std::optional<RunLog> log;
  if (!options.log.empty()) {
    const absl::StatusOr<std::string> text = ReadTextFile(options.log);
    if (!text.ok()) return Annotate(text.status(), "--log");
    LYNX_ASSIGN_OR_RETURN(log, ReadRunLog(run, *text, options.log));
  }
  return WithWaitingLine("planning",
                         [&](const auto&) { return AuditOf(std::move(run), std::move(file.cluster), std::move(log)); });
}

}  // namespace

int AuditRun(const GlobalOptions& global, const AuditRunOptions& options) {
  const absl::StatusOr<RunAudit> audit = ReadAudit(options);
  if (!audit.ok()) return Fail(audit.status());
  const int shown = ShowJson(global.output, AuditJson(*audit), AuditText(*audit, options.run.file));
  return shown == kExitOk && !audit->plan.fits() ? kExitJobFailed : shown;
}

}  // namespace lynx::cli
