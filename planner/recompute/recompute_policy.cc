// The named policies, and policies as text. See recompute_policy.h.
#include "planner/recompute/recompute_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/recompute/recompute_modules.h"

namespace lynx {
namespace {

// True for the outputs of norms and activation functions, which the mode `balanced` recomputes.
bool IsBalanced(Tensor tensor) {
  switch (tensor) {
    case Tensor::kLn1:
    case Tensor::kLatentNormed:
    case Tensor::kQkNormed:
    case Tensor::kLn2:
    case Tensor::kGelu:
    case Tensor::kSilu:
    case Tensor::kSwiglu:
    case Tensor::kSharedSwiglu: return true;
    default: return false;
  }
}

Placement NamedPlacement(RecomputeMode mode, Tensor tensor) {
  switch (mode) {
    case RecomputeMode::kNone: return Placement::kStore;
    case RecomputeMode::kFull: return Placement::kCritical;
    case RecomputeMode::kFullKeepCollectives:
      return tensor == Tensor::kX1 || tensor == Tensor::kExpertRows ? Placement::kStore : Placement::kCritical;
    case RecomputeMode::kSelective:
      return tensor == Tensor::kProbs || tensor == Tensor::kProbsDropped ? Placement::kCritical : Placement::kStore;
    case RecomputeMode::kBalanced: return IsBalanced(tensor) ? Placement::kCritical : Placement::kStore;
    default: break;
  }
  LYNX_CHECK(!"the mode does not treat every layer alike");
  return Placement::kStore;
}

// Splits the layers into groups of `group` layers. In each group, only the input of the first layer is stored.
void ChainInputs(int32_t group, StagePolicy& policy) {
  if (group <= 1 || policy.layers.size() <= 1) return;
  for (size_t l = 0; l < policy.layers.size(); ++l) policy.input_recomputed.push_back(l % static_cast<size_t>(group) != 0);
}

// Offloads whole tensors, layer by layer in the order of the graph, as long as the offloaded share of all bytes so far is at
// most `permille` thousandths.
void OffloadShare(const LayerShape& shape, int32_t permille, StagePolicy& policy) {
  const std::vector<Tensor>& tensors = LayerGraph::Of(shape).recomputable();
  Bytes stored, offloaded;
  for (LayerPolicy& layer : policy.layers) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (layer[i] == Placement::kStore) stored += StoredBytes(tensors[i], shape);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Bytes bytes = StoredBytes(tensors[i], shape);
      if (layer[i] != Placement::kStore || (offloaded + bytes) * 1000 > stored * permille) continue;
      layer[i] = Placement::kOffload;
      offloaded += bytes;
    }
  }
}

// The names of the tensors with this placement, such as " ln1 qkv".
std::string TensorsAt(const LayerGraph& graph, const LayerPolicy& policy, Placement placement) {
  std::string text;
  for (size_t i = 0; i < graph.recomputable().size(); ++i) {
    if (policy[i] == placement) absl::StrAppend(&text, " ", EnumName(graph.recomputable()[i]));
  }
  return text;
}

}  // namespace

LayerPolicy PolicyIn(const LayerGraph& graph, const LayerGraph& of, const LayerPolicy& policy) {
  if (&graph == &of) return policy;
  LayerPolicy result{};
  for (size_t i = 0; i < graph.recomputable().size(); ++i) {
    const int position = of.RecomputableIndex(graph.recomputable()[i]);
    if (position >= 0) result[i] = policy[static_cast<size_t>(position)];
  }
  return result;
}

StagePolicy NamedPolicy(const LayerGraph& graph, RecomputeMode mode, int32_t layers,
                        const std::vector<RecomputeModule>& modules) {
  LayerPolicy policy{};
  const bool by_module = mode == RecomputeMode::kSelective && !modules.empty();
  const TensorSet again = by_module ? TensorsOfModules(graph, modules) : 0;
  for (size_t i = 0; i < graph.recomputable().size(); ++i) {
    const Tensor tensor = graph.recomputable()[i];
    policy[i] = !by_module ? NamedPlacement(mode, tensor) : Contains(again, tensor) ? Placement::kCritical : Placement::kStore;
  }
  return {.layers = std::vector<LayerPolicy>(static_cast<size_t>(layers), policy)};
}

StagePolicy NamedPolicy(const LayerShape& shape, RecomputeMode mode, const RecomputeOptions& options, int32_t layers) {
  const LayerGraph& graph = LayerGraph::Of(shape);
  StagePolicy policy;
  if (mode == RecomputeMode::kUniform) {
    policy = NamedPolicy(graph, RecomputeMode::kFull, layers);
    ChainInputs(options.layers, policy);
  } else if (mode == RecomputeMode::kBlock) {
    policy = NamedPolicy(graph, RecomputeMode::kNone, layers);
    const StagePolicy full = NamedPolicy(graph, RecomputeMode::kFull, std::min(layers, options.layers));
    std::copy(full.layers.begin(), full.layers.end(), policy.layers.begin());
  } else {
    policy = NamedPolicy(graph, mode, layers, options.modules);
  }
  if (options.offload_permille > 0) OffloadShare(shape, options.offload_permille, policy);
  return policy;
}

std::string LayerPolicyText(const LayerGraph& graph, const LayerPolicy& policy) {
  const auto all = [&](Placement placement) {
    const auto end = policy.begin() + static_cast<ptrdiff_t>(graph.recomputable().size());
    return std::all_of(policy.begin(), end, [&](Placement p) { return p == placement; });
  };
  if (all(Placement::kStore)) return "store all";
  if (all(Placement::kCritical)) return "full";
  std::string text;
  for (int i = 0; i < kPlacementCount; ++i) {
    const auto placement = static_cast<Placement>(i);
    const std::string tensors = TensorsAt(graph, policy, placement);
    if (tensors.empty()) continue;
    if (!text.empty()) text += "; ";
    if (!IsRecomputed(placement)) {
      absl::StrAppend(&text, tensors.substr(1), placement == Placement::kStore ? " stored" : " offloaded");
    } else {
      absl::StrAppend(&text, EnumName(placement), ":", tensors);
    }
  }
  return text;
}

std::string StagePolicyText(const LayerGraph& graph, const StagePolicy& policy, int32_t first_layer) {
  std::string text;
  for (size_t begin = 0, end; begin < policy.layers.size(); begin = end) {
    for (end = begin + 1; end < policy.layers.size() && policy.layers[end] == policy.layers[begin];) ++end;
    const int64_t first = first_layer + static_cast<int64_t>(begin);
    const int64_t last = first_layer + static_cast<int64_t>(end) - 1;
    if (!text.empty()) text += "; ";
    if (first == last) {
      absl::StrAppend(&text, "layer ", first, ": ");
    } else {
      absl::StrAppend(&text, "layers ", first, "-", last, ": ");
    }
    text += LayerPolicyText(graph, policy.layers[begin]);
  }
  const std::string inputs = RecomputedInputsText(policy, first_layer);
  if (!inputs.empty()) absl::StrAppend(&text, "; inputs recomputed: ", inputs);
  return text;
}

std::string RecomputedInputsText(const StagePolicy& policy, int32_t first_layer) {
  std::string text;
  for (size_t begin = 0, end; begin < policy.layers.size(); begin = end) {
    end = begin + 1;
    if (!policy.InputRecomputed(begin)) continue;
    while (policy.InputRecomputed(end)) ++end;
    absl::StrAppend(&text, text.empty() ? "" : " ", first_layer + static_cast<int64_t>(begin));
    if (end > begin + 1) absl::StrAppend(&text, "-", first_layer + static_cast<int64_t>(end) - 1);
  }
  return text;
}

}  // namespace lynx
