// The tables of ops, segments and collectives of each kind of graph. See layer_graph.h; sizes are in layer_sizes.cc.
#include "planner/problem/layer_graph.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/check.h"

namespace lynx {
namespace {

using enum Tensor;

constexpr auto kRead = AccessMode::kRead;
constexpr auto kWrite = AccessMode::kWrite;
constexpr auto kUpdate = AccessMode::kUpdate;
constexpr auto kE = LayerType::kEmbedding;
constexpr auto kT = LayerType::kTransformer;
constexpr auto kH = LayerType::kHead;

using Ops = std::vector<OpInfo>;

// The features of a model that decide which ops its layers have.
struct Features {
  bool gpt;      // otherwise Llama
  bool fused;    // attention is one op (AttentionKernel::kFused)
  bool masks;    // dropout masks are stored
  bool sharded;  // sequence parallelism is on
  bool qk_norm;
  bool moe;        // the feed-forward block has experts
  bool exchanged;  // the experts are on several ranks
  bool shared;     // every token passes a block in addition to the experts
  bool latent;     // queries, keys and values are made from latents
  bool direct;     // with latents: the queries are made from the norm of x
  bool rounds;     // rows without room go through rounds
};

// The segments of norms and additions. Sequence parallelism gives these ops their own segments, and so does the exchange of
// rows between ranks with experts.
struct Places {
  Segment forward_norm1, forward_norm2, backward_out, backward_norm2;
};

Places PlacesOf(const Features& model) {
  using enum Segment;
  const bool apart = model.moe ? model.exchanged : model.sharded;
  return {.forward_norm1 = model.sharded ? kNorm1 : kAttn,
          .forward_norm2 = apart ? kNorm2 : kMlp,
          .backward_out = apart ? kOut : kMlp,
          .backward_norm2 = !model.sharded ? kAttn
                            : apart        ? kNorm2
                                           : kMlp};
}

// Columns of all tables: op, layer type, forward segment, backward segment | reads, output, whether the output is in place |
// backward reads, gradients | weight reads, weight gradients, whether the op has a weight pass | side outputs.
// clang-format off

void AddEmbedding(const Features& model, Ops& ops) {
  ops.push_back({Op::kEmbed, kE, Segment::kEmbed, Segment::kEmbed, {}, model.sharded ? kEmbedSum : kX, false,
                 {}, {{model.sharded ? kGradEmbed : kGrad, kRead}}, {}, {}, false});
  if (!model.gpt) return;
  ops.push_back({Op::kPosition, kE, Segment::kEnd, model.sharded ? Segment::kOut : Segment::kEmbed, {}, kX, true,
                 {}, {{kGrad, model.masks ? kUpdate : kRead}}, {}, {}, false, {}});
  if (!model.masks) return;
  ops.back().backward_reads = {kEmbedMask};
  ops.back().side_outputs = {kEmbedMask};
}

// Latent attention. Its products are replicated or work on the rank's heads, so the gradients of the latents, and of ln1, are
// partial sums; the norms are linear in the gradient, so the sum over the ranks can wait for the collective of grad_ln1.
void AddLatent(Tensor input, const Features& model, Ops& ops) {
  constexpr auto kSeg = Segment::kAttn;
  ops.push_back({Op::kLatent, kT, kSeg, kSeg, {input}, kLatent, false,
                 {}, {{kGradLatent, kRead}, {kGradLn1, model.direct ? kUpdate : kWrite}}, {input}, {kGradLatent}, true});
  ops.push_back({Op::kLatentNorm, kT, kSeg, kSeg, {kLatent}, kLatentNormed, false,
                 {kLatent}, {{kGradLatent, kUpdate}}, {}, {}, false});
  ops.push_back({Op::kQkv, kT, kSeg, kSeg, {kLatentNormed}, kQkv, false,
                 {}, {{kGradQkv, kRead}, {kGradLatent, kWrite}}, {kLatentNormed}, {kGradQkv}, true});
  if (!model.direct) return;
  ops.back().reads.push_back(input), ops.back().weight_reads.push_back(input);
  ops.back().gradients.push_back({kGradLn1, kWrite});
}

// `heads` is the tensor of queries, keys and values that attention reads.
void AddAttentionCore(Tensor heads, const Features& model, Ops& ops) {
  constexpr auto kSeg = Segment::kAttn;
  if (model.fused) {
    ops.push_back({Op::kFlash, kT, kSeg, kSeg, {heads}, kContext, false,
                   {heads, kContext, kLse}, {{kGradContext, kRead}, {kGradQkv, kWrite}}, {}, {}, false, {kLse}});
    return;
  }
  ops.push_back({Op::kProbs, kT, kSeg, kSeg, {heads}, kProbs, false,
                 {kProbs, heads}, {{kGradQkv, kUpdate}}, {}, {}, false});
  if (model.masks) {
    ops.push_back({Op::kDrop, kT, kSeg, kSeg, {kProbs}, kProbsDropped, false,
                   {kProbsMask}, {}, {}, {}, false, {kProbsMask}});
  }
  const Tensor probs = model.masks ? kProbsDropped : kProbs;
  ops.push_back({Op::kContext, kT, kSeg, kSeg, {probs, heads}, kContext, false,
                 {probs, heads}, {{kGradContext, kRead}, {kGradQkv, kWrite}}, {}, {}, false});
}

void AddAttention(const Features& model, Ops& ops) {
  const Places at = PlacesOf(model);
  constexpr auto kSeg = Segment::kAttn;
  const Tensor input = model.sharded ? kLn1Full : kLn1;
  ops.push_back({Op::kLn1, kT, at.forward_norm1, Segment::kEnd, {kX}, kLn1, false,
                 {kX}, {{kGradLn1, kRead}, {kGrad, kUpdate}}, {}, {}, false});
  if (model.latent) {
    AddLatent(input, model, ops);
  } else {
    ops.push_back({Op::kQkv, kT, kSeg, kSeg, {input}, kQkv, false,
                   {}, {{kGradQkv, kRead}, {kGradLn1, kWrite}}, {input}, {kGradQkv}, true});
  }
  const Tensor heads = model.qk_norm ? kQkNormed : kQkv;
  if (model.qk_norm) {
    ops.push_back({Op::kQkNorm, kT, kSeg, kSeg, {kQkv}, kQkNormed, false, {kQkv}, {{kGradQkv, kUpdate}}, {}, {}, false});
  }
  if (!model.gpt) ops.push_back({Op::kRope, kT, kSeg, kSeg, {}, heads, true, {}, {{kGradQkv, kUpdate}}, {}, {}, false});
  AddAttentionCore(heads, model, ops);
  ops.push_back({Op::kProj, kT, kSeg, kSeg, {kContext}, model.sharded ? kProjSum : kX1, false,
                 {}, {{kGradProj, kRead}, {kGradContext, kWrite}}, {kContext}, {kGradProj}, true});
  if (model.masks) ops.push_back({Op::kMask1, kT, at.forward_norm2, at.backward_norm2, {}, kMask1, false, {}, {}, {}, {}, false});
  // With sequence parallelism, the input-gradient pass of add1 and add2 computes the gradients of their biases. It uses the
  // rank's share of the gradient, which is gathered afterwards.
  const bool bias_pass = model.gpt && !model.sharded;
  ops.push_back({Op::kAdd1, kT, at.forward_norm2, at.backward_norm2, {kX}, kX1, true,
                 {}, {{kGrad, kRead}, {kGradProj, kWrite}}, {}, {}, bias_pass});
  if (model.masks) ops.back().reads.push_back(kMask1), ops.back().backward_reads = {kMask1};
  if (bias_pass) ops.back().weight_gradients = {kGradProj};
}

void AddActivation(bool gpt, Ops& ops) {
  constexpr auto kSeg = Segment::kMlp;
  if (gpt) {
    ops.push_back({Op::kGelu, kT, kSeg, kSeg, {kFc1}, kGelu, false, {kFc1}, {{kGradFc1, kUpdate}}, {}, {}, false});
    return;
  }
  ops.push_back({Op::kSilu, kT, kSeg, kSeg, {kFc1}, kSilu, false, {kFc1}, {{kGradFc1, kUpdate}}, {}, {}, false});
  ops.push_back({Op::kSwiglu, kT, kSeg, kSeg, {kFc1, kSilu}, kSwiglu, false,
                 {kFc1, kSilu}, {{kGradSwiglu, kRead}, {kGradFc1, kWrite}}, {}, {}, false});
}

void AddMlp(const Features& model, Ops& ops) {
  const Places at = PlacesOf(model);
  constexpr auto kSeg = Segment::kMlp;
  const Tensor input = model.sharded ? kLn2Full : kLn2;
  const Tensor inner = model.gpt ? kGelu : kSwiglu;
  ops.push_back({Op::kLn2, kT, at.forward_norm2, at.backward_norm2, {kX1}, kLn2, false,
                 {kX1}, {{kGradLn2, kRead}, {kGrad, kUpdate}}, {}, {}, false});
  ops.push_back({Op::kFc1, kT, kSeg, kSeg, {input}, kFc1, false,
                 {}, {{kGradFc1, kRead}, {kGradLn2, kWrite}}, {input}, {kGradFc1}, true});
  AddActivation(model.gpt, ops);
  ops.push_back({Op::kFc2, kT, kSeg, kSeg, {inner}, model.sharded ? kFc2Sum : kX, false,
                 {}, {{kGradFc2, kRead}, {model.gpt ? kGradFc1 : kGradSwiglu, kWrite}}, {inner}, {kGradFc2}, true});
  if (model.masks) ops.push_back({Op::kMask2, kT, Segment::kEnd, at.backward_out, {}, kMask2, false, {}, {}, {}, {}, false});
  const bool bias_pass = model.gpt && !model.sharded;
  ops.push_back({Op::kAdd2, kT, Segment::kEnd, at.backward_out, {kX1}, kX, true,
                 {}, {{kGrad, kRead}, {kGradFc2, kWrite}}, {}, {}, bias_pass});
  if (model.masks) ops.back().reads.push_back(kMask2), ops.back().backward_reads = {kMask2};
  if (bias_pass) ops.back().weight_gradients = {kGradFc2};
}

// The block that every token passes in addition to its experts. `backward` is the segment of its input gradients.
void AddSharedBlock(Segment backward, Ops& ops) {
  constexpr auto kSeg = Segment::kMlp;
  ops.push_back({Op::kSharedFc1, kT, kSeg, backward, {kLn2}, kSharedFc1, false,
                 {}, {{kGradSharedFc1, kRead}, {kGradLn2, kWrite}}, {kLn2}, {kGradSharedFc1}, true});
  ops.push_back({Op::kSharedSwiglu, kT, kSeg, backward, {kSharedFc1}, kSharedSwiglu, false,
                 {kSharedFc1}, {{kGradSharedSwiglu, kRead}, {kGradSharedFc1, kWrite}}, {}, {}, false});
  ops.push_back({Op::kSharedFc2, kT, kSeg, backward, {kSharedSwiglu}, kFc2Sum, false,
                 {}, {{kGradFc2, kRead}, {kGradSharedSwiglu, kWrite}}, {kSharedSwiglu}, {kGradFc2}, true});
}

// The feed-forward block with experts.
void AddExperts(const Features& model, Ops& ops) {
  const Places at = PlacesOf(model);
  constexpr auto kSeg = Segment::kMlp;
  const bool away = model.exchanged;
  const Tensor rows = away ? kRows : kExpertRows, weights = away ? kRowWeights : kExpertWeights;
  const Tensor grad_rows = away ? kGradRows : kGradExpertRows, grad_weights = away ? kGradRowWeights : kGradExpertWeights;
  ops.push_back({Op::kLn2, kT, at.forward_norm2, at.backward_norm2, {kX1}, kLn2, false,
                 {kX1}, {{kGradLn2, kRead}, {kGrad, kUpdate}}, {}, {}, false});
  ops.push_back({Op::kRouter, kT, at.forward_norm2, at.backward_norm2, {kLn2}, kScores, false,
                 {kScores, kRoute}, {{grad_weights, kRead}, {kGradScores, kWrite}, {kGradLn2, kUpdate}}, {kLn2}, {kGradScores}, true, {kRoute}});
  ops.push_back({Op::kPermute, kT, at.forward_norm2, at.backward_norm2, {kLn2, kRoute}, rows, false,
                 {kRoute}, {{grad_rows, kRead}, {kGradLn2, model.shared ? kUpdate : kWrite}}, {}, {}, false, {weights}});
  if (model.rounds) ops.back().backward_reads.push_back(kLn2), ops.back().gradients.push_back({kGradFc2, kRead});
  ops.push_back({Op::kFc1, kT, kSeg, kSeg, {kExpertRows, kExpertWeights}, kFc1, false,
                 {kExpertWeights}, {{kGradFc1, kRead}, {kGradExpertRows, kWrite}}, {kExpertRows, kExpertWeights}, {kGradFc1}, true});
  ops.push_back({Op::kSilu, kT, kSeg, kSeg, {kFc1}, kSilu, false, {kFc1}, {{kGradFc1, kUpdate}}, {}, {}, false});
  ops.push_back({Op::kSwiglu, kT, kSeg, kSeg, {kFc1, kSilu, kExpertWeights}, kSwiglu, false,
                 {kFc1, kSilu, kExpertWeights}, {{kGradSwiglu, kRead}, {kGradFc1, kWrite}, {kGradExpertWeights, kWrite}}, {}, {}, false});
  ops.push_back({Op::kFc2, kT, kSeg, kSeg, {kSwiglu, kExpertWeights}, kExpertOut, false,
                 {kExpertWeights}, {{kGradExpertOut, kRead}, {kGradSwiglu, kWrite}}, {kSwiglu, kExpertWeights}, {kGradExpertOut}, true});
  if (model.shared) AddSharedBlock(at.backward_out, ops);
  ops.push_back({Op::kUnpermute, kT, Segment::kEnd, at.backward_out, {away ? kCombined : kExpertOut, kRoute}, kX, false,
                 {kRoute}, {{kGradFc2, kRead}, {away ? kGradCombined : kGradExpertOut, kWrite}}, {}, {}, false});
  if (model.shared) ops.back().reads.push_back(kFc2Sum);
  if (model.rounds) ops.back().reads.push_back(kLn2);
  ops.push_back({Op::kAdd2, kT, Segment::kEnd, at.backward_out, {kX1}, kX, true,
                 {}, {{kGrad, kRead}, {kGradFc2, kWrite}}, {}, {}, false});
}

void AddHead(bool sp, Ops& ops) {
  const Tensor input = sp ? kLnfFull : kLnf;
  ops.push_back({Op::kLnf, kH, sp ? Segment::kNorm1 : Segment::kHead, Segment::kEnd, {kX}, kLnf, false,
                 {kX}, {{kGradLnf, kRead}, {kGrad, kWrite}}, {}, {}, false});
  // The gradient of the logits overwrites the logits, so the passes that run after the backward pass of the loss read the
  // gradient from kLogits.
  ops.push_back({Op::kLogits, kH, Segment::kHead, Segment::kHead, {input}, kLogits, false,
                 {kLogits}, {{kGradLnf, kWrite}}, {input, kLogits}, {}, true, {kLossStats}});
  ops.push_back({Op::kLoss, kH, Segment::kEnd, Segment::kHead, {kLogits, kLossStats}, kWorkspace, false,
                 {kLossStats}, {{kLogits, kUpdate}}, {}, {}, false});
}
// clang-format on

// Converts to thousandths, rounded up. A number that differs from whole thousandths only by rounding errors of doubles is not
// rounded up.
int32_t PermilleUp(double value) { return static_cast<int32_t>(std::ceil(1000 * value - 1e-6)); }

size_t Index(LayerType type) { return static_cast<size_t>(type); }
size_t Index(Segment segment) { return static_cast<size_t>(segment); }
size_t Index(Pass pass) { return static_cast<size_t>(pass); }
size_t Index(Tensor tensor) { return static_cast<size_t>(tensor); }
size_t Index(Op op) { return static_cast<size_t>(op); }

}  // namespace

LayerShape ShapeOf(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch) {
  return {.micro_batch = micro_batch,
          .seq = model.seq,
          .hidden = model.hidden,
          .heads = model.heads,
          .ffn = model.ffn,
          .vocab = model.vocab,
          .tp = layout.tp,
          .dropout = model.dropout > 0,
          .family = model.family,
          .kv_heads = model.kv_heads,
          .attention = model.attention,
          .dtype = model.dtype,
          .stored_masks = model.dropout > 0 && model.dropout_masks == DropoutMasks::kStored,
          .sequence_parallel = layout.sequence_parallel && layout.tp > 1,
          .cp = layout.cp,
          .head_dim = model.head_dim,
          .qkv_bias = model.qkv_bias,
          .qk_norm = model.qk_norm,
          .qk_norm_whole = model.qk_norm_whole,
          .rotary_dims = model.rotary.dims,
          .matmul_type = model.matmul_type,
          .gradient_dtype = model.gradient_dtype,
          .experts = model.moe.experts,
          .top_k = model.moe.top_k,
          .expert_ffn = model.moe.any() ? model.expert_ffn() : 0,
          .ep = model.moe.any() ? layout.ep : 1,
          .capacity_permille = PermilleUp(model.moe.capacity),
          .skew_permille = PermilleUp(model.moe.skew),
          .dropless = model.moe.dropless,
          .shared_ffn = model.moe.shared_ffn,
          .shared_gate = model.moe.shared_gate,
          .query_rank = model.latent.query_rank,
          .kv_rank = model.latent.kv_rank,
          .value_dim = model.latent.value_dim,
          .encoder = (model.plan_only & Bit(PlanOnlyFeature::kEncoder)) != 0};
}

LayerShape DenseShape(LayerShape shape) {
  const LayerShape none;
  shape.experts = none.experts;
  shape.top_k = none.top_k;
  shape.expert_ffn = none.expert_ffn;
  shape.ep = none.ep;
  shape.capacity_permille = none.capacity_permille;
  shape.skew_permille = none.skew_permille;
  shape.dropless = none.dropless;
  shape.shared_ffn = none.shared_ffn;
  shape.shared_gate = none.shared_gate;
  return shape;
}

const LayerGraph& LayerGraph::Of(const LayerShape& shape) {
  // The index of a graph is the eleven bits below. Bits that have no meaning for a family or kind of attention are ignored, so
  // fewer graphs than indices are made. The vector is never destroyed, so references stay valid until the program ends.
  static const std::vector<const LayerGraph*>& graphs = *new std::vector<const LayerGraph*>([] {
    std::map<Kind, const LayerGraph*> made;
    std::vector<const LayerGraph*> all;
    for (int bits = 0; bits < 2048; ++bits) {
      Kind kind{.family = (bits & 8) != 0 ? ModelFamily::kLlama : ModelFamily::kGpt, .fused = (bits & 4) != 0};
      const bool llama = kind.family == ModelFamily::kLlama;
      kind.stored_masks = !llama && (bits & 2) != 0;  // Llama has no dropout
      kind.sequence_parallel = (bits & 1) != 0;
      kind.moe = llama && (bits & 32) != 0;
      kind.exchanged = kind.moe && (bits & 64) != 0;
      kind.shared = kind.moe && (bits & 128) != 0;
      kind.latent = llama && kind.fused && (bits & 256) != 0;
      kind.direct = kind.latent && (bits & 512) != 0;
      kind.qk_norm = !kind.latent && (bits & 16) != 0;
      kind.rounds = kind.moe && (bits & 1024) != 0;
      const LayerGraph*& graph = made[kind];
      if (graph == nullptr) graph = new LayerGraph(kind);
      all.push_back(graph);
    }
    return all;
  }());
  const size_t bits = (shape.round_room() > 0 ? 1024 : 0) + (shape.latent() && shape.query_rank == 0 ? 512 : 0) +
                      (shape.latent() ? 256 : 0) + (shape.shared_ffn > 0 ? 128 : 0) + (shape.ep > 1 ? 64 : 0) +
                      (shape.moe() ? 32 : 0) + (shape.qk_norm ? 16 : 0) + (shape.family == ModelFamily::kLlama ? 8 : 0) +
                      (shape.attention == AttentionKernel::kFused ? 4 : 0) + (shape.stored_masks ? 2 : 0) +
                      (shape.sequence_parallel ? 1 : 0);
  return *graphs[bits];
}

LayerGraph::LayerGraph(const Kind& kind) {
  const Features model{.gpt = kind.family == ModelFamily::kGpt,
                       .fused = kind.fused,
                       .masks = kind.stored_masks,
                       .sharded = kind.sequence_parallel,
                       .qk_norm = kind.qk_norm,
                       .moe = kind.moe,
                       .exchanged = kind.exchanged,
                       .shared = kind.shared,
                       .latent = kind.latent,
                       .direct = kind.direct,
                       .rounds = kind.rounds};
  AddEmbedding(model, ops_);
  AddAttention(model, ops_);
  kind.moe ? AddExperts(model, ops_) : AddMlp(model, ops_);
  AddHead(kind.sequence_parallel, ops_);
  index_.fill(-1);
  for (size_t i = 0; i < ops_.size(); ++i) index_[Index(ops_[i].op)] = static_cast<int8_t>(i);
  AddSegments(kind);
  AddCollectives(kind);
  FindRecomputable();
}

void LayerGraph::AddSegments(const Kind& kind) {
  using enum Segment;
  const bool sp = kind.sequence_parallel;
  using Segments = std::vector<Segment>;
  const bool gpt = kind.family == ModelFamily::kGpt;
  segments_[Index(kE)] = {gpt ? Segments{kEmbed, kEnd} : Segments{kEmbed}, sp ? Segments{kOut, kEmbed} : Segments{kEmbed}};
  const bool apart = kind.moe ? kind.exchanged : sp;  // see PlacesOf
  Segments forward = apart ? Segments{kAttn, kNorm2, kMlp, kEnd} : Segments{kAttn, kMlp, kEnd};
  if (sp) forward.insert(forward.begin(), kNorm1);
  Segments backward = apart ? Segments{kOut, kMlp} : Segments{kMlp};
  if (apart && sp) backward.push_back(kNorm2);
  backward.insert(backward.end(), {kAttn, kEnd});
  segments_[Index(kT)] = {forward, backward};
  segments_[Index(kH)] = {sp ? Segments{kNorm1, kHead, kEnd} : Segments{kHead, kEnd}, Segments{kHead, kEnd}};
  for (const OpInfo& info : ops_) {
    ops_of_[Index(info.layer_type)][Index(info.forward_segment)][Index(Pass::kForward)].push_back(info.op);
  }
  for (auto info = ops_.rbegin(); info != ops_.rend(); ++info) {
    auto& of_segment = ops_of_[Index(info->layer_type)][Index(info->backward_segment)];
    of_segment[Index(Pass::kBackward)].push_back(info->op);
    if (info->has_weight_pass) of_segment[Index(Pass::kWeight)].push_back(info->op);
  }
}

void LayerGraph::AddCollectives(const Kind& kind) {
  using enum Collective;
  const auto set = [&](LayerType type, Segment segment, Pass pass, const CollectiveInfo& info) {
    collectives_[Index(type)][Index(segment)][Index(pass)] = info;
  };
  set(kH, Segment::kHead, Pass::kForward, {kAllGather, kLossStats, kLossStats});
  if (!kind.sequence_parallel) {
    set(kE, Segment::kEmbed, Pass::kForward, {kAllReduce, kX, kX});
    // With experts, tp is 1 here.
    if (!kind.moe) set(kT, Segment::kAttn, Pass::kForward, {kAllReduce, kX1, kX1});
    if (!kind.moe) set(kT, Segment::kAttn, Pass::kBackward, {kAllReduce, kGradLn1, kGradLn1});
    set(kH, Segment::kHead, Pass::kBackward, {kAllReduce, kGradLnf, kGradLnf});
  } else {
    set(kE, Segment::kEmbed, Pass::kForward, {kReduceScatter, kEmbedSum, kX});
    set(kE, Segment::kOut, Pass::kBackward, {kAllGather, kGrad, kGradEmbed});
    set(kT, Segment::kNorm1, Pass::kForward, {kAllGather, kLn1, kLn1Full});
    set(kT, Segment::kAttn, Pass::kForward, {kReduceScatter, kProjSum, kX1});
    set(kT, kind.moe && !kind.exchanged ? Segment::kMlp : Segment::kNorm2, Pass::kBackward, {kAllGather, kGradProj, kGradProj});
    set(kT, Segment::kAttn, Pass::kBackward, {kReduceScatter, kGradLn1, kGradLn1});
    set(kH, Segment::kNorm1, Pass::kForward, {kAllGather, kLnf, kLnfFull});
    set(kH, Segment::kHead, Pass::kBackward, {kReduceScatter, kGradLnf, kGradLnf});
  }
  if (kind.exchanged) {
    set(kT, Segment::kNorm2, Pass::kForward, {kAllToAll, kRows, kExpertRows, kRowWeights, kExpertWeights});
    set(kT, Segment::kMlp, Pass::kForward, {kAllToAll, kExpertOut, kCombined});
    set(kT, Segment::kOut, Pass::kBackward, {kAllToAll, kGradCombined, kGradExpertOut});
    set(kT, Segment::kMlp, Pass::kBackward, {kAllToAll, kGradExpertRows, kGradRows, kGradExpertWeights, kGradRowWeights});
  } else if (!kind.moe && !kind.sequence_parallel) {
    set(kT, Segment::kMlp, Pass::kForward, {kAllReduce, kX, kX});
    set(kT, Segment::kMlp, Pass::kBackward, {kAllReduce, kGradLn2, kGradLn2});
  } else if (!kind.moe) {
    set(kT, Segment::kNorm2, Pass::kForward, {kAllGather, kLn2, kLn2Full});
    set(kT, Segment::kMlp, Pass::kForward, {kReduceScatter, kFc2Sum, kX});
    set(kT, Segment::kOut, Pass::kBackward, {kAllGather, kGradFc2, kGradFc2});
    set(kT, Segment::kMlp, Pass::kBackward, {kReduceScatter, kGradLn2, kGradLn2});
  }
  for (Pass pass : {Pass::kForward, Pass::kBackward}) {
    const std::vector<Segment>& segments = SegmentsOf(kT, pass);
    windows_[pass == Pass::kForward ? 0 : 1].assign(segments.begin(), segments.end() - 1);
    LYNX_CHECK(WindowsOf(pass).size() <= kMaxWindows);
  }
}

void LayerGraph::FindRecomputable() {
  for (const OpInfo& info : ops_) {
    // A partial sum, or rows, that a collective turns into another tensor are treated as that tensor.
    const CollectiveInfo& collective = CollectiveOf(info.layer_type, info.forward_segment, Pass::kForward);
    const auto after = [&](Tensor tensor) {
      const bool turns = collective.kind == Collective::kReduceScatter || collective.kind == Collective::kAllToAll;
      if (turns && collective.from == tensor) return collective.to;
      return turns && collective.from_weights == tensor ? collective.to_weights : tensor;
    };
    const Tensor made = after(info.output);
    // The results of experts only lead to the x of the next layer: no backward op reads them.
    if (info.layer_type != kT || made == kX || made == kExpertOut || made == kCombined || made == kFc2Sum) continue;
    std::vector<Op>& producers = producers_[Index(made)];
    if (producers.empty()) {
      made_with_[Index(made)] = {made};
    } else {
      // The tensor moves to the position of its last producer in recomputable_: it is ready only when that producer has run.
      std::erase(recomputable_, made);
    }
    recomputable_.push_back(made);
    producers.push_back(info.op);
    std::vector<Tensor>& with = made_with_[Index(made)];
    for (const Tensor side : info.side_outputs) with.push_back(after(side));
  }
  LYNX_CHECK(recomputable_.size() <= kMaxRecomputable);
  for (const Tensor tensor : recomputable_) inputs_[Index(tensor)] = FindInputs(tensor);
  for (const Segment segment : SegmentsOf(kT, Pass::kBackward)) read_by_[Index(segment)] = FindReadBy(segment);
}

const OpInfo& LayerGraph::InfoOf(Op op) const {
  LYNX_CHECK(Has(op));
  return ops_[static_cast<size_t>(index_[Index(op)])];
}

const std::vector<Op>& LayerGraph::OpsOf(LayerType type, Segment segment, Pass pass) const {
  return ops_of_[Index(type)][Index(segment)][Index(pass)];
}

const std::vector<Segment>& LayerGraph::SegmentsOf(LayerType type, Pass pass) const {
  return segments_[Index(type)][pass == Pass::kForward ? 0 : 1];
}

bool LayerGraph::HasSegment(LayerType type, Segment segment, Pass pass) const {
  const std::vector<Segment>& segments = SegmentsOf(type, pass);
  return std::find(segments.begin(), segments.end(), segment) != segments.end();
}

const CollectiveInfo& LayerGraph::CollectiveOf(LayerType type, Segment segment, Pass pass) const {
  return collectives_[Index(type)][Index(segment)][Index(pass)];
}

bool Transfers(const LayerShape& shape, LayerType type, Segment segment, Pass pass) {
  const Collective kind = LayerGraph::Of(shape).CollectiveOf(type, segment, pass).kind;
  return kind != Collective::kNone && shape.MembersOf(kind) > 1;
}

int LayerGraph::RecomputableIndex(Tensor tensor) const {
  const auto found = std::find(recomputable_.begin(), recomputable_.end(), tensor);
  return found == recomputable_.end() ? -1 : static_cast<int>(found - recomputable_.begin());
}

const std::vector<Op>& LayerGraph::ProducersOf(Tensor tensor) const { return producers_[Index(tensor)]; }
const std::vector<Tensor>& LayerGraph::MadeWith(Tensor tensor) const { return made_with_[Index(tensor)]; }

Segment LayerGraph::GatherSegmentOf(Tensor tensor) const {
  switch (tensor) {
    case kLn1Full:
    case kLnfFull: return Segment::kNorm1;
    case kLn2Full: return Segment::kNorm2;
    default: return Segment::kNone;
  }
}

Tensor LayerGraph::ShareOf(Tensor tensor) const {
  switch (tensor) {
    case kLn1Full: return kLn1;
    case kLn2Full: return kLn2;
    case kLnfFull: return kLnf;
    default: return tensor;
  }
}

TensorSet LayerGraph::FindInputs(Tensor tensor) const {
  TensorSet inputs = 0;
  for (Op op : ProducersOf(tensor)) {
    for (Tensor read : InfoOf(op).reads) {
      // A tensor that is made together with a recomputable tensor is treated as that recomputable tensor.
      for (const Tensor made : recomputable_) {
        const std::vector<Tensor>& with = MadeWith(made);
        if (made != tensor && std::find(with.begin(), with.end(), ShareOf(read)) != with.end()) inputs |= Bit(made);
      }
    }
  }
  return inputs;
}

bool LayerGraph::RepeatsCollective(Tensor tensor) const {
  const std::vector<Op>& producers = ProducersOf(tensor);
  for (Op op : producers) {
    const Segment first = InfoOf(producers.front()).forward_segment;
    const bool between = CollectiveOf(kT, first, Pass::kForward).kind != Collective::kNone;
    if (between && InfoOf(op).forward_segment != first) return true;
    if (CollectiveOf(kT, InfoOf(op).forward_segment, Pass::kForward).to == tensor) return true;
    for (Tensor read : InfoOf(op).reads) {
      if (GatherSegmentOf(read) != Segment::kNone) return true;
    }
  }
  return false;
}

TensorSet LayerGraph::FindReadBy(Segment backward_segment) const {
  TensorSet set = 0;
  for (Op op : OpsOf(kT, backward_segment, Pass::kBackward)) {
    for (const std::vector<Tensor>* reads : {&InfoOf(op).backward_reads, &InfoOf(op).weight_reads}) {
      for (Tensor read : *reads) {
        // A tensor that is made together with a recomputable tensor is treated as that recomputable tensor.
        for (Tensor tensor : recomputable_) {
          const std::vector<Tensor>& with = MadeWith(tensor);
          if (std::find(with.begin(), with.end(), ShareOf(read)) != with.end()) set |= Bit(tensor);
        }
      }
    }
  }
  return set;
}

}  // namespace lynx
