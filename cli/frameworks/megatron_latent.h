// Reads the latent attention of a run of Megatron-LM. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_MEGATRON_LATENT_H_
#define LYNX_CLI_FRAMEWORKS_MEGATRON_LATENT_H_

#include <string>

#include "absl/status/status.h"
#include "cli/frameworks/imported_run.h"
#include "cli/frameworks/megatron_arguments.h"

namespace lynx::cli {

// Sets model.latent, the size of a head, and the rotary positions of a run with --multi-latent-attention, and the lists of the
// run. The model, the data type and the layout of the job must be read. Changes what cannot be planned with it (products in 8
// bits), and reports this. Without the flag, only reports that Megatron-LM ignores the flags that belong to it. `place` begins
// errors ("FILE:LINE"). InvalidArgument: a value is wrong, or the model has layers that are not planned.
absl::Status ReadMegatronLatent(const MegatronArguments& values, const std::string& place, ImportedRun& run);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_MEGATRON_LATENT_H_
