// Reads a model from a Hugging Face `config.json`. The model may be of any family of planner/problem/model_families.h. A model
// of another family whose shape can be read is planned with the most similar layers. Properties that the engine does not
// support are named in ModelSpec::plan_only, never dropped. Fields that change a layer's shape, ops or parameters are checked;
// other fields (token ids, initial ranges, caches, versions) are ignored.
//
// `file` is for errors: InvalidArgument with file, field, value and what would be right. Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_MODEL_CONFIG_H_
#define LYNX_CLI_SPEC_MODEL_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/model_families.h"

namespace lynx::cli {

// The model is not normalized. Its seq is the largest number of positions that it was made for. float16 is planned as
// bfloat16, which has as many bits. Attention is fused for every family except gpt2.
absl::StatusOr<ModelSpec> ParseModelConfig(const std::string& text, const std::string& file);

struct ModelOfWeights {
  ModelSpec model;             // normalized, in float32; plan_only has what is left out (kLeftOutFeatures)
  const FamilyTraits* family;  // says how the weights are named
};
// Parses the configuration of weights from which training begins, as ParseModelConfig does. Refuses models whose layers
// the engine does not support completely, and families whose weights have no known names.
absl::StatusOr<ModelOfWeights> ParseModelConfigOfWeights(const std::string& text, const std::string& file);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_MODEL_CONFIG_H_
