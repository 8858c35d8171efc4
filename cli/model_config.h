// Reads the shape of a model from a Hugging Face `config.json`. Only families whose layers truly are one of ours are
// taken: GPT-2; Llama; Mistral without a sliding window. Others are refused by name, with what is missing here.
// Fields that change a layer's shape, ops or parameters are checked; the rest (token ids, initial ranges, caches,
// versions) is not looked at. Pure function of text; thread-safe.
#ifndef LYNX_CLI_MODEL_CONFIG_H_
#define LYNX_CLI_MODEL_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/job_spec.h"

namespace lynx {

// InvalidArgument: "FILE: FIELD is VALUE: what would be right". seq is the longest that the model was made for;
// attention and dropout masks stay at their defaults, since the file says nothing of kernels. dtype: what the file
// says; else the default.
absl::StatusOr<ModelSpec> ParseModelConfig(const std::string& text, const std::string& file);
// The same for a model whose weights shall be used: also refuses what leaves the shapes as they are but computes
// something else than Lynx's layers do with the same weights (epsilons, rotary positions, the exact GELU). ffn is
// filled in; the weights are in fp32 here, whatever the file says.
absl::StatusOr<ModelSpec> ParseModelConfigOfWeights(const std::string& text, const std::string& file);

}  // namespace lynx

#endif  // LYNX_CLI_MODEL_CONFIG_H_
