// The table of known model families, with one row for each family. A row says, in terms of ModelSpec, what the layers of the
// family consist of, and which features of the family the engine lacks. Reading a config.json, planning, training, importing,
// exporting and docs/models.md all use this table.
//
// The field `model_type` of a model's config.json (Hugging Face's transformers) names the family. A field that is absent from
// config.json has the default of transformers' configuration class. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_MODEL_FAMILIES_H_
#define LYNX_PLANNER_PROBLEM_MODEL_FAMILIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/problem/job_spec.h"

namespace lynx {

// How a Hugging Face folder stores weights. kNone: Lynx knows no tensor names for them. kGpt2: query, key and value are one
// tensor, and matrices are (in, out). kGptBigCode: the tensor names of kGpt2, but matrices are (out, in). kLlama: query, key,
// value, gate and up are a tensor each. kPhi3: query, key and value are one tensor, gate and up are another. kMixtral and
// those after it: as kLlama, with a tensor for the router, and three for each expert, each family with names of its own.
// kQwen2Moe and those after it, except kOlmoe, also have tensors for what every token passes; kQwen2Moe for its gate, kGlm4Moe
// and kDeepseekV3 for the router's bias. kDeepseekV2 and kDeepseekV3 have the tensors of latent attention.
enum class WeightNames : uint8_t {
  kNone,
  kGpt2,
  kGptBigCode,
  kLlama,
  kPhi3,
  kMixtral,
  kQwen3Moe,
  kQwen2Moe,
  kGlm4Moe,
  kOlmoe,
  kDeepseekV2,
  kDeepseekV3
};

// Whether `sliding_window` of config.json applies. kIfUsed: it applies only if `use_sliding_window` is true.
enum class WindowField : uint8_t { kNone, kAlways, kIfUsed };

// How the weights of a token's experts follow from the router's scores: always divided by their sum, never, or if
// `norm_topk_prob` of config.json is true. kByField: false is the default; kByTrueField: true is.
enum class ExpertWeights : uint8_t { kNormalized, kPlain, kByField, kByTrueField };

// What config.json says about the experts that every token passes: nothing; how many there are, each as wide as the others
// (`n_shared_experts`, or Ernie's `moe_num_shared_experts`); or the width of their block (`shared_expert_intermediate_size`, or
// Granite's `shared_intermediate_size`).
enum class SharedExperts : uint8_t { kNone, kByCount, kByWidth };

// The experts of a family's models, with the defaults of transformers' configuration class.
struct ExpertTraits {
  int32_t experts = 0;  // 0 = the models have none
  int32_t top_k = 0;    // 0 = config.json must say it
  ExpertWeights weights = ExpertWeights::kNormalized;
  int32_t ffn = 0;          // `moe_intermediate_size`, the width of an expert; 0 = it is `intermediate_size`
  double aux_loss = 0.001;  // `router_aux_loss_coef`
  SharedExperts shared = SharedExperts::kNone;
  int32_t absent_shared = 0;  // number or width of shared experts, if absent in config.json
  // True if the first layers may have no experts: `first_k_dense_replace`, or Ernie's `moe_layer_start_index`.
  bool dense_layers = false;
  int32_t absent_dense_layers = 0;
  bool shared_gate = false;  // the block that every token passes has a gate
  // kSigmoid: the experts also have biases that only choose, and `routed_scaling_factor` is a factor of their weights.
  RouterScores scores = RouterScores::kSoftmax;
  double absent_weight_scale = 1;  // `routed_scaling_factor`
  int32_t absent_groups = 1;       // `n_group`: a token chooses among groups of experts first; the engine has only 1
};

struct FamilyTraits {
  const char* model_type;
  const char* model_class;  // the class of the causal language model in transformers
  const char* models;       // names that people use
  ModelFamily base;         // the family whose layers are used to train the models, or at least to plan them
  WeightNames weights;      // kNone: weights cannot be imported or exported
  bool qkv_bias = false;
  bool qk_norm = false;
  bool qk_norm_whole = false;
  bool tied = false;
  double norm_epsilon = 1e-6;
  double rope_theta = 10000;
  double rotary_share = 1;  // the share of a head's elements that is rotated
  int32_t head_dim = 0;     // 0 = hidden / heads
  int32_t key_heads = 0;    // 0 = as many as heads
  WindowField window = WindowField::kNone;
  int32_t absent_window = 0;       // the window if config.json has no `sliding_window`
  PlanOnlyFeatures plan_only = 0;  // features of every model of the family that the engine lacks
  ExpertTraits experts = {};
  bool latent = false;  // latent attention (`kv_lora_rank`)

  // True if the engine computes exactly the family's layers. It then reads and writes the family's weights, too. Models with
  // experts must have a capacity (CheckEngineRuns); the layers are exactly the family's as long as no row is dropped.
  bool trained() const { return weights != WeightNames::kNone; }
};

// The families in the order of docs/models.md: families that can be trained come first.
const std::vector<FamilyTraits>& ModelFamilies();
// Returns nullptr if the table has no such family.
const FamilyTraits* FindModelFamily(const std::string& model_type);
// The reason why models of this type cannot even be planned, such as "an encoder". "" if no reason is known.
std::string WhyNotPlanned(const std::string& model_type);

// The family under which a model's weights are exported: the first family whose layers have exactly the features of this model.
// Returns InvalidArgument with the field if no family fits.
absl::StatusOr<const FamilyTraits*> ExportFamilyOf(const ModelSpec& model);

// Features of parts that stand beside the layers. The engine trains the model without these parts; the plan and the import of
// weights say so.
inline constexpr PlanOnlyFeatures kLeftOutFeatures = Bit(PlanOnlyFeature::kMultiTokenPrediction);
// The features of the model without which the engine cannot train it. Empty: the engine computes all of its layers.
inline PlanOnlyFeatures LackedFeatures(const ModelSpec& model) { return model.plan_only & ~kLeftOutFeatures; }

// The words for a feature in errors and docs, such as "a feed-forward gate that passes through GELU".
const char* PlanOnlyFeatureText(PlanOnlyFeature feature);
// The features in a set, in the order of the enum.
std::vector<PlanOnlyFeature> FeaturesOf(PlanOnlyFeatures set);
// The names and words of a set of features: "gated-gelu (a feed-forward gate that passes through GELU), ..."
std::string PlanOnlyText(PlanOnlyFeatures set);
// The features that a model has in addition to its family's plain layers, as text: ", rope theta 500000, llama3 scaling by 8,
// norm epsilon 1e-06".
std::string ModelFeaturesText(const ModelSpec& model);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_MODEL_FAMILIES_H_
