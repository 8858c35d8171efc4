// The layer graph: for each layer type of a model on one tensor-parallel rank, the ops, the tensors that they read and
// write, and the segments between collectives. It is the only source of names, shapes, bytes and FLOPs: the cost model,
// the memory model, the lowering, the profiler and the engine all read it.
//
// Layer types. A model is an embedding layer, `layers` transformer layers and a head layer (final norm, output
// projection, loss).
//
// Graphs. The ops of a layer depend on the model's family, the attention kernel, whether dropout masks are stored and
// whether the norms are sharded (sequence parallelism): LayerGraph::Of(shape) is the graph of a shape. An op or tensor
// means the same in all graphs that have it. `core` below stands for
//   unfused attention           probs context the same, masks stored      probs drop context fused attention             flash
//   and `act` for gelu (GPT) or silu swiglu (Llama). Llama has rope after qkv and no position. If queries and keys have norms,
//   qk_norm comes between qkv and rope. If masks are stored, mask1 and mask2 come before add1 and add2.
//
// Segments. A segment is the sequence of ops between two collectives of a pass; an overlap window opens at its end. The last
// ops of a layer's pass, after which no collective follows, are the segment `end`. Forward and backward collectives are in
// different places (Megatron's g and f), so an op belongs to one segment per pass. AR is an all-reduce, AG an all-gather, RS a
// reduce-scatter; with a leading B the collective carries gradients:
//
//   transformer, forward:   attn = ln1 qkv core proj | AR |  mlp = add1 ln2 fc1 act fc2 | AR |  end = add2
//   transformer, backward:  mlp = add2 fc2 act fc1 | BAR |  attn = ln2 add1 proj core qkv | BAR |  end = ln1
//   embedding:  forward embed = embed | AR | end = position;   backward embed = position embed (no collective)
//   head:       forward head = lnf logits | AG of loss statistics | end = loss;  backward head = loss logits | BAR | end = lnf
//
// With sequence parallelism (Korthikanti et al. 2022) norms, residuals and dropout work on a rank's share of the
// sequence:
//
//   transformer, forward:   norm1 = ln1 | AG | attn = qkv core proj | RS | norm2 = add1 ln2 | AG | mlp = fc1 act fc2 | RS |
//                           end = add2
//   transformer, backward:  out = add2 | BAG | mlp = fc2 act fc1 | BRS | norm2 = ln2 add1 | BAG | attn = proj core qkv |
//                           BRS | end = ln1
//   embedding:  forward embed = embed | RS | end = position;  backward out = position | BAG | embed = embed
//   head:       forward norm1 = lnf | AG | head = logits | AG of loss statistics | end = loss;  backward head = loss logits |
//               BRS | end = lnf
//
// A gathered tensor (ln1_full, ln2_full, lnf_full) is never stored. The backward pass gathers it again from its share, for the
// weight gradients and for what is recomputed from it. Llama's embedding has no op in `end` and `out`: so the embedding has no
// segment `end`, and its `out` contains only the gather.
//
// In-place tensors. proj writes a partial sum into x1; its collective and add1 (residual + dropout + bias) work on it in
// place. fc2, its collective and add2 do the same in the next layer's x. So recomputing x1 means running proj, the
// collective and add1 again. With sequence parallelism the partial sums have their own buffers (proj_sum, fc2_sum,
// embed_sum), because x1 and x hold only a share. One gradient buffer per microbatch and stage (`grad`, shape of x) flows
// backward in place.
//
// Dropout masks are functions of counters and are not stored, unless the model says so. The backward of a norm recomputes
// mean and rstd from the norm's input. The backward of probs (softmax) and context reads probs, and draws attention
// dropout again.
//
// Shapes: b microbatch, s seq, c context-parallel size, h hidden, a heads, k key/value heads, d head size (h/a unless a
// model says otherwise), f ffn, v vocabulary, t tensor-parallel size; q = s/c tokens per rank; n = q, or q/t with
// sequence parallelism. Elements have the model's data type unless said otherwise. Pure values; thread-safe.
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
// As for other enums; but no action has the segment "none", so this name is only printed.
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
  // transformer; placed last because dropout's decisions depend on the numbers of the other ops
  kQkNorm,
};
inline constexpr int kOpCount = 24;
template <>
inline constexpr auto kEnumNames<Op> = EnumTable("embed", "position", "ln1", "qkv", "rope", "probs", "drop", "context", "flash",
                                                 "proj", "mask1", "add1", "ln2", "fc1", "gelu", "silu", "swiglu", "fc2",
                                                 "mask2", "add2", "lnf", "logits", "loss", "qk_norm");
static_assert(kEnumNames<Op>.size() == kOpCount);

// A set of ops, as a bit mask over Op.
using OpSet = uint64_t;
constexpr OpSet Bit(Op op) { return OpSet{1} << static_cast<int>(op); }
constexpr bool Contains(OpSet set, Op op) { return (set & Bit(op)) != 0; }

enum class Tensor : uint8_t {
  // forward; a recomputation policy decides on those of the transformer
  kX,             // (b, n, h)       layer input; its BufferKey has the number of the layer that reads it
  kLn1,           // (b, n, h)
  kLn1Full,       // (b, q, h)       gathered ln1
  kQkv,           // (b, q, (a + 2k)/t, d)  rope works on it in place, if queries and keys have no norms
  kQkNormed,      // (b, q, (a + 2k)/t, d)  qkv with normed queries and keys, values unchanged; rope works on it in place
  kProbs,         // (b, a/t, q, s)  softmax of the masked scores, before dropout
  kProbsMask,     // (b, a/t, q, s)  bytes
  kProbsDropped,  // (b, a/t, q, s)
  kContext,       // (b, q, a/t, d)
  kLse,           // (b, a/t, q)     32-bit log-sum-exp of the scores' rows
  kProjSum,       // (b, q, h)       partial sum of proj, with sequence parallelism
  kX1,            // (b, n, h)
  kMask1,         // (b, n, h)       bytes; the mask of add1's dropout
  kLn2,           // (b, n, h)
  kLn2Full,       // (b, q, h)       gathered ln2
  kFc1,           // (b, q, f/t); Llama: (b, q, 2, f/t), gate and up
  kGelu,          // (b, q, f/t)
  kSilu,          // (b, q, f/t)     silu(gate)
  kSwiglu,        // (b, q, f/t)     silu(gate) * up
  kFc2Sum,        // (b, q, h)       partial sum of fc2, with sequence parallelism
  kMask2,         // (b, n, h)       bytes; the mask of add2's dropout
  kEmbedSum,      // (b, q, h)       partial sum of embed, with sequence parallelism
  kEmbedMask,     // (b, n, h)       bytes; the mask of position's dropout
  kLnf,           // (b, n, h)
  kLnfFull,       // (b, q, h)       gathered lnf
  kLogits,        // (b, q, ceil(v/t))  32-bit; overwritten by its gradient
  kLossStats,     // (t, b, q, 3)    32-bit, per vocabulary shard: max, sum of exp(logit - max), target logit; written by logits
  // backward
  kGrad,         // (b, n, h)       gradient of x, flows backward in place; its key has layer kNoLayer
  kGradFc2,      // (b, q, h)       gradient of fc2's output (dropout applied); with sequence parallelism gathered in place
  kGradFc1,      // as fc1; GPT: gradient of gelu's output, then in place the gradient of fc1's output
  kGradSwiglu,   // (b, q, f/t)
  kGradLn2,      // (b, q, h)       partial sum, reduced in place
  kGradProj,     // (b, q, h)       gradient of proj's output; with sequence parallelism gathered in place
  kGradContext,  // (b, q, a/t, d)
  kGradQkv,      // as qkv
  kGradLn1,      // (b, q, h)       partial sum, reduced in place
  kGradLnf,      // (b, q, h)       partial sum, reduced in place
  kGradEmbed,    // (b, q, h)       gathered grad, with sequence parallelism
  // weights; only if ZeRO shards them (planner/program/state_sharing.h)
  kWeights,          // weights of one layer, gathered for its passes
  kWeightGradients,  // 32-bit; weight gradients of one layer, accumulated since they were last reduced
  kWorkspace,        // scratch of one action
};
inline constexpr int kTensorCount = static_cast<int>(Tensor::kWorkspace) + 1;
template <>
inline constexpr auto kEnumNames<Tensor> = EnumTable("x", "ln1", "ln1_full", "qkv", "qk_normed", "probs", "probs_mask",
                                                     "probs_dropped", "context", "lse", "proj_sum", "x1", "mask1", "ln2",
                                                     "ln2_full", "fc1", "gelu", "silu", "swiglu", "fc2_sum", "mask2",
                                                     "embed_sum", "embed_mask", "lnf", "lnf_full", "logits", "loss_stats",
                                                     "grad", "grad_fc2", "grad_fc1", "grad_swiglu", "grad_ln2", "grad_proj",
                                                     "grad_context", "grad_qkv", "grad_ln1", "grad_lnf", "grad_embed",
                                                     "weights", "weight_grads", "workspace");
static_assert(kEnumNames<Tensor>.size() == kTensorCount);

// A set of tensors, as a bit mask over Tensor.
using TensorSet = uint64_t;
constexpr TensorSet Bit(Tensor tensor) { return TensorSet{1} << static_cast<int>(tensor); }
constexpr bool Contains(TensorSet set, Tensor tensor) { return (set & Bit(tensor)) != 0; }

// Everything that determines the cost and size of a rank's ops. It is the key of a measured profile.
struct LayerShape {
  int32_t micro_batch = 0;
  int32_t seq = 0;
  int32_t hidden = 0;
  int32_t heads = 0;
  int32_t ffn = 0;
  int32_t vocab = 0;
  int32_t tp = 1;
  bool dropout = false;  // rate > 0
  ModelFamily family = ModelFamily::kGpt;
  int32_t kv_heads = 0;  // 0 = heads
  AttentionKernel attention = AttentionKernel::kUnfused;
  DataType dtype = DataType::kFloat32;
  bool stored_masks = false;       // only with dropout
  bool sequence_parallel = false;  // only with tp > 1
  int32_t cp = 1;
  int32_t head_dim = 0;   // 0 = hidden / heads
  bool qkv_bias = false;  // llama only; gpt always has it
  bool qk_norm = false;
  int32_t rotary_dims = 0;  // elements of a head that are rotated; 0 = all

  auto operator<=>(const LayerShape&) const = default;
  int64_t tokens() const { return int64_t{micro_batch} * (seq / cp); }                   // b * q
  int64_t shard_tokens() const { return sequence_parallel ? tokens() / tp : tokens(); }  // b * n
  int32_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  int32_t head_size() const { return head_dim == 0 ? hidden / heads : head_dim; }
  // Width of qkv on one rank: (a + 2k) / t heads. Width of attention's output: a / t heads.
  int64_t qkv_width() const { return int64_t{heads + 2 * key_heads()} / tp * head_size(); }
  int64_t context_width() const { return int64_t{heads} / tp * head_size(); }
  bool has_qkv_bias() const { return qkv_bias || family == ModelFamily::kGpt; }
  int64_t fc1_width() const { return int64_t{ffn} / tp * (family == ModelFamily::kLlama ? 2 : 1); }
  int32_t vocab_shard() const { return (vocab + tp - 1) / tp; }
  int64_t element_bytes() const { return dtype == DataType::kBfloat16 ? 2 : 4; }
};
LayerShape ShapeOf(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch);

// kUpdate: the op reads and writes the tensor in place. kAccumulate: it adds to the tensor; the first op that does so starts a
// fresh sum. kRelease: it reads the tensor for the last time; the next op that adds to the tensor starts a fresh sum.
enum class AccessMode : uint8_t { kWrite, kRead, kUpdate, kAccumulate, kRelease };

struct TensorUse {
  Tensor tensor;
  AccessMode mode;
};

// The collective that ends a segment when t > 1. It reduces or gathers the members' `from` and writes the result to `to`, in
// place if `from` and `to` are the same tensor. Without a collective `from` and `to` are kWorkspace. kX means the next layer's
// x.
enum class Collective : uint8_t { kNone, kAllReduce, kAllGather, kReduceScatter };
struct CollectiveInfo {
  Collective kind = Collective::kNone;
  Tensor from = Tensor::kWorkspace;
  Tensor to = Tensor::kWorkspace;
};

// One op of a graph. Its forward pass uses `reads`, `output` and `side_outputs`; its backward pass `backward_reads` and
// `gradients`; its weight pass `weight_reads` and `weight_gradients`.
struct OpInfo {
  Op op;
  LayerType layer_type;
  Segment forward_segment;
  Segment backward_segment;
  std::vector<Tensor> reads;             // forward inputs
  Tensor output;                         // forward output. kX: the next layer's, for the embedding the first layer's.
                                         // kWorkspace: no output (loss)
  bool in_place;                         // output is also read (add1, add2, position, rope)
  std::vector<Tensor> backward_reads;    // forward tensors that the input-gradient pass reads
  std::vector<TensorUse> gradients;      // gradient tensors that the input-gradient pass reads or writes
  std::vector<Tensor> weight_reads;      // forward tensors that the weight-gradient pass reads
  std::vector<Tensor> weight_gradients;  // gradient tensors that the weight-gradient pass reads
  // a W action computes its weight gradient (linears, biases of add1/add2); the input-gradient pass computes the weight
  // gradients of norms, embedding and positions
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
  // Ops of a segment in one pass, in the order in which the pass runs them. kWeight: the ops of the backward segment that
  // have a weight pass.
  const std::vector<Op>& OpsOf(LayerType type, Segment segment, Pass pass) const;
  // Segments of a layer type in the order of the pass (kForward or kBackward).
  const std::vector<Segment>& SegmentsOf(LayerType type, Pass pass) const;
  bool HasSegment(LayerType type, Segment segment, Pass pass) const;
  // The tensor-parallel collective that ends the segment in that pass (when t > 1).
  const CollectiveInfo& CollectiveOf(LayerType type, Segment segment, Pass pass) const;
  bool EndsInCollective(LayerType type, Segment segment, Pass pass) const {
    return CollectiveOf(type, segment, pass).kind != Collective::kNone;
  }
  // Segments of a transformer layer that end in a collective, in the order of the pass; each has a window. At most 4.
  const std::vector<Segment>& WindowsOf(Pass pass) const { return windows_[pass == Pass::kForward ? 0 : 1]; }

  // Forward tensors of a transformer layer that can be recomputed. Each comes after the tensors that its producers read. At
  // most kMaxRecomputable.
  const std::vector<Tensor>& recomputable() const { return recomputable_; }
  int RecomputableIndex(Tensor tensor) const;  // -1: not recomputable
  // The ops that compute a tensor, and so recompute it. For x1 they are proj and add1, with a collective between them.
  const std::vector<Op>& ProducersOf(Tensor tensor) const;
  // All tensors that the producers of `tensor` write, `tensor` included. For example, probs_dropped is made with its mask, and
  // context with lse.
  const std::vector<Tensor>& MadeWith(Tensor tensor) const;
  // The other recomputable tensors that the producers of `tensor` read. A gathered tensor counts as its share.
  TensorSet InputsOf(Tensor tensor) const { return inputs_[static_cast<size_t>(tensor)]; }
  // True if recomputing the tensor needs a collective (when t > 1): x1, and with sequence parallelism every tensor whose
  // producers read a gathered tensor.
  bool RepeatsCollective(Tensor tensor) const;
  // Recomputable tensors that B or W of a backward segment of a transformer layer reads. A gathered tensor counts as its share.
  TensorSet ReadBy(Segment backward_segment) const { return read_by_[static_cast<size_t>(backward_segment)]; }
  // The share from which a gathered tensor is gathered, and the segment whose collective gathers it. For any other
  // tensor: the tensor itself, and kNone.
  Tensor ShareOf(Tensor tensor) const;
  Segment GatherSegmentOf(Tensor tensor) const;

 private:
  struct Kind {
    ModelFamily family;
    bool fused, stored_masks, sequence_parallel, qk_norm;
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
inline constexpr Bytes kBufferAlignment{256};  // alignment of every buffer in an arena
inline constexpr int kMaxRecomputable = 12;
inline constexpr int kMaxWindows = 4;

// LYNX_CHECK fails for kWorkspace, kWeights and kWeightGradients; see WorkspaceBytes and LayerParameters.
Bytes TensorBytes(Tensor tensor, const LayerShape& shape);
// Bytes of a recomputable tensor and of all tensors that are made with it (MadeWith), each padded to kBufferAlignment as in an
// arena.
Bytes StoredBytes(Tensor tensor, const LayerShape& shape);
Bytes WorkspaceBytes(Op op, Pass pass, const LayerShape& shape);
// Context parallelism as in Llama 3 (Dubey et al. 2024, section 3.3.2): before the attention core a rank gathers the keys
// and values of the whole sequence, (b, s, 2k/t, h/a). This function returns their bytes; 0 if cp is 1. The backward pass
// gathers them again and reduce-scatters their gradients. In each such collective a rank of a ring sends (c - 1)/c of the
// bytes.
Bytes ContextGatherBytes(const LayerShape& shape);
// Size per rank of the whole tensor that the collective at the segment's end reduces or gathers.
Bytes CollectiveBytes(LayerType type, Segment segment, Pass pass, const LayerShape& shape);
// FLOPs of matrix products only, a multiply-add counts 2; the other ops are bound by memory traffic. Pass: kForward,
// kBackward (input gradient) or kWeight. Unfused attention counts the full square of scores, fused attention only its
// causal half.
int64_t OpFlops(Op op, Pass pass, const LayerShape& shape);
// Bytes read from and written to memory, weights included, for the roofline of memory-bound ops.
Bytes OpTraffic(Op op, Pass pass, const LayerShape& shape);
// Parameters of one op on one tensor-parallel rank. Matrices are sharded over t; norms, and the biases that follow a
// collective (add1, add2), are whole on every rank. The output projection has no bias; Llama has no biases at all.
int64_t OpParameters(Op op, const LayerShape& shape);
// Parameters of one layer of that type on one tensor-parallel rank. The head's parameters include the output projection
// even if it is tied to the embedding, because a stage with only one of the two holds those weights.
int64_t LayerParameters(LayerType type, const LayerShape& shape);
// Parameters of the whole model; tied embeddings count once.
int64_t ModelParameters(const ModelSpec& model);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LAYER_GRAPH_H_
