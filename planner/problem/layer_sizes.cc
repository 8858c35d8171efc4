// Bytes, FLOPs, traffic and parameters of the layer graph's tensors and ops. See layer_graph.h.
#include <algorithm>

#include "common/check.h"
#include "planner/problem/expert_rounds.h"
#include "planner/problem/layer_graph.h"
#include "planner/problem/narrow_products.h"

namespace lynx {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kRoundsOfRoom = 4;  // this number of rounds has room for as many rows as the dispatch

int64_t ScoreElements(const LayerShape& s) { return s.tokens() * s.seq * (s.heads / s.tp); }

// Number of elements of a tensor that exists only in models with experts.
int64_t ExpertElements(Tensor tensor, const LayerShape& s) {
  switch (tensor) {
    case Tensor::kScores:
    case Tensor::kGradScores: return s.shard_tokens() * s.experts;
    case Tensor::kRoute: return s.shard_tokens() * s.top_k * 3;
    case Tensor::kRows:
    case Tensor::kCombined:
    case Tensor::kGradCombined:
    case Tensor::kGradRows: return s.sent_rows() * s.hidden;
    case Tensor::kRowWeights:
    case Tensor::kGradRowWeights: return s.sent_rows();
    case Tensor::kExpertRows:
    case Tensor::kExpertOut:
    case Tensor::kGradExpertOut:
    case Tensor::kGradExpertRows: return s.expert_rows() * s.hidden;
    case Tensor::kExpertWeights:
    case Tensor::kGradExpertWeights: return s.expert_rows();
    case Tensor::kSharedFc1:
    case Tensor::kGradSharedFc1: return s.shard_tokens() * 2 * s.shared_ffn;
    case Tensor::kSharedSwiglu:
    case Tensor::kGradSharedSwiglu: return s.shard_tokens() * s.shared_ffn;
    default: break;
  }
  LYNX_CHECK(!"the tensor has no shape of its own; see WorkspaceBytes and LayerParameters");
  return 0;
}

int64_t CeilOfPermille(int64_t amount, int64_t permille, int64_t parts) {
  return (amount * permille + 1000 * parts - 1) / (1000 * parts);
}

int64_t Elements(Tensor tensor, const LayerShape& s) {
  switch (tensor) {
    case Tensor::kX:
    case Tensor::kLn1:
    case Tensor::kX1:
    case Tensor::kMask1:
    case Tensor::kLn2:
    case Tensor::kMask2:
    case Tensor::kEmbedMask:
    case Tensor::kGrad: return s.shard_tokens() * s.hidden;
    case Tensor::kLnf: return s.shard_tokens() * s.hidden * (s.encoder ? 3 : 1);
    case Tensor::kFc2Sum:
    case Tensor::kGradFc2:
    case Tensor::kGradLn2: return (s.moe() ? s.shard_tokens() : s.tokens()) * s.hidden;
    case Tensor::kLn1Full:
    case Tensor::kProjSum:
    case Tensor::kLn2Full:
    case Tensor::kEmbedSum:
    case Tensor::kLnfFull:
    case Tensor::kGradProj:
    case Tensor::kGradLn1:
    case Tensor::kGradLnf:
    case Tensor::kGradEmbed: return s.tokens() * s.hidden;
    case Tensor::kQkv:
    case Tensor::kQkNormed:
    case Tensor::kGradQkv: return s.tokens() * s.qkv_width();
    case Tensor::kLatent:
    case Tensor::kLatentNormed:
    case Tensor::kGradLatent: return s.tokens() * s.latent_width();
    case Tensor::kProbs:
    case Tensor::kProbsMask:
    case Tensor::kProbsDropped: return ScoreElements(s);
    case Tensor::kContext:
    case Tensor::kGradContext: return s.tokens() * s.context_width();
    case Tensor::kLse: return s.tokens() * (s.heads / s.tp);
    case Tensor::kFc1:
    case Tensor::kGradFc1: return s.mlp_rows() * s.fc1_width();
    case Tensor::kGelu:
    case Tensor::kSilu:
    case Tensor::kSwiglu:
    case Tensor::kGradSwiglu: return s.mlp_rows() * s.mlp_width();
    case Tensor::kLogits: return s.tokens() * s.vocab_shard();
    case Tensor::kLossStats: return s.tokens() * 3 * s.tp;
    default: return ExpertElements(tensor, s);
  }
}

int64_t ElementBytes(Tensor tensor, const LayerShape& s) {
  switch (tensor) {
    case Tensor::kProbsMask:
    case Tensor::kMask1:
    case Tensor::kMask2:
    case Tensor::kEmbedMask: return 1;
    case Tensor::kLse:
    case Tensor::kLogits:
    case Tensor::kLossStats:
    case Tensor::kScores:
    case Tensor::kRoute:
    case Tensor::kRowWeights:
    case Tensor::kExpertWeights:
    case Tensor::kGradExpertWeights:
    case Tensor::kGradRowWeights:
    case Tensor::kGradScores: return kFloatBytes;
    default: return s.element_bytes();
  }
}

// FLOPs of one matrix product of all scores of the rank's a/t heads (q rows, s columns) and a matrix that has `elements` for
// each head. If `causal_half`: half of this number.
int64_t ScoreFlops(const LayerShape& s, int64_t elements, bool causal_half) {
  const int64_t full = 2 * s.tokens() * s.seq * (int64_t{s.heads} / s.tp * elements);
  return causal_half ? full / 2 : full;
}

// FLOPs of fused attention. The forward pass has two products, one with keys and one with values. The backward pass computes
// the scores again and has four more products: two with elements of keys, two with elements of values.
int64_t FlashFlops(const LayerShape& s, Pass pass) {
  const bool half = !s.encoder;
  const int64_t keys = ScoreFlops(s, s.head_size(), half), values = ScoreFlops(s, s.value_size(), half);
  return pass == Pass::kBackward ? 3 * keys + 2 * values : keys + values;
}

// Parameters of qkv without biases, on one rank.
int64_t QkvWeights(const LayerShape& s) {
  if (!s.latent()) return int64_t{s.hidden} * s.qkv_width();
  const int64_t heads = s.heads / s.tp, queries = s.query_rank == 0 ? s.hidden : s.query_rank;
  return heads * (queries * s.head_size() + int64_t{s.kv_rank} * (s.head_size() - s.rotary_dims + s.value_dim));
}

// Bytes of a gradient that an op reads or writes. With sequence parallelism, the gradients before and after a norm or an
// addition are gathered or reduced in place: their buffer holds the whole tensor, but the op works only on the rank's share.
Bytes TouchedBytes(Tensor tensor, Op op, const LayerShape& shape) {
  if (shape.moe() && (tensor == Tensor::kGradLn2 || tensor == Tensor::kGradFc2)) return TensorBytes(tensor, shape);
  const bool on_share = op == Op::kLn1 || op == Op::kLn2 || op == Op::kLnf || op == Op::kAdd1 || op == Op::kAdd2;
  const Bytes bytes = TensorBytes(tensor, shape);
  return on_share && shape.sequence_parallel && tensor != Tensor::kGrad ? bytes / shape.tp : bytes;
}

Bytes BackwardTraffic(const OpInfo& info, const LayerShape& shape, Bytes weights) {
  Bytes total;
  for (Tensor t : info.backward_reads) total += TensorBytes(t, shape);
  for (const TensorUse& use : info.gradients) {
    total += TouchedBytes(use.tensor, info.op, shape) * (use.mode == AccessMode::kUpdate ? 2 : 1);
  }
  // The embedding adds to rows of its weight gradient, so these rows are read and written.
  if (info.op == Op::kEmbed) total += TensorBytes(Tensor::kX, shape) * 2;
  // A linear op only reads its weights in this pass; its weight pass computes their gradients. Norms and positions have no
  // weight pass: this pass reads their weights and writes their weight gradients.
  return total + weights * (info.has_weight_pass ? 1 : 2);
}

}  // namespace

int64_t LayerShape::expert_room() const {
  return std::min(shard_tokens(), CeilOfPermille(shard_tokens() * top_k, capacity_permille, experts));
}

int64_t LayerShape::round_room() const {
  if (!dropless || capacity_permille == 0) return 0;
  const int64_t room = expert_room();
  return std::min((room + kRoundsOfRoom - 1) / kRoundsOfRoom, shard_tokens() - room);
}

int64_t LayerShape::sent_rows() const { return capacity_permille > 0 ? experts * expert_room() : shard_tokens() * top_k; }

int64_t LayerShape::expert_rows() const {
  if (capacity_permille == 0) return filled_rows();
  return PaddedExpertRows(expert_room() * ep, matmul_type) * own_experts();
}

int64_t LayerShape::filled_rows() const {
  const int64_t rows = shard_tokens() * top_k;
  // A token goes to an expert at most once, so a rank gets each token at most once for each of its experts.
  const int64_t most = shard_tokens() * ep * std::min(top_k, own_experts());
  int64_t received = ep == 1 ? rows : std::min(most, CeilOfPermille(rows, skew_permille, 1));
  if (capacity_permille > 0 && !dropless) received = std::min(received, sent_rows());
  if (matmul_type == MatmulType::kModel) return received;
  const int64_t own = own_experts();
  return PaddedExpertRows((received + own - 1) / own, matmul_type) * own;
}

Bytes GateBytes(const LayerShape& shape) { return Bytes(shape.shared_gate ? shape.shard_tokens() * kFloatBytes : 0); }

Bytes TensorBytes(Tensor tensor, const LayerShape& shape) {
  if (tensor == Tensor::kSharedFc1 || tensor == Tensor::kGradSharedFc1) {
    return Bytes(Elements(tensor, shape) * ElementBytes(tensor, shape)) + GateBytes(shape);
  }
  if (IsNarrowTensor(tensor, shape)) return NarrowBytes(Elements(tensor, shape), shape.matmul_type);
  return Bytes(Elements(tensor, shape) * ElementBytes(tensor, shape));
}

Bytes StoredBytes(Tensor tensor, const LayerShape& shape) {
  Bytes total;
  for (Tensor t : LayerGraph::Of(shape).MadeWith(tensor)) total += Padded(TensorBytes(t, shape));
  return total;
}

// The constant and the two functions must agree with kAttentionRows and WideHeadFloats of the CPU backend (worker/backend).
// kAttentionRows: the number of rows that attention works on at the same time. WideHeadBytes: if tensors have 16-bit elements,
// attention makes 32-bit copies of one head, and this function returns their bytes: `whole` matrices with all positions, and
// `rows` matrices with RowsAtOnce rows.
constexpr int32_t kAttentionRows = 64;

int64_t RowsAtOnce(const LayerShape& shape) { return std::min(kAttentionRows, shape.seq / shape.cp); }

Bytes WideHeadBytes(const LayerShape& shape, int64_t whole, int64_t rows) {
  if (shape.dtype != DataType::kBfloat16) return Bytes(0);
  const int64_t widest = std::max(shape.head_size(), shape.value_size());
  return Bytes((whole * shape.seq + rows * RowsAtOnce(shape)) * widest * kFloatBytes);
}

Bytes WorkspaceBytes(Op op, Pass pass, const LayerShape& shape) {
  const Bytes narrow = NarrowWorkspace(op, pass, shape);
  if (narrow.value > 0) return narrow;
  if (shape.round_room() > 0) {
    if (op == Op::kUnpermute && pass == Pass::kForward) return RoundScratchOf(pass, shape).total;
    if ((op == Op::kPermute || op == Op::kRouter) && pass == Pass::kBackward) return RoundScratchOf(pass, shape).total;
  }
  // The gradient of the latents of keys and values is a sum over heads, in 32 bits.
  if (op == Op::kQkv && pass == Pass::kBackward && shape.latent() && shape.dtype == DataType::kBfloat16) {
    return Bytes(shape.tokens() * shape.kv_rank * kFloatBytes);
  }
  const bool attention = op == Op::kProbs || op == Op::kContext || op == Op::kFlash;
  if (!attention || pass == Pass::kWeight) return Bytes(0);
  // Unfused attention works in 32 bits on some rows of one head of one sample at a time. With dropout and without stored
  // masks, the forward pass of context needs the probabilities of these rows after dropout. With 16-bit tensors, the forward
  // pass always needs the probabilities of the rows. The backward pass needs the probabilities and their gradient.
  const Bytes scores(RowsAtOnce(shape) * shape.seq * kFloatBytes);
  // The keys and values of the whole sequence. The backward pass also needs their gradients.
  const Bytes gathered = ContextGatherBytes(shape) * (pass == Pass::kBackward ? 2 : 1);
  if (pass == Pass::kForward) {
    if (op == Op::kFlash) return gathered + WideHeadBytes(shape, 2, 2);
    const bool drops = op == Op::kContext && shape.dropout && !shape.stored_masks;
    const bool needs_scores = drops || shape.dtype == DataType::kBfloat16;
    return gathered + (needs_scores ? scores : Bytes(0)) + WideHeadBytes(shape, 1, 1);
  }
  const Bytes wide = gathered + WideHeadBytes(shape, 4, 3);
  // In its backward pass, fused attention computes one 32-bit sum for each row: the product of the output and the output's
  // gradient.
  return wide + (op == Op::kFlash ? TensorBytes(Tensor::kLse, shape) : scores * 2);
}

Bytes ContextGatherBytes(const LayerShape& shape) {
  if (shape.cp == 1) return Bytes(0);
  const int64_t width = int64_t{shape.key_heads()} / shape.tp * (shape.head_size() + shape.value_size());
  return Bytes(shape.tokens() * shape.cp * width * shape.element_bytes());
}

Bytes CollectiveBytes(LayerType type, Segment segment, Pass pass, const LayerShape& shape) {
  const CollectiveInfo& info = LayerGraph::Of(shape).CollectiveOf(type, segment, pass);
  switch (info.kind) {
    case Collective::kNone: return Bytes(0);
    case Collective::kAllGather: return TensorBytes(info.to, shape);
    case Collective::kAllReduce:
    case Collective::kReduceScatter: return TensorBytes(info.from, shape);
    case Collective::kAllToAll: {
      // Rows travel in the model's data type, also where they are then kept quantised.
      LayerShape sent = shape;
      sent.matmul_type = MatmulType::kModel;
      const Bytes rows = std::max(TensorBytes(info.from, sent), TensorBytes(info.to, sent));
      if (info.from_weights == Tensor::kWorkspace) return rows;
      return rows + std::max(TensorBytes(info.from_weights, shape), TensorBytes(info.to_weights, shape));
    }
  }
  LYNX_CHECK(!"unknown collective");
  return Bytes(0);
}

int64_t OpFlops(Op op, Pass pass, const LayerShape& s) {
  if (pass == Pass::kWeight && !LayerGraph::Of(s).InfoOf(op).has_weight_pass) return 0;
  const int64_t tokens = s.tokens();
  const int64_t hidden = s.hidden;
  switch (op) {
    case Op::kLatent: return 2 * tokens * hidden * s.latent_width();
    case Op::kQkv: return 2 * tokens * QkvWeights(s);
    case Op::kProj: return 2 * tokens * hidden * s.context_width();
    case Op::kSharedFc1: return 2 * s.shard_tokens() * hidden * (2 * s.shared_ffn + (s.shared_gate ? 1 : 0));
    case Op::kSharedFc2: return 2 * s.shard_tokens() * hidden * s.shared_ffn;
    case Op::kRouter: return 2 * s.shard_tokens() * hidden * s.experts;
    case Op::kFc1: return 2 * (s.moe() ? s.filled_rows() : tokens) * hidden * s.fc1_width();
    case Op::kFc2: return 2 * (s.moe() ? s.filled_rows() : tokens) * hidden * s.mlp_width();
    case Op::kLogits: return 2 * tokens * hidden * s.vocab_shard() + (s.encoder ? 2 * s.shard_tokens() * hidden * hidden : 0);
    case Op::kProbs:
    case Op::kContext:
      // The forward pass has one product. The backward pass has one product for each of its two inputs.
      return (pass == Pass::kBackward ? 2 : 1) * ScoreFlops(s, s.head_size(), false);
    case Op::kFlash: return FlashFlops(s, pass);
    default: return 0;
  }
}

Bytes OpTraffic(Op op, Pass pass, const LayerShape& given) {
  // Ops read and write the model's data type also where a tensor is then kept quantised.
  LayerShape shape = given;
  shape.matmul_type = MatmulType::kModel;
  const OpInfo& info = LayerGraph::Of(shape).InfoOf(op);
  // The embedding op reads only the rows of the batch's tokens, not its whole weight. The tensors below already include these
  // rows.
  const Bytes weights{op == Op::kEmbed ? 0 : OpParameters(op, shape) * shape.element_bytes()};
  Bytes total;
  const auto add = [&](Tensor tensor, int64_t times) { total += TensorBytes(tensor, shape) * times; };
  switch (pass) {
    case Pass::kForward:
      for (Tensor t : info.reads) add(t, 1);
      if (op == Op::kEmbed) add(info.output, 1);  // the rows that the op reads
      if (info.output != Tensor::kWorkspace) add(info.output, info.in_place ? 2 : 1);
      for (Tensor t : info.side_outputs) {
        if (t != Tensor::kLossStats) add(t, 1);
      }
      return total + weights;
    case Pass::kBackward: return BackwardTraffic(info, shape, weights);
    case Pass::kWeight:
      if (!info.has_weight_pass) return Bytes(0);
      for (Tensor t : info.weight_reads) add(t, 1);
      for (Tensor t : info.weight_gradients) add(t, 1);
      return total + weights * 2;
  }
  LYNX_CHECK(!"unknown pass");
  return Bytes(0);
}

int64_t OpParameters(Op op, const LayerShape& s) {
  const int64_t hidden = s.hidden;
  const bool gpt = s.family == ModelFamily::kGpt;
  const int64_t bias = gpt ? 1 : 0;
  switch (op) {
    case Op::kEmbed:
    case Op::kLogits: return hidden * s.vocab_shard();
    case Op::kPosition: return hidden * (s.seq + (s.encoder ? 4 : 0));  // two token types, and a norm
    case Op::kLn1:
    case Op::kLn2: return (1 + bias) * hidden;
    case Op::kLnf: return (1 + bias) * hidden + (s.encoder ? (hidden + 1) * hidden + s.vocab_shard() : 0);
    case Op::kLatent: return hidden * s.latent_width();
    case Op::kLatentNorm: return int64_t{s.query_rank} + s.kv_rank;
    case Op::kQkv: return QkvWeights(s) + (s.has_qkv_bias() ? s.qkv_width() : 0);
    case Op::kQkNorm: return int64_t{s.qk_norm_whole ? (s.heads + s.key_heads()) / s.tp : 2} * s.head_size();
    case Op::kProj: return hidden * s.context_width();
    case Op::kAdd1:
    case Op::kAdd2: return bias * hidden;
    case Op::kRouter: return hidden * s.experts;
    case Op::kFc1: return (hidden + bias) * s.fc1_width() * s.own_experts();
    case Op::kFc2: return hidden * s.mlp_width() * s.own_experts();
    case Op::kSharedFc1: return hidden * (2 * s.shared_ffn + (s.shared_gate ? 1 : 0));
    case Op::kSharedFc2: return hidden * s.shared_ffn;
    default: return 0;
  }
}

int64_t LayerParameters(LayerType type, const LayerShape& shape) {
  int64_t parameters = 0;
  for (const OpInfo& info : LayerGraph::Of(shape).ops()) {
    if (info.layer_type == type) parameters += OpParameters(info.op, shape);
  }
  return parameters;
}

int64_t ExpertParameters(const LayerShape& shape) {
  return shape.moe() ? OpParameters(Op::kFc1, shape) + OpParameters(Op::kFc2, shape) : 0;
}

int64_t ModelParameters(const ModelSpec& model) {
  const LayerShape shape = ShapeOf(model, ParallelLayout{}, 1);
  const int64_t all = LayerParameters(LayerType::kEmbedding, shape) + LayerParameters(LayerType::kHead, shape) +
                      model.moe.dense_layers * LayerParameters(LayerType::kTransformer, DenseShape(shape)) +
                      (model.layers - model.moe.dense_layers) * LayerParameters(LayerType::kTransformer, shape);
  return model.tied_embeddings ? all - OpParameters(Op::kLogits, shape) : all;
}

}  // namespace lynx
