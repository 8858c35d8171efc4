// Turns arguments of Megatron-LM into a job. Runs of NeMo, which is built on Megatron Core, use it, too. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_MEGATRON_IMPORT_H_
#define LYNX_CLI_FRAMEWORKS_MEGATRON_IMPORT_H_

#include "absl/status/status.h"
#include "cli/frameworks/imported_run.h"
#include "cli/frameworks/launch.h"
#include "cli/frameworks/megatron_arguments.h"

namespace lynx::cli {

// Fills in the job, the devices, the traits and the lists of `run`, whose framework is set. InvalidArgument begins with the
// place of the launch, and names the flag.
absl::Status JobOfMegatron(const ReadMegatronArguments& read, const ImportRequest& request, const Launch& launch,
                           ImportedRun& run);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_MEGATRON_IMPORT_H_
