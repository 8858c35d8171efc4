// The families of models that people have, one row each: what their layers are made of, in terms of ModelSpec, and
// what the engine lacks for them. Reading a config.json, planning, training, importing, exporting and docs/models.md
// follow this table.
//
// A family is named by the `model_type` of its config.json (Hugging Face's transformers). Defaults are those of
// transformers' configuration classes: what an absent field of config.json means. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_MODEL_FAMILIES_H_
#define LYNX_PLANNER_PROBLEM_MODEL_FAMILIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/problem/job_spec.h"

namespace lynx {

// How a Hugging Face folder keeps weights. kNone: this program knows no names for them. kGpt2: query, key and value
// in one tensor, matrices as (in, out). kGptBigCode: the same names, matrices as (out, in). kLlama: a tensor each for
// query, key, value, gate and up. kPhi3: one for the first three, one for the other two.
enum class WeightNames : uint8_t { kNone, kGpt2, kGptBigCode, kLlama, kPhi3 };

// Whether `sliding_window` of config.json counts. kIfUsed: only with `use_sliding_window`.
enum class WindowField : uint8_t { kNone, kAlways, kIfUsed };

struct FamilyTraits {
  const char* model_type;
  const char* model_class;  // transformers' class of the causal language model
  const char* models;       // as people call them
  ModelFamily base;         // whose layers it is trained, or at least planned, with
  WeightNames weights;      // kNone: neither imported nor exported
  bool qkv_bias = false;
  bool qk_norm = false;
  bool tied = false;
  double norm_epsilon = 1e-6;
  double rope_theta = 10000;
  double rotary_share = 1;  // of a head's elements
  int32_t head_dim = 0;     // 0 = hidden / heads
  int32_t key_heads = 0;    // 0 = as many as heads
  WindowField window = WindowField::kNone;
  int32_t absent_window = 0;       // what `sliding_window` means where it is absent
  PlanOnlyFeatures plan_only = 0;  // what the engine lacks for every model of the family
};

// In the order of docs/models.md: trained ones first.
const std::vector<FamilyTraits>& ModelFamilies();
// nullptr: not in the table.
const FamilyTraits* FindModelFamily(const std::string& model_type);
// Families that cannot even be planned, and why: "an encoder". Empty where that is not known of it.
std::string WhyNotPlanned(const std::string& model_type);

// The family as which a model's weights are exported: the first whose layers have all that the model's have, and
// nothing else. InvalidArgument naming the field where no family has it.
absl::StatusOr<const FamilyTraits*> ExportFamilyOf(const ModelSpec& model);

const char* PlanOnlyFeatureName(PlanOnlyFeature feature);  // "gated-gelu", ...
bool ParsePlanOnlyFeature(const std::string& name, PlanOnlyFeature& feature);
// "a feed-forward gate that passes through GELU": the words of errors and docs.
const char* PlanOnlyFeatureText(PlanOnlyFeature feature);
// Those of a set, in order.
std::vector<PlanOnlyFeature> FeaturesOf(PlanOnlyFeatures set);
// "gated-gelu (a feed-forward gate that passes through GELU), ..."
std::string PlanOnlyText(PlanOnlyFeatures set);
// What a model has beyond its family's plain layers, for people: ", rope theta 500000, llama3 scaling by 8, norm
// epsilon 1e-06".
std::string ModelFeaturesText(const ModelSpec& model);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_MODEL_FAMILIES_H_
