// JobSpec describes a training job as its user asks for it. The job file, the protocol and the store all convert to and from
// this one type. Defaults are set only here. "0 = auto" at a field means: if the field is 0, the planner chooses the value.
// Plain data; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_JOB_SPEC_H_
#define LYNX_PLANNER_PROBLEM_JOB_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/enum_names.h"
#include "common/units.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// The kind of layers that a model has; the fields of ModelSpec say where a model differs from its family. kGpt: LayerNorm,
// causal attention, GELU, dropout, learned positions and biases. kLlama: RMSNorm, rotary positions and SwiGLU, without biases
// and dropout. Both may have grouped queries. planner/problem/model_families.h says which model has which fields.
enum class ModelFamily : uint8_t { kGpt, kLlama };
template <>
inline constexpr auto kEnumNames<ModelFamily> = EnumTable("gpt", "llama");

// kUnfused: the scores (b, a/t, s, s) are kept as an activation. kFused: one op computes attention and never writes the scores
// (FlashAttention, Dao et al. 2022); it keeps the log-sum-exp of each row.
enum class AttentionKernel : uint8_t { kUnfused, kFused };
template <>
inline constexpr auto kEnumNames<AttentionKernel> = EnumTable("unfused", "fused");

// Type of the weights in use, of activations and of communicated data. Master weights and optimizer states are always 32-bit;
// ModelSpec::gradient_dtype is the type of the gradients of weights.
enum class DataType : uint8_t { kFloat32, kBfloat16 };
template <>
inline constexpr auto kEnumNames<DataType> = EnumTable("float32", "bfloat16");

// How the products of the transformer layers' linears (qkv, proj, fc1, fc2) are computed. kModel: in the model's data type. The
// others are planned only: operands are quantised to 8 or 4 bits, sums stay 32-bit, and everything else stays as it is.
// kFloat8: one scale for a tensor, found anew each time ("current scaling"). kMxfp8: a scale of 8 bits for every 32 elements
// (OCP Microscaling formats). kNvfp4: 4 bits, a scale of 8 bits for every 16 elements, and one for the tensor (arXiv
// 2509.25149). planner/problem/narrow_products.h says what is quantised when, what is kept, and after whom.
enum class MatmulType : uint8_t { kModel, kFloat8, kMxfp8, kNvfp4 };
template <>
inline constexpr auto kEnumNames<MatmulType> = EnumTable("model", "float8", "mxfp8", "nvfp4");

// kRegenerated: a dropout mask is a function of counters, and the backward pass draws it again, as in Lynx's engine. kStored:
// the mask is stored in addition to the output of dropout, with one byte per element, as in Megatron-LM.
enum class DropoutMasks : uint8_t { kRegenerated, kStored };
template <>
inline constexpr auto kEnumNames<DropoutMasks> = EnumTable("regenerated", "stored");

// How rotary positions are scaled for sequences longer than those that the model was first trained on. kLinear: every angle is
// divided by `factor` (Chen et al. 2023). kDynamic: the base is larger ("dynamic NTK"); it is computed for sequences of
// model.seq tokens. kLlama3: pairs that rotate slowly are divided by `factor`, pairs that rotate fast stay as they are (Llama
// 3.1). kYarn: the method of Peng et al. 2024.
enum class RopeScaling : uint8_t { kNone, kLinear, kDynamic, kLlama3, kYarn };
template <>
inline constexpr auto kEnumNames<RopeScaling> = EnumTable("none", "linear", "dynamic", "llama3", "yarn");

// Rotary positions (Su et al. 2021). Names and meanings are those of Hugging Face's `rope_theta` and `rope_scaling`;
// worker/model/rotary_table.h has the formulas.
struct RotarySpec {
  double theta = 10000;  // base of the angles, above 1
  int32_t dims = 0;      // number of leading elements of a head that are rotated; even; 0 = all of them
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;           // at least 1; 1 without scaling
  int32_t original_seq = 0;    // sequence length before scaling; required with kDynamic, kLlama3 and kYarn, else 0
  double low_freq_factor = 1;  // kLlama3 only
  double high_freq_factor = 4;
  double beta_fast = 32;  // kYarn only
  double beta_slow = 1;
  double attention_factor = 0;  // kYarn only: cosines and sines are multiplied by it; 0 = 0.1 ln(factor) + 1
  // kYarn with latent attention only: scores are multiplied by the square of 0.1 mscale_all_dim ln(factor) + 1 (DeepSeek-V2)
  double mscale_all_dim = 0;

  bool operator==(const RotarySpec&) const = default;
};

// Features of a model that the engine cannot compute. A model with such a feature cannot be trained, but it can be planned with
// the layers of its family. ModelSpec::plan_only has one bit for each feature; planner/problem/model_families.h names and
// explains them. The number of a feature is stored in plans and messages, so a new one comes last.
enum class PlanOnlyFeature : uint8_t {
  kGatedGelu,
  kExactGelu,
  kOtherActivation,
  kLayerNorm,
  kNormOffset,
  kPostNorms,
  kWholeQueryNorm,
  kParallelResidual,
  kSoftCapping,
  kMultipliers,
  kSkippedRotary,
  kLocalLayers,
  kOtherRopeScaling,
  kRotaryWithLayerNorm,
  kLinearBiases,
  kOtherPositions,
  kUnknownFamily,
  kAttentionSinks,
  kOtherRouting,
  kSharedExpertGate,
  kMultiTokenPrediction,
  kEncoder,
};
inline constexpr int kPlanOnlyFeatureCount = static_cast<int>(PlanOnlyFeature::kEncoder) + 1;
template <>
inline constexpr auto kEnumNames<PlanOnlyFeature> = EnumTable("gated-gelu", "exact-gelu", "other-activation", "layer-norm",
                                                              "norm-offset", "post-norms", "whole-query-norm",
                                                              "parallel-residual", "soft-capping", "multipliers",
                                                              "skipped-rotary", "local-layers", "other-rope-scaling",
                                                              "rotary-with-layer-norm", "linear-biases", "other-positions",
                                                              "unknown-family", "attention-sinks", "other-routing",
                                                              "shared-expert-gate", "multi-token-prediction", "encoder");
static_assert(kEnumNames<PlanOnlyFeature>.size() == kPlanOnlyFeatureCount);
using PlanOnlyFeatures = uint64_t;
constexpr PlanOnlyFeatures Bit(PlanOnlyFeature feature) { return PlanOnlyFeatures{1} << static_cast<int>(feature); }

// What the products of a router are made into, which decides the choice of a token's experts and their weights: their softmax
// over all experts, or the sigmoid of each of them (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
enum class RouterScores : uint8_t { kSoftmax, kSigmoid };
template <>
inline constexpr auto kEnumNames<RouterScores> = EnumTable("softmax", "sigmoid");

// A mixture of experts in place of each layer's feed-forward block: a router chooses top_k of the experts for each token, each
// expert is a feed-forward block of its own, and the token gets the weighted sum of their outputs (Shazeer et al. 2017). Plain
// values: a model without experts has the default value.
struct MoeSpec {
  int32_t experts = 0;     // E, from 2 on; 0 = the model has no experts
  int32_t top_k = 0;       // experts for each token, 1..E
  int32_t ffn = 0;         // feed-forward width of one expert; 0 = model.ffn (Normalize sets this to 0 if it equals model.ffn)
  bool normalized = true;  // the weights of a token's experts are divided by their sum (Mixtral, Qwen3)
  // Room for the rows of one expert from one rank, as a multiple of the even share top_k * tokens / E. Rows beyond it are
  // dropped, as in GShard (Lepikhin et al. 2021), unless `dropless` is true. From E / top_k on, every row has room. 0 = no
  // limit, and nothing is dropped: planned only.
  double capacity = 0;
  // Rows beyond the room are not dropped: they go through rounds, each of which has a small room for every expert
  // (planner/problem/expert_rounds.h). Only with a capacity.
  bool dropless = false;
  // The rows of the fullest rank of an expert group, as a multiple of the even share, for which the planner plans; at least 1.
  double skew = 1;
  double aux_loss = 0;  // factor of the loss that balances the experts (Fedus et al. 2022, equation 4); at least 0
  double z_loss = 0;    // factor of the loss that keeps the router's scores small (Zoph et al. 2022, equation 5); at least 0
  // Width of the feed-forward block that every token passes in addition to its experts ("shared experts", Dai et al. 2024); the
  // sum of the widths if a model has several. 0 = none.
  int32_t shared_ffn = 0;
  // What this block gives a token is multiplied by the sigmoid of a product of the token with a weight (Qwen2-MoE). Only with
  // shared_ffn.
  bool shared_gate = false;
  // The first layers of the model have a feed-forward block of width model.ffn and no experts (DeepSeek:
  // `first_k_dense_replace`). 0 .. layers - 1.
  int32_t dense_layers = 0;
  RouterScores scores = RouterScores::kSoftmax;
  double weight_scale = 1;  // factor of the weights of a token's experts; above 0
  // Each expert has a bias, which is added to its scores where experts are chosen, and nowhere else. After each step it grows
  // by bias_rate if the expert got less than the mean load of the layer's experts, and shrinks by it if the expert got more
  // (Wang et al. 2024, arXiv 2408.15664). Only with the scores kSigmoid. bias_rate 0: the biases stay as they are.
  bool router_bias = false;
  double bias_rate = 0;

  bool any() const { return experts > 0; }
  bool operator==(const MoeSpec&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): queries, keys and values are products of a few
// numbers of each token, which are computed first ("down projection") and then normed. A head of queries and keys has
// head_dim elements, of which the first rotary.dims are rotated (the last ones in DeepSeek's files); the rotated part of the
// keys is the same for all heads. Plain values: a model with ordinary attention has the default value.
struct LatentSpec {
  int32_t query_rank = 0;  // numbers from which the queries are made; 0 = the queries are made from the norm of x itself
  int32_t kv_rank = 0;     // numbers from which keys and values are made; 0 = no latent attention
  int32_t value_dim = 0;   // elements of a head of values

  bool any() const { return kv_rank > 0; }
  bool operator==(const LatentSpec&) const = default;
};

// A decoder-only transformer, or an encoder with a head for masked tokens (PlanOnlyFeature::kEncoder; GPT only).
struct ModelSpec {
  int32_t layers = 0;    // transformer layers, 1..1000
  int32_t hidden = 0;    // h; must be a multiple of heads if head_dim is 0
  int32_t heads = 0;     // a, attention heads
  int32_t ffn = 0;       // f, feed-forward width; 0 = 4h for GPT, 8h/3 rounded up to a multiple of 256 for Llama (Normalize
                         // fills it in)
  int32_t seq = 0;       // s, tokens per sample
  int32_t vocab = 256;   // v, vocabulary size; 256 if tokens are bytes
  double dropout = 0.1;  // rate in [0, 1) for embedding, attention and residual dropout; 0 for Llama
  ModelFamily family = ModelFamily::kGpt;
  int32_t kv_heads = 0;  // key and value heads, a divisor of heads; 0 = as many as heads (Normalize sets this to 0)
  AttentionKernel attention = AttentionKernel::kUnfused;
  DataType dtype = DataType::kFloat32;
  DropoutMasks dropout_masks = DropoutMasks::kRegenerated;
  bool tied_embeddings = false;  // the output projection uses the weights of the token embedding
  int32_t head_dim = 0;          // d, elements of a head; 0 = hidden / heads (Normalize sets this to 0)
  bool qkv_bias = false;         // only for Llama: query, key and value projections have biases; GPT always has them
  bool qk_norm = false;          // only for Llama: RMSNorm over each head of queries and keys, before the rotation (Qwen3)
  bool qk_norm_whole = false;    // only with qk_norm: one norm over all queries of a token, and one over all its keys (OLMoE)
  double norm_epsilon = 1e-5;    // the epsilon of every norm; above 0
  RotarySpec rotary;             // only for Llama; GPT must have the default value
  int32_t window = 0;            // number of positions that a token attends to, its own included (Mistral); 0 = all earlier
                                 // positions
  PlanOnlyFeatures plan_only = 0;
  MatmulType matmul_type = MatmulType::kModel;  // others: only with dtype kBfloat16 and attention kFused
  // The type in which gradients of weights are summed, over microbatches and over replicas. kBfloat16 is planned only, and only
  // with dtype kBfloat16.
  DataType gradient_dtype = DataType::kFloat32;

  MoeSpec moe;        // only for Llama
  LatentSpec latent;  // only for Llama

  int32_t head_size() const { return head_dim == 0 ? hidden / heads : head_dim; }
  int32_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  int32_t expert_ffn() const { return moe.ffn == 0 ? ffn : moe.ffn; }
  // True if the feed-forward block of some layer has no experts. Tensor parallelism divides its width.
  bool HasDenseBlock() const { return !moe.any() || moe.dense_layers > 0; }
  bool HasExpertsIn(int32_t layer) const { return moe.any() && layer >= moe.dense_layers; }
  bool operator==(const ModelSpec&) const = default;
};

enum class DataKind : uint8_t { kText, kMegatron };
template <>
inline constexpr auto kEnumNames<DataKind> = EnumTable("text", "megatron");

struct DataSpec {
  DataKind kind = DataKind::kText;
  // kText: the path of a file with one token per byte. kMegatron: the common prefix of PATH.bin and PATH.idx. The CLI makes a
  // relative path absolute; it starts from the job file's folder.
  std::string path;
  std::string validation_path;  // validation data of the same kind; "" = no evaluation

  bool operator==(const DataSpec&) const = default;
};

enum class LrSchedule : uint8_t { kConstant, kLinear, kCosine };
template <>
inline constexpr auto kEnumNames<LrSchedule> = EnumTable("constant", "linear", "cosine");

// What happens in a step whose loss or gradient norm is not finite. kStop: the run ends before it changes a weight.
// kSkip: no rank updates its weights in that step, and training goes on.
enum class NonFinitePolicy : uint8_t { kStop, kSkip };
template <>
inline constexpr auto kEnumNames<NonFinitePolicy> = EnumTable("stop", "skip");

struct OptimizerSpec {  // AdamW
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // applies to matrices, not to biases and norms
  double clip_norm = 1.0;     // limit for the global gradient norm; 0 = no clipping

  bool operator==(const OptimizerSpec&) const = default;
};

struct TrainSpec {
  int64_t steps = 0;
  int32_t global_batch = 0;  // samples per optimizer step, over all replicas
  int32_t micro_batch = 0;   // samples per microbatch; 0 = auto
  OptimizerSpec optimizer;
  LrSchedule schedule = LrSchedule::kCosine;
  int64_t warmup_steps = 0;
  double min_lr = 0;  // the learning rate at the end of the linear and cosine schedules
  uint64_t seed = 1234;
  NonFinitePolicy on_non_finite = NonFinitePolicy::kStop;
  int64_t eval_every = 0;    // steps between evaluations of the validation loss; 0 = never
  int32_t eval_batches = 8;  // global batches per evaluation; every evaluation uses the same ones

  bool operator==(const TrainSpec&) const = default;
};

// The kind of device that the ranks of a job run on; all ranks use the same kind. Only a job may say kAny: it gets GPUs if the
// cluster has enough of them, otherwise CPUs.
enum class DeviceKind : uint8_t { kAny, kCpu, kCuda };
template <>
inline constexpr auto kEnumNames<DeviceKind> = EnumTable("any", "cpu", "cuda");

struct ResourceSpec {
  int32_t min_ranks = 1;
  int32_t max_ranks = 1;
  // Limit for the activation arena of one rank. 0 = the memory of the device that the model states do not use.
  Bytes activation_memory_per_rank;
  DeviceKind device = DeviceKind::kAny;

  bool operator==(const ResourceSpec&) const = default;
};

// An option that the user sets, or leaves to the planner (kAuto).
enum class Choice : uint8_t { kAuto, kOff, kOn };
template <>
inline constexpr auto kEnumNames<Choice> = EnumTable("auto", "off", "on");

// Which model states the data-parallel ranks shard instead of replicating (Rajbhandari et al. 2020). Each value includes
// those before it: optimizer states, then gradients, then weights.
enum class ZeroStage : uint8_t { kAuto, kNone, kOptimizer, kGradients, kWeights };
template <>
inline constexpr auto kEnumNames<ZeroStage> = EnumTable("auto", "none", "optimizer", "gradients", "weights");

// Which passes of microbatches a rank runs side by side, so that one computes while another's collective is under way
// (planner/lower/weave.h). kAuto: the planner chooses the mode with the shortest step. kPairs, kQuads: the passes of 2 or 4
// consecutive microbatches; the schedule then moves groups of 2 or 4 microbatches. kNeighbours: neighbouring passes of the
// schedule as it is, which are mostly a forward and a backward.
enum class WeaveMode : uint8_t { kOff, kAuto, kPairs, kQuads, kNeighbours };
template <>
inline constexpr auto kEnumNames<WeaveMode> = EnumTable("off", "auto", "pairs", "quads", "neighbours");
// Microbatches in a group, 1 without groups. The mode must not be kAuto.
constexpr int32_t GroupOf(WeaveMode weave) { return weave == WeaveMode::kQuads ? 4 : weave == WeaveMode::kPairs ? 2 : 1; }
// The number of passes that run side by side.
constexpr int32_t StrandsOf(WeaveMode weave) { return weave == WeaveMode::kNeighbours ? 2 : GroupOf(weave); }

// How ranks are numbered: the degree whose number changes fastest comes first, as in the names of Megatron-LM. Context-parallel
// ranks (cp) always come right after tp. Ranks fill the nodes in this order. So with kTpPpDp, the stages of a replica are
// neighbours and replicas lie far apart; with kTpDpPp, the replicas of a stage are neighbours. kAuto: the planner chooses the
// order with the shorter step.
enum class RankOrder : uint8_t { kAuto, kTpPpDp, kTpDpPp };
template <>
inline constexpr auto kEnumNames<RankOrder> = EnumTable("auto", "tp-pp-dp", "tp-dp-pp");

// How layers are distributed over the stages. kExact: the longest stage, recomputation included, is as short as possible.
// The other values are baselines. kEven: the same number of layers each. kCompute: balances forward and backward time
// only. kGreedy: starts from the even split and moves one layer at a time out of the longest stage, recomputation
// included, as long as that makes the longest stage shorter (Lynx, arXiv 2406.08756).
enum class PartitionMethod : uint8_t { kExact, kEven, kCompute, kGreedy };
template <>
inline constexpr auto kEnumNames<PartitionMethod> = EnumTable("exact", "even", "compute", "greedy");
inline constexpr int kPartitionMethodCount = 4;

struct ParallelSpec {  // in all numbers, 0 = auto
  int32_t tp = 0;
  int32_t pp = 0;
  int32_t dp = 0;
  int32_t cp = 0;                            // context parallelism: ranks that share a sequence
  int32_t ep = 0;                            // expert parallelism: ranks that share the experts of a layer (layout.h)
  int32_t virtual_stages = 0;                // model chunks per rank; if above 1, the schedule must be interleaved, custom
                                             // or auto (which then chooses interleaved)
  Choice sequence_parallel = Choice::kAuto;  // whether norms and residuals are sharded over the tensor-parallel ranks
  ScheduleKind schedule = ScheduleKind::kAuto;
  std::string schedule_text;  // the schedule as ScheduleText prints it, if the kind is kCustom; otherwise empty
  ZeroStage zero = ZeroStage::kAuto;
  // Replicas that shard the states among them; dp is a multiple of it. Each group of this many consecutive replicas holds all
  // states, and reduced gradients are summed over the groups (MiCS: Zhang et al. 2022; FSDP's hybrid sharding). 0 = all
  // replicas (Normalize sets this to 0 if it equals dp).
  int32_t zero_group = 0;
  WeaveMode weave = WeaveMode::kAuto;
  RankOrder rank_order = RankOrder::kAuto;
  PartitionMethod partition = PartitionMethod::kExact;
  // The number of transformer layers of each stage, in the order of the model; with virtual stages, of each chunk. Each is at
  // least 1. There is one entry for each piece of the model (PipelineShape::pieces), so the length fixes the virtual stages.
  // Needs a pinned pp. Empty: `partition` decides.
  std::vector<int32_t> stage_layers;

  bool operator==(const ParallelSpec&) const = default;
};

// kAuto: the best of the modes below. kNone: store everything. kFull: store only each layer's input and recompute the rest on
// the critical path; this repeats the collective of the attention block. kFullKeepCollectives: kFull, but the result of that
// collective is stored, so that no collective is repeated. kSelective: recompute only the attention core (softmax, context)
// (Korthikanti et al. 2022). kUniform and kBlock: Megatron-LM's --recompute-method with N = RecomputeOptions::layers; both
// repeat collectives. kUniform stores only the input of the first layer in each group of N layers. kBlock recomputes everything
// in the first N layers of each stage, and stores everything in the other layers. kBalanced: recompute only norms and the
// activation function, but no matrix product and no attention (Yuan et al. 2024). kNoOverlap: windows are not used; each stage
// gets the choice with the least exposed time that fits. kHeu and kOpt: windows are used; the heuristic (kHeu) or the exact
// MILP (kOpt) chooses.
enum class RecomputeMode : uint8_t {
  kAuto,
  kNone,
  kFull,
  kFullKeepCollectives,
  kSelective,
  kUniform,
  kBlock,
  kBalanced,
  kNoOverlap,
  kHeu,
  kOpt,
};
template <>
inline constexpr auto kEnumNames<RecomputeMode> = EnumTable("auto", "none", "full", "full-keep-collectives", "selective",
                                                            "uniform", "block", "balanced", "no-overlap", "heu", "opt");

// The parts of a layer that kSelective recomputes, by Megatron Core's names (--recompute-modules). Each recomputes what it
// makes from its inputs, which are stored; it has no effect in layers that lack it. kCoreAttn: everything between the heads of
// queries, keys and values and the output of attention. kLayernorm: both norms. kMoeAct: the activation function of experts.
// kMlaUpProj: queries, keys and values of latent attention, from the latents. kMlp: the feed-forward block of layers without
// experts. kMoe: that of layers with experts, with the router and the dispatch of rows. kSharedExperts: the block that every
// token passes beside experts.
enum class RecomputeModule : uint8_t { kCoreAttn, kLayernorm, kMoeAct, kMlaUpProj, kMlp, kMoe, kSharedExperts };
template <>
inline constexpr auto kEnumNames<RecomputeModule> = EnumTable("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe",
                                                              "shared_experts");

struct RecomputeOptions {
  int32_t layers = 0;                    // N of kUniform and kBlock; 0 = the N with the shortest step that fits
  int32_t offload_permille = 0;          // share of the stored activations that are offloaded to the host, the same in all
                                         // layers as far as possible (Yuan et al. 2024)
  std::vector<RecomputeMode> forbidden;  // modes that kAuto may not choose; sorted; never contains kAuto
  bool forbids_offload = false;          // true: no mode may offload an activation to the host
  // What kSelective recomputes; sorted. Empty: the scores of unfused attention, and nothing if attention is fused.
  std::vector<RecomputeModule> modules;

  bool operator==(const RecomputeOptions&) const = default;
};

// kCopiesAuto: copies in memory are made as often as two limits allow. Training waits for copies for at most 1/20 of its time.
// The work for copies that runs at the same time as training takes at most 1/10 of the time.
inline constexpr int64_t kCopiesAuto = -1;

struct CheckpointSpec {
  std::string directory;    // "" = a directory below the server's data directory
  int64_t every_steps = 0;  // steps between checkpoints; 0 = only one at the end
  int32_t keep = 2;         // number of newest checkpoints that are kept; at least 1
  // Where the job begins: a checkpoint of another run, or a directory of checkpoints, of which the newest complete one is used.
  // "" = the job begins with initial weights. The CLI makes this path absolute, like DataSpec::path. The job takes only weights
  // from a checkpoint of step 0. From any other checkpoint it continues the other run, unless `weights_only` is set.
  std::string from;
  bool weights_only = false;
  // Steps between copies of the states in the nodes' memory (docs/checkpoints.md). 0 = no copies. See kCopiesAuto above.
  int64_t copy_every_steps = kCopiesAuto;

  bool operator==(const CheckpointSpec&) const = default;
};

// When a job runs, relative to other jobs (docs/scheduling.md).
struct SchedulingSpec {
  std::string queue = "default";   // [a-z0-9-]{1,48}
  int32_t priority = 0;            // -1000..1000; jobs with a higher number come first
  bool hold = false;               // true: the job waits until a person releases it
  std::vector<std::string> after;  // jobs, by id or name, that must have succeeded before this job begins
  Nanos time_limit;                // limit for the time of training, over all generations; 0 = no limit
  bool preemptible = true;         // true: the job stops, with a checkpoint, when a job of higher priority needs its devices

  bool operator==(const SchedulingSpec&) const = default;
};

// What happens to a job after one of its ranks has failed. kRetry: the job starts again, which uses one of max_restarts.
// kExcludeNode: the job starts again without that rank's node. kFail: the job fails.
enum class FailureAction : uint8_t { kRetry, kExcludeNode, kFail };
template <>
inline constexpr auto kEnumNames<FailureAction> = EnumTable("retry", "exclude-node", "fail");

// Matches failures with this exit code (128 + signal if a signal ended the rank), or failures whose reason or one of the
// rank's last lines contains this text. Exactly one of the two is set.
struct FailureRule {
  int32_t exit_code = -1;  // 0..255
  std::string log;
  FailureAction action = FailureAction::kRetry;

  bool operator==(const FailureRule&) const = default;
};

// When ranks check their devices and links before they train. kAuto: after failures that a node may have caused. kAlways: at
// the beginning of every generation. kNever: the ranks do not check.
enum class NodeCheckPolicy : uint8_t { kAuto, kAlways, kNever };
template <>
inline constexpr auto kEnumNames<NodeCheckPolicy> = EnumTable("auto", "always", "never");

struct JobSpec {
  std::string name;  // [a-z0-9-]{1,48}
  ModelSpec model;
  DataSpec data;
  TrainSpec train;
  ResourceSpec resources;
  ParallelSpec parallel;
  RecomputeMode recompute = RecomputeMode::kAuto;
  RecomputeOptions recompute_options;
  CheckpointSpec checkpoint;
  int32_t max_restarts = 3;  // automatic restarts after a lost rank or node
  SchedulingSpec scheduling;
  std::vector<FailureRule> on_failure;  // the first rule that matches decides; kRetry if no rule matches
  NodeCheckPolicy node_check = NodeCheckPolicy::kAuto;

  bool operator==(const JobSpec&) const = default;
};

// Fills in fields that follow from other fields (ffn, the degrees that a custom schedule fixes, and the virtual stages that
// stage_layers fix). Resets redundant fields to 0 (zero_group equal to dp, kv_heads equal to heads, head_dim equal to hidden /
// heads, rotary dims equal to the head size).
// Sorts the forbidden modes, and prints a custom schedule again with ScheduleText. Idempotent.
void Normalize(JobSpec& spec);

// Returns InvalidArgument if no planner could satisfy the spec. The error names the field's path in the job file
// ("train.globalBatch"), the value, and what would be right. The function checks ranges, that heads divide hidden, that a
// pinned tp divides heads and ffn, that a pinned pp is at most the number of layers, global_batch against dp and micro_batch,
// ranks against tp*cp*pp*dp, and fields that exclude each other. The spec must be normalized.
absl::Status ValidateJobSpec(const JobSpec& spec);

// Checks the name of a job or a queue; the error names `field`.
absl::Status ValidateName(const std::string& name, const char* field);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_JOB_SPEC_H_
