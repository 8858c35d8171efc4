#include "planner/frameworks/layer_repeat.h"

#include "planner/recompute/recompute_modules.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

OpSet LayerOps(const LayerGraph& graph) {
  OpSet ops = 0;
  for (const OpInfo& info : graph.ops()) {
    if (info.layer_type == LayerType::kTransformer) ops |= Bit(info.op);
  }
  return ops;
}

namespace {

// Returns the ops that make these recomputable tensors.
OpSet ProducersOf(const LayerGraph& graph, TensorSet tensors) {
  OpSet ops = 0;
  for (const Tensor tensor : graph.recomputable()) {
    if (!Contains(tensors, tensor)) continue;
    for (const Op op : graph.ProducersOf(tensor)) ops |= Bit(op);
  }
  return ops;
}

// The layer's input and all recomputable tensors but `dropped`, of which `kept_part` is kept.
std::vector<KeptTensor> KeptTensors(const LayerGraph& graph, const LayerShape& shape, TensorSet dropped, TensorSet kept_part) {
  std::vector<KeptTensor> kept = {{EnumName(Tensor::kX), TensorBytes(Tensor::kX, shape)}};
  for (const Tensor tensor : graph.recomputable()) {
    if (!Contains(dropped, tensor)) {
      kept.push_back({EnumName(tensor), StoredBytes(tensor, shape)});
    } else if (Contains(kept_part, tensor)) {
      kept.push_back({EnumName(tensor), TensorBytes(tensor, shape)});
    }
  }
  return kept;
}

LayerRepeat ByOp(const LayerGraph& graph, const LayerShape& shape) {
  LayerRepeat repeat;
  // All ops but attention and w2, the second half of the block's products.
  repeat.ops = LayerOps(graph) & ~(Bit(Op::kFlash) | Bit(Op::kProbs) | Bit(Op::kDrop) | Bit(Op::kContext) | Bit(Op::kFc2));
  const int64_t heads = shape.heads, key_heads = shape.key_heads();
  repeat.qkv_permille = static_cast<int32_t>(1000 * key_heads / (heads + 2 * key_heads));
  repeat.fc1_permille = 500;
  repeat.keeps_reduced = true;
  const auto bytes = [&](int64_t width) { return Bytes(shape.tokens() * width * shape.element_bytes()); };
  const Bytes share = TensorBytes(Tensor::kX, shape);
  repeat.kept = {{"x", share},
                 {"queries before rope", bytes(heads / shape.tp * shape.head_size())},
                 {"values", bytes(key_heads / shape.tp * shape.head_size())},
                 {"context", StoredBytes(Tensor::kContext, shape)},
                 {"gate of fc1", bytes(shape.mlp_width())},
                 {"result of fc2", bytes(shape.hidden)}};
  if (shape.tp > 1) repeat.kept.push_back({"two reduce-scattered sums", share * 2});
  return repeat;
}

}  // namespace

Bytes LayerRepeat::kept_bytes() const {
  Bytes sum;
  for (const KeptTensor& tensor : kept) sum += tensor.bytes;
  return sum;
}

bool CheckpointsByOp(const LayerShape& shape, const FrameworkTraits& traits) {
  return traits.checkpoints_ops && shape.family == ModelFamily::kLlama && shape.attention == AttentionKernel::kFused &&
         !shape.moe() && !shape.latent();
}

LayerRepeat LayerRepeatOf(const LayerShape& shape, RecomputeMode mode, const std::vector<RecomputeModule>& modules,
                          const FrameworkTraits& traits) {
  const LayerGraph& graph = LayerGraph::Of(shape);
  if (mode == RecomputeMode::kBalanced && CheckpointsByOp(shape, traits)) return ByOp(graph, shape);
  LayerRepeat repeat;
  if (traits.checkpoints_functions && mode == RecomputeMode::kSelective && !modules.empty()) {
    const RepeatedModules repeated = MegatronModules(graph, modules, traits.fuses_norms);
    repeat.ops = repeated.ops;
    repeat.kept = KeptTensors(graph, shape, repeated.dropped, repeated.kept_part);
    return repeat;
  }
  const LayerPolicy policy = NamedPolicy(graph, mode, 1, modules).layers.front();
  TensorSet dropped = 0;
  for (size_t i = 0; i < graph.recomputable().size(); ++i) {
    if (IsRecomputed(policy[i])) dropped |= Bit(graph.recomputable()[i]);
  }
  repeat.ops = ProducersOf(graph, dropped);
  repeat.kept = KeptTensors(graph, shape, dropped, 0);
  if (!traits.checkpoints_functions) return repeat;
  if (mode == RecomputeMode::kFull) {
    repeat.ops = LayerOps(graph);
    repeat.whole = true;
  }
  if (mode == RecomputeMode::kSelective && repeat.ops != 0) repeat.ops |= Bit(Op::kContext);
  return repeat;
}

}  // namespace lynx
