// The common input of the verbs that read runs of other frameworks. One thread.
#ifndef LYNX_CLI_VERBS_IMPORT_REQUEST_H_
#define LYNX_CLI_VERBS_IMPORT_REQUEST_H_

#include "absl/status/statusor.h"
#include "cli/frameworks/imported_run.h"
#include "cli/verbs/commands.h"

namespace lynx::cli {

// Reads the files that the options name. InvalidArgument and NotFound name the option or the file, and what would be right.
absl::StatusOr<ImportedRun> ReadImportedRun(const ImportOptions& options);

}  // namespace lynx::cli

#endif  // LYNX_CLI_VERBS_IMPORT_REQUEST_H_
