// Reads what Megatron-LM's selective recomputation recomputes: --recompute-modules, whose names and meanings are those of
// megatron/core/transformer/transformer_config.py. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_MEGATRON_MODULES_H_
#define LYNX_CLI_FRAMEWORKS_MEGATRON_MODULES_H_

#include <string>

#include "absl/status/status.h"
#include "cli/frameworks/imported_run.h"
#include "cli/frameworks/megatron_arguments.h"

namespace lynx::cli {

// Sets the recomputation of the job, whose model and traits are known. Without the flag only the attention core is recomputed.
// Modules that recompute nothing in this model are named in run.not_taken. `place` begins errors.
absl::Status ReadMegatronModules(const MegatronArguments& values, const std::string& place, ImportedRun& run);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_MEGATRON_MODULES_H_
