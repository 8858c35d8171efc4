// The layer graph: ops, the tensors they read and write, and the segments between collectives, for each layer type
// of a GPT on one tensor-parallel rank. It is the one source of names, shapes, bytes and FLOPs: the cost model, the
// memory model, the lowering, the profiler and the engine all read it.
//
// Layer types. A model is an embedding layer, `layers` transformer layers and a head layer (final norm, output
// projection, loss).
//
// Segments. A segment is the run of ops between two collectives of a pass; an overlap window opens at its end. The
// last run of a layer's pass, which no collective ends, is `end`. Forward and backward collectives stand in
// different places (Megatron's g and f), so an op belongs to one segment per pass:
//
//   transformer, forward:   attn = ln1 qkv probs context proj | AR |  mlp = add1 ln2 fc1 gelu fc2 | AR |  end = add2
//   transformer, backward:  mlp = add2 fc2 gelu fc1 | BAR |  attn = ln2 add1 proj context probs qkv | BAR |  end = ln1
//   embedding:  forward embed = embed | AR | end = position;   backward embed = position embed (no collective)
//   head:       forward head = lnf logits | AG | end = loss;    backward head = loss logits | BAR | end = lnf
//
// In-place tensors. proj writes a partial sum into x1; its all-reduce and add1 (residual + dropout + bias) work in
// place there. fc2, its all-reduce and add2 do the same in the next layer's x. So to have x1 again, proj, the
// collective and add1 all run again. One gradient buffer per microbatch and stage (`grad`, shape of x) flows backward in place.
//
// Dropout masks are functions of counters, so no mask is stored. LayerNorm backward recomputes mean and rstd from its
// input. The backward of probs (softmax) and context reads probs, and draws attention dropout again.
//
// Shapes: b microbatch, s seq, h hidden, a heads, f ffn, v vocabulary, t tensor-parallel size. fp32 storage.
// Pure values; thread-safe.
#ifndef LYNX_PLANNER_LAYER_GRAPH_H_
#define LYNX_PLANNER_LAYER_GRAPH_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/units.h"
#include "planner/job_spec.h"

namespace lynx {

enum class LayerType : uint8_t { kEmbedding, kTransformer, kHead };

enum class Segment : uint8_t { kNone, kEmbed, kAttn, kMlp, kHead, kEnd };

enum class Op : uint8_t {
  // embedding
  kEmbed, kPosition,
  // transformer
  kLn1, kQkv, kProbs, kContext, kProj, kAdd1, kLn2, kFc1, kGelu, kFc2, kAdd2,
  // head
  kLnf, kLogits, kLoss,
};
inline constexpr int kOpCount = 16;

// A set of ops as a bit mask over Op.
using OpSet = uint64_t;
constexpr OpSet Bit(Op op) { return OpSet{1} << static_cast<int>(op); }
constexpr bool Contains(OpSet set, Op op) { return (set & Bit(op)) != 0; }

enum class Tensor : uint8_t {
  // forward; the transformer ones are what a recomputation policy decides on
  kX,          // (b, s, h)       layer input. Key's layer: the layer that reads it
  kLn1,        // (b, s, h)
  kQkv,        // (b, s, 3, a/t, h/a)
  kProbs,      // (b, a/t, s, s)  softmax of the masked scores, before dropout
  kContext,    // (b, s, h/t)
  kX1,         // (b, s, h)
  kLn2,        // (b, s, h)
  kFc1,        // (b, s, f/t)
  kGelu,       // (b, s, f/t)
  kLnf,        // (b, s, h)
  kLogits,     // (b, s, ceil(v/t)); overwritten by its gradient
  kLossStats,  // (t, b, s, 3)    per vocabulary shard: max, sum of exp(logit - max), target logit. logits writes it
               //                 beside kLogits
  // backward
  kGrad,       // (b, s, h)       gradient of x, flowing backward in place; its key has layer kNoLayer
  kGradFc2,    // (b, s, h)       gradient of fc2's output (dropout applied)
  kGradFc1,    // (b, s, f/t)     gradient of gelu's output, then in place of fc1's
  kGradLn2,    // (b, s, h)       partial sum, all-reduced in place
  kGradProj,   // (b, s, h)       gradient of proj's output
  kGradContext,// (b, s, h/t)
  kGradQkv,    // (b, s, 3, a/t, h/a)
  kGradLn1,    // (b, s, h)       partial sum, all-reduced in place
  kGradLnf,    // (b, s, h)       partial sum, all-reduced in place
  kWorkspace,  // scratch of one action
};
inline constexpr int kTensorCount = static_cast<int>(Tensor::kWorkspace) + 1;

// Everything that the cost and size of a rank's ops depend on. The key of a measured profile.
struct LayerShape {
  int32_t micro_batch = 0;
  int32_t seq = 0;
  int32_t hidden = 0;
  int32_t heads = 0;
  int32_t ffn = 0;
  int32_t vocab = 0;
  int32_t tp = 1;
  bool dropout = false;  // rate > 0

  auto operator<=>(const LayerShape&) const = default;
  int64_t tokens() const { return int64_t{micro_batch} * seq; }
  int32_t vocab_shard() const { return (vocab + tp - 1) / tp; }
};
LayerShape ShapeOf(const ModelSpec& model, int32_t tp, int32_t micro_batch);

enum class Pass : uint8_t { kForward, kBackward, kWeight };

enum class AccessMode : uint8_t { kWrite, kRead, kUpdate };  // kUpdate: read and written in place

struct TensorUse {
  Tensor tensor;
  AccessMode mode;
};

// The one table of ops. What a pass touches is `reads` and `output` (forward), `backward_reads` and `gradients`
// (backward), `weight_reads` and `weight_gradients` (weight).
struct OpInfo {
  Op op;
  std::string_view name;  // lower case, as in action text
  LayerType layer_type;
  Segment forward_segment;
  Segment backward_segment;
  std::vector<Tensor> reads;            // forward inputs
  Tensor output;                        // forward output. kX: the next layer's; the embedding's: the first layer's.
                                        // kWorkspace: none (loss)
  bool in_place;                        // output is also read (add1, add2, position)
  std::vector<Tensor> backward_reads;   // forward tensors that the input-gradient pass reads
  std::vector<TensorUse> gradients;     // gradient tensors that the input-gradient pass touches
  std::vector<Tensor> weight_reads;     // forward tensors that the weight-gradient pass reads
  std::vector<Tensor> weight_gradients; // gradient tensors that the weight-gradient pass reads
  bool has_weight_pass;                 // a W action computes its weight gradient (linears, biases of add1/add2).
                                        // The input-gradient pass makes those of norms, embedding and positions
};

// All ops, in forward order within each layer type. Indexed by Op.
const std::vector<OpInfo>& AllOps();
const OpInfo& InfoOf(Op op);
// Ops of a segment of a pass, in the order in which that pass runs them (kWeight: those of the backward segment that
// have a weight pass).
std::vector<Op> OpsOf(LayerType type, Segment segment, Pass pass);
// Segments of a layer type in the order of the pass (kForward or kBackward).
std::vector<Segment> SegmentsOf(LayerType type, Pass pass);
// Whether a tensor-parallel collective ends the segment in that pass (when t > 1).
bool EndsInCollective(LayerType type, Segment segment, Pass pass);
// Forward tensors of a transformer layer that may be recomputed: ln1 qkv probs context x1 ln2 fc1 gelu.
const std::vector<Tensor>& RecomputableTensors();
// The ops that make a recomputable tensor again from the tensors they read. x1: proj and add1 with the collective
// between them. Every other: its one op.
std::vector<Op> ProducersOf(Tensor tensor);

Bytes TensorBytes(Tensor tensor, const LayerShape& shape);  // kWorkspace: LYNX_CHECK fails; see WorkspaceBytes
Bytes WorkspaceBytes(Op op, Pass pass, const LayerShape& shape);
// Bytes that the collective ending the segment moves, per rank: an all-reduce of (b,s,h), or the gathered loss stats.
Bytes CollectiveBytes(LayerType type, Segment segment, Pass pass, const LayerShape& shape);
// Matrix products only, multiply-adds count 2; the rest of the ops is bound by memory traffic. kForward, kBackward
// (input gradient) or kWeight. Attention counts the full square of scores: the CPU engine does not skip the masked half.
int64_t OpFlops(Op op, Pass pass, const LayerShape& shape);
// Bytes read and written from memory, weights included, for the roofline of memory-bound ops.
Bytes OpTraffic(Op op, Pass pass, const LayerShape& shape);
// Parameters of one op on one tensor-parallel rank: matrices are sharded over t, norms and the biases that follow an
// all-reduce (add1, add2) are whole on every rank. The output projection has no bias.
int64_t OpParameters(Op op, const LayerShape& shape);
// Parameters of one layer of that type on one tensor-parallel rank.
int64_t LayerParameters(LayerType type, const LayerShape& shape);

std::string_view OpName(Op op);
std::string_view TensorName(Tensor tensor);
std::string_view SegmentName(Segment segment);
std::string_view LayerTypeName(LayerType type);
bool ParseOp(std::string_view name, Op& op);
bool ParseTensor(std::string_view name, Tensor& tensor);
bool ParseSegment(std::string_view name, Segment& segment);

}  // namespace lynx

#endif  // LYNX_PLANNER_LAYER_GRAPH_H_
