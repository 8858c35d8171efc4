// Runs programs on symbols: the result of an op is a number that identifies the op and what the op read. Two programs compute
// the same if their backward and weight passes read the same numbers. What the programs store, recompute, gather again or hand
// on, and in which order, does not matter. This code shares only the tables of ops and collectives with the code under test.
#ifndef LYNX_TESTS_PLANNER_PROGRAM_PROGRAM_VALUES_H_
#define LYNX_TESTS_PLANNER_PROGRAM_PROGRAM_VALUES_H_

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "planner/problem/layer_kinds.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/program/memory_model.h"

namespace lynx {

using Value = uint64_t;

inline Value Mixed(Value a, Value b) {
  Value x = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c15u + (a << 6) + (a >> 2));
  x ^= x >> 31;
  return x * 0xbf58476d1ce4e5b9u;
}

// Holds what a whole step computes. `reads`: what each op read, by pass, op, layer and microbatch. `x`: the values of x, by the
// layer that reads x and by microbatch. `gradient`: the gradient after a layer's backward pass, by layer and microbatch.
struct StepValues {
  std::map<std::tuple<Pass, Op, int32_t, int32_t>, Value> reads;
  std::map<std::pair<int32_t, int32_t>, Value> x, gradient;
};

class ProgramValues {
 public:
  // `whole`: the step from which values of other ranks are taken. Null: no values come from other ranks.
  ProgramValues(const Program& program, const StageContext& context, const StepValues* whole)
      : program_(program), context_(context), kinds_(context), whole_(whole) {}

  StepValues Run() && {
    for (const Action& action : program_) {
      action_ = &action;
      accesses_ = AccessesOf(action, context_);
      Step(action);
      if (testing::Test::HasFailure()) break;
    }
    return std::move(values_);
  }

 private:
  void Step(const Action& action) {
    const ActionInfo& info = InfoOf(action.kind);
    const StageSlice& slice = *context_.FindSlice(action.stage);
    const int32_t k = action.microbatch;
    switch (action.kind) {
      case ActionKind::kForward:
      case ActionKind::kRecompute: return Forward(action);
      case ActionKind::kBackward: return Backward(action);
      case ActionKind::kWeight: return Weight(action);
      case ActionKind::kRecvForwardWait: return Set(Tensor::kX, whole_->x.at({slice.first_layer, k}));
      case ActionKind::kRecvBackwardWait: return Set(Tensor::kGrad, whole_->gradient.at({slice.end_layer, k}));
      case ActionKind::kSendForwardStart:
      case ActionKind::kSendForwardWait: return Expect(Tensor::kX, whole_->x.at({slice.end_layer, k}));
      case ActionKind::kSendBackwardStart:
      case ActionKind::kSendBackwardWait: return Expect(Tensor::kGrad, whole_->gradient.at({slice.first_layer, k}));
      default: break;
    }
    if (info.of_segment()) return Collect(action);
    // A buffer that is being received has no defined value.
    if (info.phase == Phase::kStart && !accesses_.empty()) memory_[accesses_[0].key] = Fresh();
  }

  void Forward(const Action& action) {
    for (const Op op : kinds_.GraphOf(action.layer).OpsOf(LayerTypeOf(action.layer), action.segment, Pass::kForward)) {
      if (action.kind == ActionKind::kRecompute && !Contains(action.ops, op)) continue;
      const OpInfo& info = kinds_.GraphOf(action.layer).InfoOf(op);
      Value value = Id(Pass::kForward, op);
      for (const Tensor tensor : info.reads) value = Mixed(value, Get(tensor));
      if (info.output == Tensor::kWorkspace) continue;
      const BufferKey key = KeyOf(info.output, info.output == Tensor::kX);
      if (info.in_place) value = Mixed(value, Get(key));
      memory_[key] = value;
      for (const Tensor tensor : info.side_outputs) Set(tensor, Mixed(value, static_cast<Value>(tensor)));
    }
    RecordX(action);
  }

  // x is complete when the last segment of the layer below has run, together with its collective.
  void RecordX(const Action& action) {
    const LayerType type = LayerTypeOf(action.layer);
    if (type == LayerType::kHead || InfoOf(action.kind).operands == Operands::kOps) return;
    const StageSlice& slice = *context_.FindSlice(action.stage);
    const int32_t above = type == LayerType::kEmbedding ? slice.first_layer : action.layer + 1;
    const int32_t layer = above == slice.end_layer && slice.has_head ? kHeadLayer : above;
    const auto found = memory_.find({Tensor::kX, layer, action.microbatch});
    if (found != memory_.end()) values_.x[{above, action.microbatch}] = found->second;
  }

  void Backward(const Action& action) {
    for (const Op op : kinds_.GraphOf(action.layer).OpsOf(LayerTypeOf(action.layer), action.segment, Pass::kBackward)) {
      const OpInfo& info = kinds_.GraphOf(action.layer).InfoOf(op);
      Value value = Id(Pass::kBackward, op);
      for (const Tensor tensor : info.backward_reads) value = Mixed(value, Get(tensor));
      for (const TensorUse& use : info.gradients) {
        if (use.mode != AccessMode::kWrite) value = Mixed(value, Get(use.tensor));
      }
      values_.reads[{Pass::kBackward, op, action.layer, action.microbatch}] = value;
      for (const TensorUse& use : info.gradients) {
        if (use.mode != AccessMode::kRead) Set(use.tensor, Mixed(value, static_cast<Value>(use.tensor)));
      }
    }
    if (action.segment != Segment::kEnd) return;
    const int32_t layer = action.layer == kHeadLayer ? context_.model.layers : action.layer;
    values_.gradient[{layer, action.microbatch}] = Get(Tensor::kGrad);
  }

  void Weight(const Action& action) {
    for (const Op op : kinds_.GraphOf(action.layer).OpsOf(LayerTypeOf(action.layer), action.segment, Pass::kWeight)) {
      const OpInfo& info = kinds_.GraphOf(action.layer).InfoOf(op);
      Value value = Id(Pass::kWeight, op);
      for (const auto* tensors : {&info.weight_reads, &info.weight_gradients}) {
        for (const Tensor tensor : *tensors) value = Mixed(value, Get(tensor));
      }
      values_.reads[{Pass::kWeight, op, action.layer, action.microbatch}] = value;
    }
  }

  // A repeated collective gives the same result as the first one.
  void Collect(const Action& action) {
    const ActionInfo& info = InfoOf(action.kind);
    const CollectiveInfo& collective =
        kinds_.GraphOf(action.layer).CollectiveOf(LayerTypeOf(action.layer), action.segment, info.segment_pass());
    CollectPair(action, collective.from, collective.to);
    if (collective.from_weights != Tensor::kWorkspace) CollectPair(action, collective.from_weights, collective.to_weights);
    if (info.phase == Phase::kWait && collective.to == Tensor::kX) RecordX(action);
  }

  void CollectPair(const Action& action, Tensor from, Tensor tensor) {
    const ActionInfo& info = InfoOf(action.kind);
    const BufferKey to = KeyOf(tensor, tensor == Tensor::kX);
    if (info.phase == Phase::kStart) {
      collected_[to] = Get(KeyOf(from, from == Tensor::kX));
      memory_[to] = Fresh();
      return;
    }
    memory_[to] = Mixed(Mixed(collected_.at(to), static_cast<Value>(action.segment)), static_cast<Value>(info.segment_pass()));
  }

  Value Id(Pass pass, Op op) const {
    const Value place = static_cast<Value>(action_->layer + 8) * 4096 + static_cast<Value>(action_->microbatch);
    return Mixed(place, static_cast<Value>(op) * 3 + static_cast<Value>(pass));
  }

  Value Fresh() { return Mixed(++fresh_, 0xdead); }

  // Returns the buffer of the tensor that the action uses. For x, `written_x` says whether this is the x that the action reads
  // or the x that it writes.
  BufferKey KeyOf(Tensor tensor, bool written_x = false) const {
    for (const Access& access : accesses_) {
      if (access.key.tensor != tensor) continue;
      if (tensor == Tensor::kX && InfoOf(action_->kind).has_layer && (access.key.layer != action_->layer) != written_x) {
        continue;
      }
      return access.key;
    }
    ADD_FAILURE() << ActionText(*action_) << " does not touch " << EnumName(tensor);
    return {};
  }

  Value Get(Tensor tensor) { return Get(KeyOf(tensor)); }
  Value Get(const BufferKey& key) {
    const auto found = memory_.find(key);
    if (found != memory_.end()) return found->second;
    ADD_FAILURE() << ActionText(*action_) << " reads " << BufferKeyText(key) << " before it is written";
    return 0;
  }
  void Set(Tensor tensor, Value value) { memory_[KeyOf(tensor)] = value; }
  void Expect(Tensor tensor, Value value) { EXPECT_EQ(Get(tensor), value) << ActionText(*action_) << " sends another value"; }

  const Program& program_;
  const StageContext& context_;
  const LayerKinds kinds_;
  const StepValues* whole_;
  const Action* action_ = nullptr;
  std::vector<Access> accesses_;
  std::map<BufferKey, Value> memory_;
  std::map<BufferKey, Value> collected_;  // the values that running collectives read; key: result
  Value fresh_ = 0;
  StepValues values_;
};

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_PROGRAM_PROGRAM_VALUES_H_
