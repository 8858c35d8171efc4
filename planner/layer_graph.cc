// The tables of ops and tensors, and everything that follows from them. See layer_graph.h.
#include "planner/layer_graph.h"

#include <algorithm>
#include <array>

#include "common/check.h"

namespace lynx {
namespace {

constexpr int64_t kElementBytes = 4;  // fp32

struct TensorInfo {
  Tensor tensor;
  std::string_view name;
};

// Indexed by Tensor.
constexpr std::array<TensorInfo, kTensorCount> kTensors = {{
    {Tensor::kX, "x"},
    {Tensor::kLn1, "ln1"},
    {Tensor::kQkv, "qkv"},
    {Tensor::kProbs, "probs"},
    {Tensor::kContext, "context"},
    {Tensor::kX1, "x1"},
    {Tensor::kLn2, "ln2"},
    {Tensor::kFc1, "fc1"},
    {Tensor::kGelu, "gelu"},
    {Tensor::kLnf, "lnf"},
    {Tensor::kLogits, "logits"},
    {Tensor::kLossStats, "loss_stats"},
    {Tensor::kGrad, "grad"},
    {Tensor::kGradFc2, "grad_fc2"},
    {Tensor::kGradFc1, "grad_fc1"},
    {Tensor::kGradLn2, "grad_ln2"},
    {Tensor::kGradProj, "grad_proj"},
    {Tensor::kGradContext, "grad_context"},
    {Tensor::kGradQkv, "grad_qkv"},
    {Tensor::kGradLn1, "grad_ln1"},
    {Tensor::kGradLnf, "grad_lnf"},
    {Tensor::kWorkspace, "workspace"},
}};

constexpr std::array<std::string_view, 6> kSegmentNames = {"none", "embed", "attn", "mlp", "head", "end"};
constexpr std::array<std::string_view, 3> kLayerTypeNames = {"embedding", "transformer", "head"};

std::vector<OpInfo> MakeOps() {
  using enum Tensor;
  constexpr auto kRead = AccessMode::kRead;
  constexpr auto kWrite = AccessMode::kWrite;
  constexpr auto kUpdate = AccessMode::kUpdate;
  constexpr auto kE = LayerType::kEmbedding;
  constexpr auto kT = LayerType::kTransformer;
  constexpr auto kH = LayerType::kHead;
  constexpr auto kSegEmbed = Segment::kEmbed;
  constexpr auto kSegAttn = Segment::kAttn;
  constexpr auto kSegMlp = Segment::kMlp;
  constexpr auto kSegHead = Segment::kHead;
  constexpr auto kSegEnd = Segment::kEnd;
  // clang-format off
  // Columns: op, name, layer type, forward segment, backward segment | reads, output, in place |
  //          backward reads, gradients | weight reads, weight gradients, has a weight pass.
  return {
      {Op::kEmbed, "embed", kE, kSegEmbed, kSegEmbed, {}, kX, false,
       {}, {{kGrad, kRead}}, {}, {}, false},
      {Op::kPosition, "position", kE, kSegEnd, kSegEmbed, {}, kX, true,
       {}, {{kGrad, kRead}}, {}, {}, false},
      {Op::kLn1, "ln1", kT, kSegAttn, kSegEnd, {kX}, kLn1, false,
       {kX}, {{kGradLn1, kRead}, {kGrad, kUpdate}}, {}, {}, false},
      {Op::kQkv, "qkv", kT, kSegAttn, kSegAttn, {kLn1}, kQkv, false,
       {}, {{kGradQkv, kRead}, {kGradLn1, kWrite}}, {kLn1}, {kGradQkv}, true},
      {Op::kProbs, "probs", kT, kSegAttn, kSegAttn, {kQkv}, kProbs, false,
       {kProbs, kQkv}, {{kGradQkv, kUpdate}}, {}, {}, false},
      {Op::kContext, "context", kT, kSegAttn, kSegAttn, {kProbs, kQkv}, kContext, false,
       {kProbs, kQkv}, {{kGradContext, kRead}, {kGradQkv, kWrite}}, {}, {}, false},
      {Op::kProj, "proj", kT, kSegAttn, kSegAttn, {kContext}, kX1, false,
       {}, {{kGradProj, kRead}, {kGradContext, kWrite}}, {kContext}, {kGradProj}, true},
      {Op::kAdd1, "add1", kT, kSegMlp, kSegAttn, {kX}, kX1, true,
       {}, {{kGrad, kRead}, {kGradProj, kWrite}}, {}, {kGradProj}, true},
      {Op::kLn2, "ln2", kT, kSegMlp, kSegAttn, {kX1}, kLn2, false,
       {kX1}, {{kGradLn2, kRead}, {kGrad, kUpdate}}, {}, {}, false},
      {Op::kFc1, "fc1", kT, kSegMlp, kSegMlp, {kLn2}, kFc1, false,
       {}, {{kGradFc1, kRead}, {kGradLn2, kWrite}}, {kLn2}, {kGradFc1}, true},
      {Op::kGelu, "gelu", kT, kSegMlp, kSegMlp, {kFc1}, kGelu, false,
       {kFc1}, {{kGradFc1, kUpdate}}, {}, {}, false},
      {Op::kFc2, "fc2", kT, kSegMlp, kSegMlp, {kGelu}, kX, false,
       {}, {{kGradFc2, kRead}, {kGradFc1, kWrite}}, {kGelu}, {kGradFc2}, true},
      {Op::kAdd2, "add2", kT, kSegEnd, kSegMlp, {kX1}, kX, true,
       {}, {{kGrad, kRead}, {kGradFc2, kWrite}}, {}, {kGradFc2}, true},
      {Op::kLnf, "lnf", kH, kSegHead, kSegEnd, {kX}, kLnf, false,
       {kX}, {{kGradLnf, kRead}, {kGrad, kWrite}}, {}, {}, false},
      // The gradient of the logits overwrites them, so the passes after the loss's backward read it there.
      {Op::kLogits, "logits", kH, kSegHead, kSegHead, {kLnf}, kLogits, false,
       {kLogits}, {{kGradLnf, kWrite}}, {kLnf, kLogits}, {}, true},
      {Op::kLoss, "loss", kH, kSegEnd, kSegHead, {kLogits, kLossStats}, kWorkspace, false,
       {kLossStats}, {{kLogits, kUpdate}}, {}, {}, false},
  };
  // clang-format on
}

int64_t Elements(Tensor tensor, const LayerShape& s) {
  const int64_t tokens = s.tokens();
  switch (tensor) {
    case Tensor::kX:
    case Tensor::kLn1:
    case Tensor::kX1:
    case Tensor::kLn2:
    case Tensor::kLnf:
    case Tensor::kGrad:
    case Tensor::kGradFc2:
    case Tensor::kGradLn2:
    case Tensor::kGradProj:
    case Tensor::kGradLn1:
    case Tensor::kGradLnf:
      return tokens * s.hidden;
    case Tensor::kQkv:
    case Tensor::kGradQkv:
      return tokens * 3 * (s.hidden / s.tp);
    case Tensor::kProbs:
      return tokens * s.seq * (s.heads / s.tp);
    case Tensor::kContext:
    case Tensor::kGradContext:
      return tokens * (s.hidden / s.tp);
    case Tensor::kFc1:
    case Tensor::kGelu:
    case Tensor::kGradFc1:
      return tokens * (s.ffn / s.tp);
    case Tensor::kLogits:
      return tokens * s.vocab_shard();
    case Tensor::kLossStats:
      return tokens * 3 * s.tp;
    case Tensor::kWorkspace:
      break;
  }
  LYNX_CHECK(!"workspace has no shape of its own; see WorkspaceBytes");
  return 0;
}

bool HasSegment(LayerType type, Segment segment, Pass pass) {
  const std::vector<Segment> segments = SegmentsOf(type, pass);
  return std::find(segments.begin(), segments.end(), segment) != segments.end();
}

}  // namespace

LayerShape ShapeOf(const ModelSpec& model, int32_t tp, int32_t micro_batch) {
  return {.micro_batch = micro_batch,
          .seq = model.seq,
          .hidden = model.hidden,
          .heads = model.heads,
          .ffn = model.ffn,
          .vocab = model.vocab,
          .tp = tp,
          .dropout = model.dropout > 0};
}

const std::vector<OpInfo>& AllOps() {
  static const std::vector<OpInfo>& ops = *new std::vector<OpInfo>(MakeOps());
  return ops;
}

const OpInfo& InfoOf(Op op) {
  const OpInfo& info = AllOps()[static_cast<size_t>(op)];
  LYNX_CHECK(info.op == op);
  return info;
}

std::vector<Op> OpsOf(LayerType type, Segment segment, Pass pass) {
  std::vector<Op> ops;
  for (const OpInfo& info : AllOps()) {
    if (info.layer_type != type) continue;
    if ((pass == Pass::kForward ? info.forward_segment : info.backward_segment) != segment) continue;
    if (pass == Pass::kWeight && !info.has_weight_pass) continue;
    ops.push_back(info.op);
  }
  if (pass != Pass::kForward) std::reverse(ops.begin(), ops.end());
  return ops;
}

std::vector<Segment> SegmentsOf(LayerType type, Pass pass) {
  const bool forward = pass == Pass::kForward;
  switch (type) {
    case LayerType::kEmbedding:
      return forward ? std::vector{Segment::kEmbed, Segment::kEnd} : std::vector{Segment::kEmbed};
    case LayerType::kTransformer:
      return forward ? std::vector{Segment::kAttn, Segment::kMlp, Segment::kEnd}
                     : std::vector{Segment::kMlp, Segment::kAttn, Segment::kEnd};
    case LayerType::kHead:
      return {Segment::kHead, Segment::kEnd};
  }
  LYNX_CHECK(!"unknown layer type");
  return {};
}

bool EndsInCollective(LayerType type, Segment segment, Pass pass) {
  if (segment == Segment::kEnd || !HasSegment(type, segment, pass)) return false;
  return type != LayerType::kEmbedding || pass == Pass::kForward;
}

const std::vector<Tensor>& RecomputableTensors() {
  using enum Tensor;
  static const std::vector<Tensor>& tensors =
      *new std::vector<Tensor>{kLn1, kQkv, kProbs, kContext, kX1, kLn2, kFc1, kGelu};
  return tensors;
}

std::vector<Op> ProducersOf(Tensor tensor) {
  std::vector<Op> producers;
  for (const OpInfo& info : AllOps()) {
    if (info.layer_type == LayerType::kTransformer && info.output == tensor) producers.push_back(info.op);
  }
  return producers;
}

Bytes TensorBytes(Tensor tensor, const LayerShape& shape) { return Bytes(Elements(tensor, shape) * kElementBytes); }

Bytes WorkspaceBytes(Op op, Pass pass, const LayerShape& shape) {
  // Attention works on one head of one sample at a time. Forward: its probabilities after dropout. Backward: those,
  // and the gradient of the probabilities.
  const int64_t square = int64_t{shape.seq} * shape.seq * kElementBytes;
  if (pass == Pass::kForward && op == Op::kContext) return Bytes(shape.dropout ? square : 0);
  if (pass == Pass::kBackward && (op == Op::kContext || op == Op::kProbs)) return Bytes(2 * square);
  return Bytes(0);
}

Bytes CollectiveBytes(LayerType type, Segment segment, Pass pass, const LayerShape& shape) {
  if (!EndsInCollective(type, segment, pass)) return Bytes(0);
  const bool gathers = type == LayerType::kHead && pass == Pass::kForward;
  return TensorBytes(gathers ? Tensor::kLossStats : Tensor::kX, shape);
}

int64_t OpFlops(Op op, Pass pass, const LayerShape& s) {
  if (pass == Pass::kWeight && !InfoOf(op).has_weight_pass) return 0;
  const int64_t tokens = s.tokens();
  const int64_t hidden = s.hidden;
  switch (op) {
    case Op::kQkv:
      return 2 * tokens * hidden * 3 * (hidden / s.tp);
    case Op::kProj:
      return 2 * tokens * hidden * (hidden / s.tp);
    case Op::kFc1:
    case Op::kFc2:
      return 2 * tokens * hidden * (s.ffn / s.tp);
    case Op::kLogits:
      return 2 * tokens * hidden * s.vocab_shard();
    case Op::kProbs:
    case Op::kContext:
      // One product forward; backward one for each of its two inputs.
      return (pass == Pass::kBackward ? 4 : 2) * tokens * s.seq * (hidden / s.tp);
    default:
      return 0;
  }
}

Bytes OpTraffic(Op op, Pass pass, const LayerShape& shape) {
  const OpInfo& info = InfoOf(op);
  // Of the token embedding only the rows of the batch's tokens move, which the tensors below already count.
  Bytes weights{op == Op::kEmbed ? 0 : OpParameters(op, shape) * kElementBytes};
  Bytes total;
  const auto add = [&](Tensor tensor, int64_t times) { total += TensorBytes(tensor, shape) * times; };
  switch (pass) {
    case Pass::kForward:
      for (Tensor t : info.reads) add(t, 1);
      if (op == Op::kEmbed) add(info.output, 1);  // the rows read
      if (info.output != Tensor::kWorkspace) add(info.output, info.in_place ? 2 : 1);
      return total + weights;
    case Pass::kBackward:
      for (Tensor t : info.backward_reads) add(t, 1);
      for (const TensorUse& use : info.gradients) add(use.tensor, use.mode == AccessMode::kUpdate ? 2 : 1);
      if (op == Op::kEmbed) add(info.output, 2);  // the gradient's rows, read and written
      // Norms and positions add to their weights' gradients here; a linear's input gradient reads its weights.
      return total + weights * (info.has_weight_pass ? 1 : 2);
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
  switch (op) {
    case Op::kEmbed:
    case Op::kLogits:
      return hidden * s.vocab_shard();
    case Op::kPosition:
      return hidden * s.seq;
    case Op::kLn1:
    case Op::kLn2:
    case Op::kLnf:
      return 2 * hidden;
    case Op::kQkv:
      return (hidden + 1) * 3 * (hidden / s.tp);
    case Op::kProj:
      return hidden * (hidden / s.tp);
    case Op::kAdd1:
    case Op::kAdd2:
      return hidden;
    case Op::kFc1:
      return (hidden + 1) * (s.ffn / s.tp);
    case Op::kFc2:
      return hidden * (s.ffn / s.tp);
    case Op::kProbs:
    case Op::kContext:
    case Op::kGelu:
    case Op::kLoss:
      return 0;
  }
  LYNX_CHECK(!"unknown op");
  return 0;
}

int64_t LayerParameters(LayerType type, const LayerShape& shape) {
  int64_t parameters = 0;
  for (const OpInfo& info : AllOps()) {
    if (info.layer_type == type) parameters += OpParameters(info.op, shape);
  }
  return parameters;
}

std::string_view OpName(Op op) { return InfoOf(op).name; }

std::string_view TensorName(Tensor tensor) {
  const TensorInfo& info = kTensors[static_cast<size_t>(tensor)];
  LYNX_CHECK(info.tensor == tensor);
  return info.name;
}

std::string_view SegmentName(Segment segment) { return kSegmentNames[static_cast<size_t>(segment)]; }
std::string_view LayerTypeName(LayerType type) { return kLayerTypeNames[static_cast<size_t>(type)]; }

bool ParseOp(std::string_view name, Op& op) {
  for (const OpInfo& info : AllOps()) {
    if (info.name != name) continue;
    op = info.op;
    return true;
  }
  return false;
}

bool ParseTensor(std::string_view name, Tensor& tensor) {
  for (const TensorInfo& info : kTensors) {
    if (info.name != name) continue;
    tensor = info.tensor;
    return true;
  }
  return false;
}

bool ParseSegment(std::string_view name, Segment& segment) {
  for (size_t i = 1; i < kSegmentNames.size(); ++i) {
    if (kSegmentNames[i] != name) continue;
    segment = static_cast<Segment>(i);
    return true;
  }
  return false;
}

}  // namespace lynx
