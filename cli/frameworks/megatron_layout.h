// Reads Megatron-LM's --pipeline-model-parallel-layout, such as "Et*3|(tt|)*2tL": E is the embedding, t a layer, L the loss,
// and | separates stages. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_MEGATRON_LAYOUT_H_
#define LYNX_CLI_FRAMEWORKS_MEGATRON_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx::cli {

// Returns the number of layers of each stage, virtual stages included, in the order of the model. InvalidArgument: the text is
// not such a layout, or has layers other than E, t and L; the error does not name the flag.
absl::StatusOr<std::vector<int32_t>> LayersOfLayout(const std::string& layout);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_MEGATRON_LAYOUT_H_
