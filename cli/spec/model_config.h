// Reads a model from a Hugging Face `config.json`: any family of planner/problem/model_families.h, and any other whose shape
// can be read, which is then planned as the nearest layers. What of a model the engine lacks is said in
// ModelSpec::plan_only, never dropped. Fields that change a layer's shape, ops or parameters are checked; the rest
// (token ids, initial ranges, caches, versions) is ignored.
//
// `file` is for errors: InvalidArgument with file, field, value and what would be right. Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_MODEL_CONFIG_H_
#define LYNX_CLI_SPEC_MODEL_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/model_families.h"

namespace lynx {

// The model is not normalized. Its seq is the most positions that it was made for. float16 is planned as bfloat16, which
// has as many bits. Attention is fused for every family but gpt2.
absl::StatusOr<ModelSpec> ParseModelConfig(const std::string& text, const std::string& file);

struct ModelOfWeights {
  ModelSpec model;             // normalized, in float32
  const FamilyTraits* family;  // how its weights are named
};
// The same for weights to train on with. Models that the engine lacks something for, and families whose weights have
// no names here, are refused.
absl::StatusOr<ModelOfWeights> ParseModelConfigOfWeights(const std::string& text, const std::string& file);

}  // namespace lynx

#endif  // LYNX_CLI_SPEC_MODEL_CONFIG_H_
