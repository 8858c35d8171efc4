// Computes which tensors actions access, how long tensors live, and the bytes of the states. See memory_model.h. Offsets:
// arena_layout.cc.
#include "planner/program/memory_model.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/problem/narrow_products.h"
#include "planner/program/access_table.h"
#include "planner/program/arena_layout.h"
#include "planner/program/host_layout.h"
#include "planner/program/state_sharing.h"

namespace lynx {
namespace {

constexpr int64_t kStateBytes = 4;  // moments and master weights are 32-bit

// Returns the layer of kGrad's key. If the previous slice is on the same rank, the backward pass hands the gradient to that
// slice in the same buffer, so both slices use one key.
int32_t GradientLayer(const StageContext& context, const StageSlice& slice) {
  if (context.slices.size() == 1) return kNoLayer;
  const PipelineShape pipeline = context.pipeline();
  const StageSlice* last = &slice;
  while (pipeline.Previous(last->stage) != kNoStage) {
    const StageSlice* previous = context.FindSlice(pipeline.Previous(last->stage));
    if (previous == nullptr) break;
    last = previous;
  }
  return last->first_layer;
}

// Collects the accesses of one action. Each key occurs once; the keys are in the order of their first use.
class AccessList {
 public:
  AccessList(const Action& action, const StageContext& context, const StageSlice& slice)
      : action_(action), context_(context), slice_(slice), shape_(context.ShapeOfLayer(action.layer)) {}

  // Adds a tensor of the action's own layer. All layers use the same kGrad, so its key does not have the action's layer.
  void Add(Tensor tensor, AccessMode mode) {
    AddKey({tensor, tensor == Tensor::kGrad ? GradientLayer(context_, slice_) : action_.layer, action_.microbatch}, mode);
  }

  // Adds the x that a layer's last segment writes, which is the input of the next layer.
  void AddOutputX(AccessMode mode) { AddKey({Tensor::kX, OutputLayer(), action_.microbatch}, mode); }

  // Adds the x that crosses the slice's boundary.
  void AddBoundaryX(int32_t layer, AccessMode mode) { AddKey({Tensor::kX, layer, action_.microbatch}, mode); }

  // Adds the gathered weights or the weight gradients of the action's layer. ZeRO keeps them in the arena.
  void AddStates(Tensor tensor, AccessMode mode) {
    const int64_t element = tensor == Tensor::kWeights ? shape_.element_bytes() : shape_.gradient_bytes();
    const Bytes bytes(LayerParameters(LayerTypeOf(action_.layer), shape_) * element);
    accesses_.push_back({{tensor, action_.layer, kNoMicrobatch}, mode, bytes});
  }

  void NeedWorkspace(Bytes bytes) { workspace_ = std::max(workspace_, bytes); }

  std::vector<Access> Take() && {
    if (workspace_ > Bytes(0)) {
      accesses_.push_back({{Tensor::kWorkspace, kNoLayer, kNoMicrobatch}, AccessMode::kWrite, workspace_});
    }
    return std::move(accesses_);
  }

  const LayerShape& shape() const { return shape_; }

 private:
  int32_t OutputLayer() const {
    if (action_.layer == kEmbeddingLayer) return slice_.first_layer;
    const int32_t next = action_.layer + 1;
    return next == slice_.end_layer && slice_.has_head ? kHeadLayer : next;
  }

  // Adds an access. If the action has already accessed the key, the two accesses become one. kWrite stays kWrite: the action
  // begins a new BufferInstance, and its later accesses to the key belong to this instance. kRead becomes kUpdate if the new
  // access is not a read.
  void AddKey(const BufferKey& key, AccessMode mode) {
    for (Access& access : accesses_) {
      if (access.key != key) continue;
      if (access.mode == AccessMode::kRead && mode != AccessMode::kRead) access.mode = AccessMode::kUpdate;
      return;
    }
    accesses_.push_back({key, mode, TensorBytes(key.tensor, shape_)});
  }

  const Action& action_;
  const StageContext& context_;
  const StageSlice& slice_;
  const LayerShape shape_;
  std::vector<Access> accesses_;
  Bytes workspace_;
};

void AddForwardOp(const OpInfo& info, AccessList& list) {
  for (const Tensor tensor : info.reads) list.Add(tensor, AccessMode::kRead);
  list.NeedWorkspace(WorkspaceBytes(info.op, Pass::kForward, list.shape()));
  if (info.output == Tensor::kWorkspace) return;
  const AccessMode mode = info.in_place ? AccessMode::kUpdate : AccessMode::kWrite;
  if (info.output == Tensor::kX) {
    list.AddOutputX(mode);
  } else {
    list.Add(info.output, mode);
  }
  for (const Tensor tensor : info.side_outputs) list.Add(tensor, AccessMode::kWrite);
}

void AddOps(const Action& action, const LayerGraph& graph, AccessList& list) {
  const std::vector<Op> ops = OpsOf(graph, action);
  switch (InfoOf(action.kind).part) {
    case StepPart::kForward:
    case StepPart::kRecompute:
      for (const Op op : ops) AddForwardOp(graph.InfoOf(op), list);
      return;
    case StepPart::kBackward:
      for (const Op op : ops) {
        const OpInfo& info = graph.InfoOf(op);
        for (const Tensor tensor : info.backward_reads) list.Add(tensor, AccessMode::kRead);
        for (const TensorUse& use : info.gradients) list.Add(use.tensor, use.mode);
        list.NeedWorkspace(WorkspaceBytes(op, Pass::kBackward, list.shape()));
      }
      return;
    case StepPart::kWeight:
      for (const Op op : ops) {
        const OpInfo& info = graph.InfoOf(op);
        for (const Tensor tensor : info.weight_reads) list.Add(tensor, AccessMode::kRead);
        for (const Tensor tensor : info.weight_gradients) list.Add(tensor, AccessMode::kRead);
        list.NeedWorkspace(WorkspaceBytes(op, Pass::kWeight, list.shape()));
      }
      return;
    case StepPart::kOther: LYNX_CHECK(!"not an action that runs ops");
  }
}

// Adds the tensors that the collective at the end of a segment works on.
void AddCollective(const Action& action, const LayerGraph& graph, AccessList& list) {
  const ActionInfo& kind = InfoOf(action.kind);
  const CollectiveInfo& info = graph.CollectiveOf(LayerTypeOf(action.layer), action.segment, kind.segment_pass());
  if (info.kind == Collective::kNone) return;
  const auto add = [&](Tensor tensor, AccessMode mode) {
    if (tensor == Tensor::kX) {
      list.AddOutputX(mode);
    } else {
      list.Add(tensor, mode);
    }
  };
  const bool start = kind.phase == Phase::kStart;
  const auto add_pair = [&](Tensor from, Tensor to) {
    if (from == to) return add(to, AccessMode::kUpdate);
    add(from, AccessMode::kRead);
    add(to, start ? AccessMode::kWrite : AccessMode::kUpdate);
  };
  add_pair(info.from, info.to);
  if (info.from_weights != Tensor::kWorkspace) add_pair(info.from_weights, info.to_weights);
}

// Adds the weights that the ops read, and the weight gradients to which the ops add, if ranks shard these states.
void AddSharedStates(const Action& action, const StageContext& context, AccessList& list) {
  if (!ReducesEachMicrobatch(context)) return;
  if (SharesWeights(context) && ReadsWeights(action, LayerGraph::Of(list.shape()), list.shape())) {
    list.AddStates(Tensor::kWeights, AccessMode::kRead);
  }
  if (AddsWeightGradients(action, LayerGraph::Of(list.shape()), list.shape())) {
    list.AddStates(Tensor::kWeightGradients, AccessMode::kAccumulate);
  }
}

// A buffer that is sent is read from the start to the wait. A buffer that is received is written from the start on.
AccessMode ModeOf(const ActionInfo& info) {
  if (info.flow == Flow::kOut) return AccessMode::kRead;
  return info.phase == Phase::kStart ? AccessMode::kWrite : AccessMode::kUpdate;
}

void AddCopy(const Action& action, AccessList& list) {
  const AccessMode mode = ModeOf(InfoOf(action.kind));
  for (int i = 0; i < kTensorCount; ++i) {
    const auto tensor = static_cast<Tensor>(i);
    if (!Contains(action.tensors, tensor)) continue;
    list.Add(tensor, mode);
  }
}

// Adds what a stage sends to its neighbour or receives from it: x in the forward pass, the gradient in the backward pass.
void AddBoundary(const ActionInfo& info, const StageSlice& slice, AccessList& list) {
  if (info.part == StepPart::kBackward) return list.Add(Tensor::kGrad, ModeOf(info));
  const int32_t output_layer = slice.has_head ? kHeadLayer : slice.end_layer;
  list.AddBoundaryX(info.flow == Flow::kOut ? output_layer : slice.first_layer, ModeOf(info));
}

// Adds the gradients that replicas reduce, or the weights that they gather, if the arena holds them.
void AddReplicaStates(const Action& action, const StageContext& context, AccessList& list) {
  const bool start = InfoOf(action.kind).phase == Phase::kStart;
  const bool reduces = action.kind == ActionKind::kDataReduceStart || action.kind == ActionKind::kDataReduceWait;
  if (reduces && ReducesEachMicrobatch(context)) {
    list.AddStates(Tensor::kWeightGradients, start ? AccessMode::kRead : AccessMode::kRelease);
  } else if (!reduces && SharesWeights(context)) {
    list.AddStates(Tensor::kWeights, start ? AccessMode::kWrite : AccessMode::kUpdate);
  }
}

void FindPeak(size_t actions, MemoryPlan& plan) {
  std::vector<Bytes> change(actions + 1);
  for (const BufferInstance& buffer : plan.buffers) {
    change[static_cast<size_t>(buffer.first)] += buffer.bytes;
    change[static_cast<size_t>(buffer.last) + 1] -= buffer.bytes;
  }
  Bytes live;
  for (size_t i = 0; i < actions; ++i) {
    live += change[i];
    if (live <= plan.live_peak) continue;
    plan.live_peak = live;
    plan.peak_action = static_cast<int32_t>(i);
  }
}

constexpr int32_t kNone = -1;

// For each key, the index of its live instance, or kNone if no instance lives.
class CurrentInstances {
 public:
  explicit CurrentInstances(const StageContext& context) : microbatches_(context.microbatches) {
    int32_t rows = 0;
    const auto add = [&](int32_t layer) {
      const auto at = static_cast<size_t>(layer - kNoLayer);
      if (row_of_layer_.size() <= at) row_of_layer_.resize(at + 1, kNone);
      if (row_of_layer_[at] == kNone) row_of_layer_[at] = rows++;
    };
    for (const int32_t layer : {kNoLayer, kHeadLayer, kEmbeddingLayer}) add(layer);
    for (const StageSlice& slice : context.slices) {
      // The output of a slice has the key of the layer after the slice.
      for (int32_t layer = slice.first_layer; layer <= slice.end_layer; ++layer) add(layer);
    }
    instances_.resize(static_cast<size_t>(rows) * RowSize(), kNone);
  }

  int32_t& operator[](const BufferKey& key) {
    const auto layer = static_cast<size_t>(key.layer - kNoLayer);
    const bool known = layer < row_of_layer_.size() && row_of_layer_[layer] != kNone && key.microbatch >= kNoMicrobatch &&
                       key.microbatch < microbatches_;
    if (!known) return others_.try_emplace(key, kNone).first->second;
    return instances_[static_cast<size_t>(row_of_layer_[layer]) * RowSize() +
                      static_cast<size_t>(key.microbatch - kNoMicrobatch) * kTensorCount + static_cast<size_t>(key.tensor)];
  }

 private:
  size_t RowSize() const { return static_cast<size_t>(microbatches_ - kNoMicrobatch) * kTensorCount; }

  const int32_t microbatches_;
  std::vector<int32_t> row_of_layer_;               // the index is layer - kNoLayer; kNone: the layer is not on this rank
  std::vector<int32_t> instances_;                  // the indices are row, microbatch - kNoMicrobatch, tensor
  absl::flat_hash_map<BufferKey, int32_t> others_;  // for keys whose layer or microbatch is not on the rank
};

}  // namespace

std::string BufferKeyText(const BufferKey& key) {
  std::string text = absl::StrCat(EnumName(key.tensor), "[");
  if (key.layer == kHeadLayer) {
    text += "h";
  } else if (key.layer == kEmbeddingLayer) {
    text += "e";
  } else if (key.layer != kNoLayer) {
    absl::StrAppend(&text, key.layer);
  }
  if (key.layer != kNoLayer && key.microbatch != kNoMicrobatch) text += ",";
  if (key.microbatch != kNoMicrobatch) absl::StrAppend(&text, key.microbatch);
  return text + "]";
}

std::vector<Access> AccessesOf(const Action& action, const StageContext& context) {
  const StageSlice* slice = context.FindSlice(action.stage);
  LYNX_CHECK(slice != nullptr);
  AccessList list(action, context, *slice);
  const ActionInfo& info = InfoOf(action.kind);
  switch (info.group) {
    case Group::kNone:
      if (!info.has_segment) break;  // the optimizer's action
      AddOps(action, LayerGraph::Of(list.shape()), list);
      AddSharedStates(action, context, list);
      break;
    case Group::kExpert:
    case Group::kTensor: AddCollective(action, LayerGraph::Of(list.shape()), list); break;
    case Group::kNextStage:
    case Group::kPreviousStage: AddBoundary(info, *slice, list); break;
    case Group::kExpertData: break;  // the states of experts are never in the arena
    case Group::kData: AddReplicaStates(action, context, list); break;
    case Group::kHost: AddCopy(action, list); break;
    case Group::kWorld: break;
  }
  return std::move(list).Take();
}

absl::StatusOr<MemoryPlan> FoldLiveness(const Program& program, const StageContext& context) {
  MemoryPlan plan;
  AccessTable table(context);
  CurrentInstances current(context);
  // There are usually about as many instances as actions, so this memory is usually enough.
  plan.buffers.reserve(program.size() + program.size() / 2);
  for (size_t i = 0; i < program.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    const size_t opened = plan.buffers.size();
    for (const Access& access : table.Of(program[i])) {
      int32_t& instance = current[access.key];
      const bool begins = access.mode == AccessMode::kAccumulate && instance == kNone;
      if (access.mode == AccessMode::kWrite || begins) {
        plan.buffers.push_back({access.key, index, index, Padded(access.bytes), Bytes(0)});
        continue;
      }
      if (instance == kNone) {
        return absl::FailedPreconditionError(absl::StrCat("action ", i, " (", ActionText(program[i]), ") reads ",
                                                          BufferKeyText(access.key), ", which no action before it writes"));
      }
      plan.buffers[static_cast<size_t>(instance)].last = index;
      if (access.mode == AccessMode::kRelease) instance = kNone;
    }
    std::sort(plan.buffers.begin() + static_cast<ptrdiff_t>(opened), plan.buffers.end(),
              [](const BufferInstance& a, const BufferInstance& b) { return a.key < b.key; });
    for (size_t b = opened; b < plan.buffers.size(); ++b) current[plan.buffers[b].key] = static_cast<int32_t>(b);
  }
  FindPeak(program.size(), plan);
  return plan;
}

absl::StatusOr<MemoryPlan> PlanMemory(const Program& program, const StageContext& context, Bytes enough) {
  absl::StatusOr<MemoryPlan> plan = FoldLiveness(program, context);
  if (!plan.ok()) return plan;
  LayOut(program, enough, *plan);
  const bool copies = std::any_of(program.begin(), program.end(),
                                  [](const Action& action) { return InfoOf(action.kind).group == Group::kHost; });
  if (copies) plan->host_peak = LayOutHost(program, context).pool;
  return plan;
}

std::vector<std::vector<int32_t>> ResolveBuffers(const Program& program, const StageContext& context,
                                                 const MemoryPlan& memory) {
  std::vector<std::vector<int32_t>> resolved(program.size());
  AccessTable table(context);
  CurrentInstances current(context);
  size_t next = 0;
  for (size_t i = 0; i < program.size(); ++i) {
    for (; next < memory.buffers.size() && memory.buffers[next].first == static_cast<int32_t>(i); ++next) {
      current[memory.buffers[next].key] = static_cast<int32_t>(next);
    }
    for (const Access& access : table.Of(program[i])) {
      const int32_t instance = current[access.key];
      LYNX_CHECK(instance != kNone);
      resolved[i].push_back(instance);
    }
  }
  LYNX_CHECK(next == memory.buffers.size());
  return resolved;
}

StateBytes StatesOf(const StageContext& context) {
  const LayerShape shape = context.shape();
  const LayerShape dense_shape = DenseShape(shape);
  const auto layer = [&](LayerType type) {
    return Shareable(context, LayerParameters(type, shape) - (type == LayerType::kTransformer ? ExpertParameters(shape) : 0));
  };
  const int64_t dense_layer = Shareable(context, LayerParameters(LayerType::kTransformer, dense_shape));
  int64_t parameters = 0, experts = 0;
  int64_t biases = 0;  // of the routers; each rank has all of them, and their states, as for parameters
  Bytes copies;        // bytes of the 8-bit copies of weights
  for (const StageSlice& slice : context.slices) {
    const int64_t dense = slice.DenseLayers(context.model.moe), sparse = slice.layers() - dense;
    parameters += layer(LayerType::kTransformer) * sparse + dense_layer * dense;
    experts += ShareableExperts(context, ExpertParameters(shape)) * sparse;
    if (context.model.moe.router_bias) biases += sparse * context.model.moe.experts;
    copies += NarrowWeights(shape) * sparse + NarrowWeights(dense_shape) * dense;
    if (slice.has_embedding) parameters += layer(LayerType::kEmbedding);
    if (!slice.has_head) continue;
    const int64_t tied = HoldsTiedEmbedding(context) ? OpParameters(Op::kLogits, shape) : 0;
    parameters += Shareable(context, LayerParameters(LayerType::kHead, shape) - tied);
  }
  const ParallelLayout& layout = context.layout;
  const auto share = [&](ZeroStage from) { return layout.zero >= from ? parameters / OptimizerShares(context) : parameters; };
  const int64_t master = context.model.dtype == DataType::kBfloat16 ? kStateBytes : 0;
  if (layout.zero >= ZeroStage::kWeights) copies = copies / OptimizerShares(context);
  const int64_t optimizer = share(ZeroStage::kOptimizer) + experts / ExpertShares(context) + biases;
  return {.weights = Bytes((share(ZeroStage::kWeights) + experts + biases) * shape.element_bytes()) + copies,
          .gradients = Bytes((share(ZeroStage::kGradients) + experts) * shape.gradient_bytes() + biases * kStateBytes),
          .optimizer = Bytes(optimizer * (2 * kStateBytes + master))};
}

}  // namespace lynx
