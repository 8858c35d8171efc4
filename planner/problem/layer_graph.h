// The layer graph describes, for each layer type of a model on one tensor-parallel rank, the ops, the tensors that they read
// and write, and the segments between collectives. It is the only source of names, shapes, bytes and FLOPs: the cost model, the
// memory model, the lowering, the profiler and the engine all read it.
//
// Layer types. A model is an embedding layer, `layers` transformer layers and a head layer (final norm, output projection,
// loss). All transformer layers have one shape, unless the first ones have no experts (LayerKinds in layer_kinds.h).
//
// Graphs. The ops of a layer depend on the model's family, the attention kernel, whether dropout masks are stored and whether
// the norms are sharded (sequence parallelism): LayerGraph::Of(shape) is the graph of a shape. An op or tensor means the same
// in all graphs that have it. The lists of segments below use two short names:
//   core   unfused attention: probs context; unfused attention with stored masks: probs drop context; fused attention: flash
//   act    GPT: gelu; Llama: silu swiglu
// The lists show GPT. Llama has rope after qkv, and has no position. If queries and keys have norms, qk_norm comes between qkv
// and rope. If masks are stored, mask1 and mask2 come before add1 and add2.
//
// Segments. A segment is the sequence of ops between two collectives of a pass. An overlap window opens at its end. The last
// ops of a layer's pass are the segment `end`; no collective follows them. Forward and backward collectives are in different
// places (Megatron's g and f), so an op belongs to one segment for each pass. AR is an all-reduce, AG an all-gather, RS a
// reduce-scatter. A collective whose name begins with B carries gradients:
//
//   transformer, forward:   attn = ln1 qkv core proj | AR |  mlp = add1 ln2 fc1 act fc2 | AR |  end = add2
//   transformer, backward:  mlp = add2 fc2 act fc1 | BAR |  attn = ln2 add1 proj core qkv | BAR |  end = ln1
//   embedding:  forward embed = embed | AR | end = position;   backward embed = position embed (no collective)
//   head:       forward head = lnf logits | AG of loss statistics | end = loss;  backward head = loss logits | BAR | end = lnf
//
// Sequence parallelism (Korthikanti et al. 2022): norms, residuals and dropout work on a rank's share of the sequence:
//
//   transformer, forward:   norm1 = ln1 | AG | attn = qkv core proj | RS | norm2 = add1 ln2 | AG | mlp = fc1 act fc2 | RS |
//                           end = add2
//   transformer, backward:  out = add2 | BAG | mlp = fc2 act fc1 | BRS | norm2 = ln2 add1 | BAG | attn = proj core qkv |
//                           BRS | end = ln1
//   embedding:  forward embed = embed | RS | end = position;  backward out = position | BAG | embed = embed
//   head:       forward norm1 = lnf | AG | head = logits | AG of loss statistics | end = loss;  backward head = loss logits |
//               BRS | end = lnf
//
// Experts. The feed-forward block of a model with experts (MoeSpec; Llama only) works on rows: each token is a row once for
// each of its experts. If tp > 1, sequence parallelism is on, so a rank has its own share of the tokens. DA is the all-to-all
// that sends rows to the ranks of their experts ("dispatch"), CA the one that brings the results back ("combine"); both work in
// the expert group. With ep above 1:
//
//   transformer, forward:   norm1 = ln1 | AG | attn = qkv core proj | RS | norm2 = add1 ln2 router permute | DA |
//                           mlp = fc1 silu swiglu fc2 | CA | end = unpermute add2
//   transformer, backward:  out = add2 unpermute | BCA | mlp = fc2 swiglu silu fc1 | BDA |
//                           norm2 = permute router ln2 add1 | BAG | attn = proj core qkv | BRS | end = ln1
//
// Experts beside a block that every token passes (MoeSpec::shared_ffn). The block works on the rank's own tokens with whole
// weights, as the router does, so it needs no collective. Its ops are shared_fc1 shared_swiglu shared_fc2, in this order after
// fc2 in the forward mlp; unpermute adds their result. shared_swiglu also multiplies by the block's gate, if it has one. In the
// backward pass they come after unpermute, in the reverse order. So with ep above 1 their weight gradients run beside BCA, the
// only window after which no other weight gradient is ready (docs/moe.md). shared_fc1 begins the sum grad_ln2, to which permute
// and router add.
//
// Experts whose rows go through rounds if they have no room (expert_rounds.h). The rounds of the forward pass belong to
// unpermute, which then also reads ln2. Those of the backward pass belong to permute, which then also reads ln2 and grad_fc2,
// and adds to the gradients of the experts' weights. A round needs no tensor but workspace.
//
// Latent attention (LatentSpec; Llama with fused attention only): latent and latent_norm come between ln1 and qkv, in the
// segment attn. Every tensor-parallel rank computes all latents, with whole weights; qkv makes the queries, keys and values of
// the rank's heads from them. If query_rank is 0, qkv makes the queries from ln1 (or ln1_full) itself.
//
// Without sequence parallelism, tp is 1: the ops of norm1 are in attn, and the ops of the backward norm2 are in the backward
// attn. With ep 1 there is no DA and no CA: the ops of the forward norm2 and of the backward out and norm2 are in mlp (without
// sequence parallelism: those of the backward norm2 are in attn). swiglu also multiplies by the weight of the row (as
// Megatron-Core does), so no backward op reads the results of fc2. The rows on the sending rank (rows) are never stored: to
// recompute expert_rows, permute runs again and is followed by DA.
//
// A gathered tensor (ln1_full, ln2_full, lnf_full) is never stored. The backward pass gathers it again from the ranks' shares,
// for the weight gradients and for what is recomputed from the tensor. Llama's embedding has no op for `end` and `out`. So
// it has no segment `end`, and its segment `out` contains only the gather.
//
// In-place tensors. proj writes a partial sum into x1; the collective and add1 (residual + dropout + bias) then change x1 in
// place. fc2, its collective and add2 do the same with the x of the next layer. So recomputing x1 means running proj, the
// collective and add1 again. With sequence parallelism the partial sums have their own buffers (proj_sum, fc2_sum, embed_sum),
// because x1 and x hold only a rank's share. Each stage has one gradient buffer per microbatch (`grad`, shape of x), which the
// layers' backward passes change in place, one after the other.
//
// Encoders (BERT; PlanOnlyFeature::kEncoder) have the graph of GPT. Attention goes in both directions, so fused attention has
// no causal half. position also adds embeddings of token types and norms the sum. lnf is the head for masked tokens without its
// output projection: a product (h, h), its GELU and a norm, all on the rank's share of the tokens, with whole weights; lnf
// holds the results of all three. Its parameters include the biases of the output projection, and its product runs with logits.
// Norms after attention and after the feed-forward block, as BERT has them, have the bytes and times of those before.
//
// Dropout masks are functions of counters. They are not stored, unless the model says so. The backward pass of a norm computes
// mean and rstd again from the norm's input. The backward pass of probs (softmax) and context reads probs, and draws the masks
// of attention dropout again.
//
// Letters in shapes: b microbatch, s sequence, c context-parallel size, h hidden, a heads, k key/value heads, d head size (h/a
// unless a model says otherwise), f feed-forward width, v vocabulary, t tensor-parallel size. q = s/c, the tokens per rank. n =
// q, or q/t with sequence parallelism. Elements have the model's data type unless a comment says otherwise; with narrow
// products, inputs of linears are kept quantised (planner/problem/narrow_products.h). Pure values; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_LAYER_GRAPH_H_
#define LYNX_PLANNER_PROBLEM_LAYER_GRAPH_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/enum_names.h"
#include "common/units.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layout.h"
#include "planner/schedule/schedule.h"

namespace lynx {

enum class LayerType : uint8_t { kEmbedding, kTransformer, kHead };
inline constexpr int kLayerTypeCount = 3;
template <>
inline constexpr auto kEnumNames<LayerType> = EnumTable("embedding", "transformer", "head");
static_assert(kEnumNames<LayerType>.size() == kLayerTypeCount);

enum class Segment : uint8_t { kNone, kEmbed, kNorm1, kAttn, kNorm2, kMlp, kHead, kOut, kEnd };
inline constexpr int kSegmentCount = 9;
template <>
inline constexpr auto kEnumNames<Segment> = EnumTable("none", "embed", "norm1", "attn", "norm2", "mlp", "head", "out", "end");
static_assert(kEnumNames<Segment>.size() == kSegmentCount);
// Parses the name of a segment. "none" is refused, because no action has this segment; the name "none" is only printed.
constexpr bool ParseEnum(std::string_view name, Segment& segment) {
  Segment parsed = Segment::kNone;
  if (!ParseEnum<Segment>(name, parsed) || parsed == Segment::kNone) return false;
  segment = parsed;
  return true;
}

enum class Op : uint8_t {
  // embedding
  kEmbed,
  kPosition,
  // transformer
  kLn1,
  kQkv,
  kRope,
  kProbs,
  kDrop,
  kContext,
  kFlash,
  kProj,
  kMask1,
  kAdd1,
  kLn2,
  kFc1,
  kGelu,
  kSilu,
  kSwiglu,
  kFc2,
  kMask2,
  kAdd2,
  // head
  kLnf,
  kLogits,
  kLoss,
  // transformer; these must stay last, because dropout's random numbers depend on the numbers of the other ops
  kQkNorm,
  // transformer with experts
  kRouter,
  kPermute,
  kUnpermute,
  // latent attention
  kLatent,
  kLatentNorm,
  // the feed-forward block of a model with experts that every token passes
  kSharedFc1,
  kSharedSwiglu,
  kSharedFc2,
};
inline constexpr int kOpCount = 32;
template <>
inline constexpr auto kEnumNames<Op> = EnumTable("embed", "position", "ln1", "qkv", "rope", "probs", "drop", "context", "flash",
                                                 "proj", "mask1", "add1", "ln2", "fc1", "gelu", "silu", "swiglu", "fc2",
                                                 "mask2", "add2", "lnf", "logits", "loss", "qk_norm", "router", "permute",
                                                 "unpermute", "latent", "latent_norm", "shared_fc1", "shared_swiglu",
                                                 "shared_fc2");
static_assert(kEnumNames<Op>.size() == kOpCount);

// A set of ops: a bit mask in which bit i is the op with number i.
using OpSet = uint64_t;
constexpr OpSet Bit(Op op) { return OpSet{1} << static_cast<int>(op); }
constexpr bool Contains(OpSet set, Op op) { return (set & Bit(op)) != 0; }

enum class Tensor : uint8_t {
  // forward tensors; a recomputation policy decides about those of the transformer layers
  kX,             // (b, n, h)       input of a layer; the layer number in its BufferKey is that of the layer that reads it
  kLn1,           // (b, n, h)       norm of x
  kLn1Full,       // (b, q, h)       gathered ln1
  kQkv,           // (b, q, (a + 2k)/t, d)  queries, keys and values; rope changes them in place, if they have no norms; latent
                  // attention: (b, q, a/t, 2d + e), where a head of values has e elements
  kQkNormed,      // (b, q, (a + 2k)/t, d)  qkv after the norms of queries and keys, values unchanged; rope changes it in place
  kProbs,         // (b, a/t, q, s)  softmax of the masked scores, before dropout
  kProbsMask,     // (b, a/t, q, s)  one byte per element; the mask of attention dropout
  kProbsDropped,  // (b, a/t, q, s)  probs after dropout
  kContext,       // (b, q, a/t, d)  output of attention, before proj; latent attention: (b, q, a/t, e)
  kLse,           // (b, a/t, q)     32-bit log-sum-exp of the scores' rows
  kProjSum,       // (b, q, h)       partial sum of proj, with sequence parallelism
  kX1,            // (b, n, h)       x plus the output of the attention block; input of ln2
  kMask1,         // (b, n, h)       one byte per element; the mask of add1's dropout
  kLn2,           // (b, n, h)       norm of x1
  kLn2Full,       // (b, q, h)       gathered ln2
  kFc1,           // (b, q, f/t)     output of fc1; Llama: (b, q, 2, f/t), gate and up; experts: (R, 2, w)
  kGelu,          // (b, q, f/t)     gelu(fc1)
  kSilu,          // (b, q, f/t)     silu(gate); experts: (R, w)
  kSwiglu,        // (b, q, f/t)     silu(gate) * up; experts: (R, w), multiplied by the row's weight
  kFc2Sum,        // (b, q, h)       partial sum of fc2, with sequence parallelism; experts: (b, n, h), output of shared_fc2
  kMask2,         // (b, n, h)       one byte per element; the mask of add2's dropout
  kEmbedSum,      // (b, q, h)       partial sum of embed, with sequence parallelism
  kEmbedMask,     // (b, n, h)       one byte per element; the mask of position's dropout
  kLnf,           // (b, n, h)       final norm of the head; encoders: (3, b, n, h), see above
  kLnfFull,       // (b, q, h)       gathered lnf
  kLogits,        // (b, q, ceil(v/t))  32-bit; the gradient of the logits overwrites it
  kLossStats,     // (t, b, q, 3)    32-bit; for each vocabulary shard: max, sum of exp(logit - max), target logit; logits
                  // writes it
  // gradients, which the backward pass computes
  kGrad,     // (b, n, h)       gradient of x; each layer's backward pass changes it in place; its key has the layer
             // kNoLayer
  kGradFc2,  // (b, q, h)       gradient of fc2's output, which is before dropout; gathered in place with sequence parallelism;
             // experts: (b, n, h), gradient of unpermute's output
  kGradFc1,  // shape of fc1; GPT: gradient of gelu's output, then overwritten by the gradient of fc1's output
  kGradSwiglu,   // (b, q, f/t)     gradient of swiglu; experts: (R, w)
  kGradLn2,      // (b, q, h)       gradient of ln2; a partial sum, reduced in place; experts: (b, n, h), not a partial sum
  kGradProj,     // (b, q, h)       gradient of proj's output; with sequence parallelism gathered in place
  kGradContext,  // shape of context; gradient of context
  kGradQkv,      // shape of qkv; gradient of qkv
  kGradLn1,      // (b, q, h)       gradient of ln1; a partial sum, reduced in place
  kGradLnf,      // (b, q, h)       gradient of lnf; a partial sum, reduced in place
  kGradEmbed,    // (b, q, h)       grad gathered from the ranks' shares, with sequence parallelism
  // experts, forward. r: sent_rows(), R: expert_rows() of LayerShape; w: the width of an expert. Rows have the order of the
  // global numbers of their experts. With a capacity, each expert's rows from each rank have a room of their own, filled from
  // its beginning.
  kScores,      // (b, n, E)  32-bit; the router's products, before softmax
  kRoute,       // (b, n, top_k, 3)  32-bit: the number of the expert, its weight, and the row's place among the rows that the
                // rank sends; below 0: the row has no room (RouteChoice in worker/backend/backend.h)
  kRows,        // (r, h)  ln2 of each token, once for each of its experts
  kRowWeights,  // (r)     32-bit; the weight of each row; -1 where a room has no row
  kExpertRows,  // (R, h)  the rows of the rank's experts
  kExpertWeights,  // (R)     32-bit; their weights
  kExpertOut,      // (R, h)  output of fc2
  kCombined,       // (r, h)  expert_out, back on the rank of the tokens
  // experts, gradients; shapes of the tensors without "grad"
  kGradCombined,
  kGradExpertOut,
  kGradExpertRows,
  kGradExpertWeights,
  kGradRows,
  kGradRowWeights,
  kGradScores,
  // latent attention; z: numbers of latent_width() of LayerShape
  kLatent,        // (b, q, z)  the products from which queries, keys and values are made
  kLatentNormed,  // (b, q, z)  latent after the norms of its two parts; the rotated part of the keys is unchanged
  kGradLatent,    // (b, q, z)  gradient of latent_normed, then overwritten by the gradient of latent
  // the block that every token passes; u: shared_ffn. Its output is fc2_sum, and the output's gradient is grad_fc2
  kSharedFc1,      // (b, n, 2, u)  gate and up; with a shared_gate, then (b, n), 32-bit: its sigmoids
  kSharedSwiglu,   // (b, n, u)     silu(gate) * up
  kGradSharedFc1,  // shape of shared_fc1; with a shared_gate, the last part is the gradient of the gate's product
  kGradSharedSwiglu,
  // weights; these tensors exist only if ZeRO shards the weights or gradients (planner/program/state_sharing.h)
  kWeights,          // weights of one layer, gathered for the layer's passes
  kWeightGradients,  // in ModelSpec::gradient_dtype; weight gradients of one layer, summed since the last reduction
  kWorkspace,        // memory that one action uses while it runs
};
inline constexpr int kTensorCount = static_cast<int>(Tensor::kWorkspace) + 1;
template <>
inline constexpr auto kEnumNames<Tensor> =
    EnumTable("x", "ln1", "ln1_full", "qkv", "qk_normed", "probs", "probs_mask", "probs_dropped", "context", "lse", "proj_sum",
              "x1", "mask1", "ln2", "ln2_full", "fc1", "gelu", "silu", "swiglu", "fc2_sum", "mask2", "embed_sum", "embed_mask",
              "lnf", "lnf_full", "logits", "loss_stats", "grad", "grad_fc2", "grad_fc1", "grad_swiglu", "grad_ln2", "grad_proj",
              "grad_context", "grad_qkv", "grad_ln1", "grad_lnf", "grad_embed", "scores", "route", "rows", "row_weights",
              "expert_rows", "expert_weights", "expert_out", "combined", "grad_combined", "grad_expert_out", "grad_expert_rows",
              "grad_expert_weights", "grad_rows", "grad_row_weights", "grad_scores", "latent", "latent_normed", "grad_latent",
              "shared_fc1", "shared_swiglu", "grad_shared_fc1", "grad_shared_swiglu", "weights", "weight_grads", "workspace");
static_assert(kEnumNames<Tensor>.size() == kTensorCount);
static_assert(kTensorCount <= 64);  // TensorSet

// A set of tensors: a bit mask in which bit i is the tensor with number i.
using TensorSet = uint64_t;
constexpr TensorSet Bit(Tensor tensor) { return TensorSet{1} << static_cast<int>(tensor); }
constexpr bool Contains(TensorSet set, Tensor tensor) { return (set & Bit(tensor)) != 0; }

// kAllToAll works in the expert group, the others in the tensor-parallel group.
enum class Collective : uint8_t { kNone, kAllReduce, kAllGather, kReduceScatter, kAllToAll };

// Everything that determines the cost and size of a rank's ops. Measured profiles use it as their key.
struct LayerShape {
  int32_t micro_batch = 0;
  int32_t seq = 0;
  int32_t hidden = 0;
  int32_t heads = 0;
  int32_t ffn = 0;
  int32_t vocab = 0;
  int32_t tp = 1;
  bool dropout = false;  // true if the dropout rate is above 0
  ModelFamily family = ModelFamily::kGpt;
  int32_t kv_heads = 0;  // 0 = as many as heads
  AttentionKernel attention = AttentionKernel::kUnfused;
  DataType dtype = DataType::kFloat32;
  bool stored_masks = false;       // true only if dropout is true
  bool sequence_parallel = false;  // true only if tp > 1
  int32_t cp = 1;
  int32_t head_dim = 0;   // 0 = hidden / heads
  bool qkv_bias = false;  // Llama only; GPT always has these biases
  bool qk_norm = false;
  bool qk_norm_whole = false;  // ModelSpec::qk_norm_whole
  int32_t rotary_dims = 0;     // elements of a head that are rotated; 0 = all
  // Shapes with narrow products are planned only, so nobody measures them.
  MatmulType matmul_type = MatmulType::kModel;
  DataType gradient_dtype = DataType::kFloat32;  // the same holds for sums of gradients in 16 bits
  // experts: see MoeSpec and ParallelLayout::ep; without experts, these have their default values
  int32_t experts = 0;  // of all ranks of the expert group
  int32_t top_k = 0;
  int32_t expert_ffn = 0;
  int32_t ep = 1;
  int32_t capacity_permille = 0;  // MoeSpec::capacity in thousandths, rounded up
  int32_t skew_permille = 1000;   // MoeSpec::skew in thousandths, rounded up
  bool dropless = false;          // MoeSpec::dropless; true only with a capacity
  int32_t shared_ffn = 0;         // MoeSpec::shared_ffn
  bool shared_gate = false;       // MoeSpec::shared_gate
  // Latent attention: see LatentSpec.
  int32_t query_rank = 0;
  int32_t kv_rank = 0;
  int32_t value_dim = 0;
  bool encoder = false;  // PlanOnlyFeature::kEncoder; GPT only

  auto operator<=>(const LayerShape&) const = default;
  int64_t tokens() const { return int64_t{micro_batch} * (seq / cp); }                   // b * q
  int64_t shard_tokens() const { return sequence_parallel ? tokens() / tp : tokens(); }  // b * n
  int32_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  int32_t head_size() const { return head_dim == 0 ? hidden / heads : head_dim; }
  int32_t value_size() const { return latent() ? value_dim : head_size(); }  // elements of a head of values
  // qkv_width: width of qkv on one rank, (a + 2k) / t heads. context_width: width of attention's output, a / t heads.
  int64_t qkv_width() const {
    if (latent()) return int64_t{heads} / tp * (2 * head_size() + value_dim);
    return int64_t{heads + 2 * key_heads()} / tp * head_size();
  }
  int64_t context_width() const { return int64_t{heads} / tp * value_size(); }
  // Numbers of each token that latent attention makes first: those of the queries, those of keys and values, and the rotated
  // part of the keys.
  int32_t latent_width() const { return latent() ? query_rank + kv_rank + rotary_dims : 0; }
  bool has_qkv_bias() const { return qkv_bias || family == ModelFamily::kGpt; }
  // Width of the feed-forward block on one rank: f / t, or the width of an expert.
  int64_t mlp_width() const { return moe() ? expert_ffn : int64_t{ffn} / tp; }
  int64_t mlp_rows() const { return moe() ? expert_rows() : tokens(); }
  int64_t fc1_width() const { return mlp_width() * (family == ModelFamily::kLlama ? 2 : 1); }
  int32_t own_experts() const { return moe() ? experts / ep : 1; }  // blocks that a rank holds
  int32_t vocab_shard() const { return (vocab + tp - 1) / tp; }
  bool moe() const { return experts > 0; }
  bool latent() const { return kv_rank > 0; }
  // Rows of one expert that one rank has room for (with a capacity): ceil(capacity * top_k * b n / E), at most b n, because a
  // token goes to an expert at most once.
  int64_t expert_room() const;
  // Rows of one expert for which one rank has room in a round (expert_rounds.h): a quarter of its room, at least 1, and no more
  // than the rows that may be without room. 0: the model drops rows, or every row has room.
  int64_t round_room() const;
  // Rows that a rank sends to experts: its tokens, once for each of their experts; with a capacity, the rooms of all experts.
  int64_t sent_rows() const;
  // Rows that the experts of a rank have room for. With a capacity this is as much as a rank sends: E / ep experts with rows
  // from ep ranks. Otherwise it is the even share of the rows of the ranks, times the skew, but each token of the group at most
  // once for each of the rank's experts.
  int64_t expert_rows() const;
  // Rows that a rank computes, if the rows are spread as MoeSpec::skew says: at most expert_rows(), unless rows beyond these
  // go through rounds.
  int64_t filled_rows() const;
  // Number of ranks of the collective's group.
  int32_t MembersOf(Collective kind) const { return kind == Collective::kAllToAll ? ep : tp; }
  int64_t element_bytes() const { return dtype == DataType::kBfloat16 ? 2 : 4; }
  int64_t gradient_bytes() const { return gradient_dtype == DataType::kBfloat16 ? 2 : 4; }  // of a weight's gradient
};
// The shape of all layers, except of the layers without experts in a model that has experts (DenseShape).
LayerShape ShapeOf(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch);
// The shape of the layers of the same model that have no experts (MoeSpec::dense_layers): the same, without everything that
// experts need.
LayerShape DenseShape(LayerShape shape);

// kUpdate: the op reads and writes the tensor in place. kAccumulate: the op adds to the tensor; the first op that does so
// starts a new sum. kRelease: the op reads the tensor for the last time; the next op that adds to the tensor starts a new sum.
enum class AccessMode : uint8_t { kWrite, kRead, kUpdate, kAccumulate, kRelease };

struct TensorUse {
  Tensor tensor;
  AccessMode mode;
};

// The collective that ends a segment when its group has more than one rank. It reduces or gathers the tensor `from` of all
// ranks of the group, and writes the result to the tensor `to`. If `from` and `to` are the same tensor, it works in place.
// Without a collective, `from` and `to` are kWorkspace. kX in `to` means the x of the next layer.
struct CollectiveInfo {
  Collective kind = Collective::kNone;
  Tensor from = Tensor::kWorkspace;
  Tensor to = Tensor::kWorkspace;
  // kAllToAll only: a second pair of tensors that the same collective moves, with one element for each row of the first pair;
  // kWorkspace if there is none.
  Tensor from_weights = Tensor::kWorkspace;
  Tensor to_weights = Tensor::kWorkspace;
};

// One op of a graph. Its forward pass uses `reads`, `output` and `side_outputs`; its backward pass `backward_reads` and
// `gradients`; its weight pass `weight_reads` and `weight_gradients`.
struct OpInfo {
  Op op;
  LayerType layer_type;
  Segment forward_segment;
  Segment backward_segment;
  std::vector<Tensor> reads;             // tensors that the forward pass reads
  Tensor output;                         // tensor that the forward pass writes. kX: the x of the next layer, or, for the
                                         // embedding, of the first layer. kWorkspace: the op writes no tensor (loss)
  bool in_place;                         // the forward pass also reads the output (add1, add2, position, rope)
  std::vector<Tensor> backward_reads;    // forward tensors that the input-gradient pass reads
  std::vector<TensorUse> gradients;      // gradient tensors that the input-gradient pass reads or writes
  std::vector<Tensor> weight_reads;      // forward tensors that the weight-gradient pass reads
  std::vector<Tensor> weight_gradients;  // gradient tensors that the weight-gradient pass reads
  // a W action computes the op's weight gradient (linear layers, biases of add1/add2); for norms, embedding and positions the
  // input-gradient pass computes it
  bool has_weight_pass;
  std::vector<Tensor> side_outputs = {};  // written in addition to `output`: masks, log-sum-exp, loss statistics
};

// The ops and segments of one kind of model. Immutable. There is one object per kind, which lives until the program ends.
class LayerGraph {
 public:
  static const LayerGraph& Of(const LayerShape& shape);

  const std::vector<OpInfo>& ops() const { return ops_; }  // in forward order within each layer type
  bool Has(Op op) const { return index_[static_cast<size_t>(op)] >= 0; }
  const OpInfo& InfoOf(Op op) const;  // the graph must have the op
  // Ops of a segment in one pass, in the order in which the pass runs them. For kWeight: those ops of the backward segment that
  // have a weight pass.
  const std::vector<Op>& OpsOf(LayerType type, Segment segment, Pass pass) const;
  // Segments of a layer type, in the order in which the pass runs them. The pass is kForward or kBackward.
  const std::vector<Segment>& SegmentsOf(LayerType type, Pass pass) const;
  bool HasSegment(LayerType type, Segment segment, Pass pass) const;
  // The tensor-parallel collective that ends the segment in that pass (when t > 1).
  const CollectiveInfo& CollectiveOf(LayerType type, Segment segment, Pass pass) const;
  bool EndsInCollective(LayerType type, Segment segment, Pass pass) const {
    return CollectiveOf(type, segment, pass).kind != Collective::kNone;
  }
  // The segments of a transformer layer after which another segment follows, in the order of the pass. A segment that ends in a
  // collective has an overlap window there if data moves (Transfers); with experts, not every segment ends in one. There are at
  // most 4.
  const std::vector<Segment>& WindowsOf(Pass pass) const { return windows_[pass == Pass::kForward ? 0 : 1]; }

  // Forward tensors of a transformer layer that can be recomputed. Each tensor comes after the tensors that its producers read.
  // There are at most kMaxRecomputable.
  const std::vector<Tensor>& recomputable() const { return recomputable_; }
  int RecomputableIndex(Tensor tensor) const;  // -1: the tensor cannot be recomputed
  // The ops that compute a tensor; to recompute it, they run again. For x1 they are proj and add1, with a collective between
  // them.
  const std::vector<Op>& ProducersOf(Tensor tensor) const;
  // All tensors that the producers of `tensor` write, and `tensor` itself. For example, the producer of probs_dropped also
  // writes its mask, and the producer of context also writes lse.
  const std::vector<Tensor>& MadeWith(Tensor tensor) const;
  // The recomputable tensors, except `tensor` itself, that the producers of `tensor` read. If a producer reads a gathered
  // tensor, the set contains instead the tensor from which it is gathered (ShareOf).
  TensorSet InputsOf(Tensor tensor) const { return inputs_[static_cast<size_t>(tensor)]; }
  // True if the tensor cannot be recomputed without a collective (when its group has more than one rank): x1, with sequence
  // parallelism every tensor whose producers read a gathered tensor, and with expert parallelism expert_rows.
  bool RepeatsCollective(Tensor tensor) const;
  // Recomputable tensors that the B or W action of a backward segment reads. For a gathered tensor, the set contains the
  // share from which the tensor is gathered (ShareOf).
  TensorSet ReadBy(Segment backward_segment) const { return read_by_[static_cast<size_t>(backward_segment)]; }
  // For a gathered tensor: the share from which it is gathered (ShareOf), and the segment whose collective gathers it. For any
  // other tensor: the tensor itself, and kNone.
  Tensor ShareOf(Tensor tensor) const;
  Segment GatherSegmentOf(Tensor tensor) const;

 private:
  struct Kind {
    ModelFamily family = ModelFamily::kGpt;
    bool fused = false, stored_masks = false, sequence_parallel = false, qk_norm = false, moe = false, exchanged = false,
         shared = false, latent = false, direct = false, rounds = false;
    auto operator<=>(const Kind&) const = default;
  };
  explicit LayerGraph(const Kind& kind);
  void AddSegments(const Kind& kind);
  void AddCollectives(const Kind& kind);
  void FindRecomputable();
  TensorSet FindInputs(Tensor tensor) const;
  TensorSet FindReadBy(Segment backward_segment) const;

  template <class T>
  using BySegment = std::array<std::array<std::array<T, 3>, kSegmentCount>, kLayerTypeCount>;

  std::vector<OpInfo> ops_;
  std::array<int8_t, kOpCount> index_{};
  BySegment<std::vector<Op>> ops_of_;
  BySegment<CollectiveInfo> collectives_;
  std::array<std::array<std::vector<Segment>, 2>, kLayerTypeCount> segments_;
  std::array<std::vector<Segment>, 2> windows_;
  std::vector<Tensor> recomputable_;
  std::array<std::vector<Op>, kTensorCount> producers_;
  std::array<std::vector<Tensor>, kTensorCount> made_with_;
  std::array<TensorSet, kTensorCount> inputs_{};
  std::array<TensorSet, kSegmentCount> read_by_{};
};
// True if the segment ends in a collective whose group has more than one rank, so that data moves.
bool Transfers(const LayerShape& shape, LayerType type, Segment segment, Pass pass);
// True if any collective of a transformer layer moves data.
inline bool HasCollectives(const LayerShape& shape) { return shape.tp > 1 || shape.ep > 1; }

inline constexpr Bytes kBufferAlignment{256};  // alignment of every buffer in an arena
// The bytes that a buffer takes in an arena.
constexpr Bytes Padded(Bytes bytes) {
  const int64_t unit = kBufferAlignment.value;
  return Bytes((bytes.value + unit - 1) / unit * unit);
}
inline constexpr int kMaxRecomputable = 16;
inline constexpr int kMaxWindows = 4;

// Bytes of a tensor. LYNX_CHECK fails for kWorkspace, kWeights and kWeightGradients: see WorkspaceBytes and LayerParameters.
Bytes TensorBytes(Tensor tensor, const LayerShape& shape);
// Bytes of the gate of the block that every token passes, at the end of shared_fc1; 0 if it has none.
Bytes GateBytes(const LayerShape& shape);
// Bytes of a recomputable tensor and of all tensors that are made with it (MadeWith). Each is padded to kBufferAlignment, as in
// an arena.
Bytes StoredBytes(Tensor tensor, const LayerShape& shape);
Bytes WorkspaceBytes(Op op, Pass pass, const LayerShape& shape);
// Context parallelism as in Llama 3 (Dubey et al. 2024, section 3.3.2): before the attention core, a rank gathers the keys and
// values of the whole sequence, (b, s, 2k/t, d). This function returns the bytes of these keys and values; 0 if cp is 1. The
// backward pass gathers them again and reduce-scatters their gradients. In each of these collectives, every rank of the ring
// sends (c - 1)/c of the bytes.
Bytes ContextGatherBytes(const LayerShape& shape);
// Bytes, on one rank, of the whole tensor that the collective at the segment's end reduces or gathers.
Bytes CollectiveBytes(LayerType type, Segment segment, Pass pass, const LayerShape& shape);
// FLOPs of matrix products; a multiply-add counts as 2. All other ops have 0, because memory traffic limits them. Pass:
// kForward, kBackward (input gradient) or kWeight. Unfused attention counts the full square of scores, fused attention only its
// causal half.
int64_t OpFlops(Op op, Pass pass, const LayerShape& shape);
// Bytes that the op reads from and writes to memory, its weights included. The roofline of memory-bound ops uses them.
Bytes OpTraffic(Op op, Pass pass, const LayerShape& shape);
// Parameters of one op on one tensor-parallel rank. Matrices are sharded over t. Every rank holds all parameters of norms, of
// biases that follow a collective (add1, add2), of the router, of latent and of the block that every token passes (shared_fc1,
// shared_fc2). fc1 and fc2: those of the rank's experts. The output projection has no bias. Llama has no biases except
// qkv_bias.
int64_t OpParameters(Op op, const LayerShape& shape);
// Parameters of one layer of that type on one tensor-parallel rank. The parameters of the head include the output projection
// even if its weights are those of the embedding, because a stage that has only one of the two layers holds these weights.
int64_t LayerParameters(LayerType type, const LayerShape& shape);
// The part of the parameters of one transformer layer on one rank that belongs to experts: 3 h w E / ep. The ranks that hold
// the same experts sum its gradients and shard its states (ExpertReplicas in layout.h). 0 without experts.
int64_t ExpertParameters(const LayerShape& shape);
// Parameters of the whole model; tied embeddings count once. The first layers may have no experts (MoeSpec::dense_layers).
int64_t ModelParameters(const ModelSpec& model);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LAYER_GRAPH_H_
