// Reads the mixture of experts of a run of Megatron-LM. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_MEGATRON_EXPERTS_H_
#define LYNX_CLI_FRAMEWORKS_MEGATRON_EXPERTS_H_

#include <string>

#include "absl/status/status.h"
#include "cli/frameworks/imported_run.h"
#include "cli/frameworks/megatron_arguments.h"

namespace lynx::cli {

// Sets model.moe and parallel.ep of the run's job, and the lists of the run. The rest of the job must be read. Changes what
// cannot be planned with experts (products in 8 bits, groups of replicas), and reports it. Does nothing without --num-experts.
// `place` begins errors ("FILE:LINE"). InvalidArgument: a value is wrong, or the model has layers that are not planned.
absl::Status ReadMegatronExperts(const MegatronArguments& values, const std::string& place, ImportedRun& run);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_MEGATRON_EXPERTS_H_
