// The table of known model families, one row each: what the layers of the family consist of, in terms of ModelSpec, and which
// features of the family the engine lacks. Reading a config.json, planning, training, importing, exporting and docs/models.md
// follow this table.
//
// The `model_type` in its config.json (Hugging Face's transformers) names a family. A field that is absent from
// config.json has the default of transformers' configuration class. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_MODEL_FAMILIES_H_
#define LYNX_PLANNER_PROBLEM_MODEL_FAMILIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/problem/job_spec.h"

namespace lynx {

// How a Hugging Face folder stores weights. kNone: this program knows no tensor names for them. kGpt2: query, key and value in
// one tensor, matrices as (in, out). kGptBigCode: the names of kGpt2, matrices as (out, in). kLlama: one tensor each for query,
// key, value, gate and up. kPhi3: one tensor for query, key and value, another for gate and up.
enum class WeightNames : uint8_t { kNone, kGpt2, kGptBigCode, kLlama, kPhi3 };

// Whether `sliding_window` of config.json applies. kIfUsed: only with `use_sliding_window`.
enum class WindowField : uint8_t { kNone, kAlways, kIfUsed };

struct FamilyTraits {
  const char* model_type;
  const char* model_class;  // transformers' class of the causal language model
  const char* models;       // names that people use
  ModelFamily base;         // the family with whose layers the models are trained, or at least planned
  WeightNames weights;      // kNone: weights can be neither imported nor exported
  bool qkv_bias = false;
  bool qk_norm = false;
  bool tied = false;
  double norm_epsilon = 1e-6;
  double rope_theta = 10000;
  double rotary_share = 1;  // share of a head's elements that are rotated
  int32_t head_dim = 0;     // 0 = hidden / heads
  int32_t key_heads = 0;    // 0 = as many as heads
  WindowField window = WindowField::kNone;
  int32_t absent_window = 0;       // the window if `sliding_window` is absent
  PlanOnlyFeatures plan_only = 0;  // features of every model of the family that the engine lacks
};

// In the order of docs/models.md: families that can be trained come first.
const std::vector<FamilyTraits>& ModelFamilies();
// nullptr: not in the table.
const FamilyTraits* FindModelFamily(const std::string& model_type);
// Why models of this type cannot even be planned: "an encoder". "" if no reason is known.
std::string WhyNotPlanned(const std::string& model_type);

// The family under which a model's weights are exported: the first family whose layers have exactly the features of the
// model's. InvalidArgument with the field if no family fits.
absl::StatusOr<const FamilyTraits*> ExportFamilyOf(const ModelSpec& model);

// "a feed-forward gate that passes through GELU", as errors and docs say it.
const char* PlanOnlyFeatureText(PlanOnlyFeature feature);
// The features in a set, in order.
std::vector<PlanOnlyFeature> FeaturesOf(PlanOnlyFeatures set);
// "gated-gelu (a feed-forward gate that passes through GELU), ..."
std::string PlanOnlyText(PlanOnlyFeatures set);
// What a model has beyond its family's plain layers, as text: ", rope theta 500000, llama3 scaling by 8, norm epsilon
// 1e-06".
std::string ModelFeaturesText(const ModelSpec& model);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_MODEL_FAMILIES_H_
