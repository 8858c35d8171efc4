// Tests the parameters of models with experts: which rank holds which parameter, its place in the arrays, and its initial
// values.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/problem/layer_graph.h"
#include "planner/program/memory_model.h"
#include "planner/program/state_sharing.h"
#include "tests/worker/model/small_stages.h"
#include "worker/model/model_state.h"

namespace lynx::worker {
namespace {

constexpr uint64_t kSeed = 42;

// Layouts in which an expert group is a part of a tensor-parallel group, the whole group, and several groups.
std::vector<ParallelLayout> Layouts(ZeroStage zero) {
  std::vector<ParallelLayout> layouts;
  for (const auto& [tp, dp, ep] : std::vector<std::tuple<int32_t, int32_t, int32_t>>{
           {1, 1, 1}, {2, 1, 1}, {2, 1, 2}, {4, 1, 2}, {1, 2, 2}, {1, 2, 1}, {2, 2, 2}, {2, 3, 6}, {2, 3, 3}, {1, 6, 3}}) {
    layouts.push_back(LayoutOf(tp, dp, ep, zero));
  }
  return layouts;
}

TEST(ExpertSlots, AreTheLastOnesOfALayer) {
  ModelSpec model = SmallMoe();
  model.layers = 1;
  std::vector<std::string> names;
  for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(model, LayoutOf(1, 1, 1)), 0)) names.push_back(slot.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed.tok", "layers.0.ln1.weight", "layers.0.qkv.weight", "layers.0.proj.weight",
                                             "layers.0.ln2.weight", "layers.0.router.weight", "layers.0.experts.fc1.weight",
                                             "layers.0.experts.fc2.weight", "head.ln.weight", "head.out.weight"}));
}

TEST(ExpertSlots, AreMatricesThatDecay) {
  for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(SmallMoe(), LayoutOf(2, 1, 2)), 1)) {
    if (slot.parameter == Parameter::kRouterWeight) {
      EXPECT_TRUE(slot.decays && slot.replicated && !slot.expert && !slot.vector);
      EXPECT_EQ(slot.global_rows, 6);
      EXPECT_EQ(slot.count, 6 * 16);
    }
    EXPECT_EQ(slot.expert, slot.parameter == Parameter::kExpertsFc1Weight || slot.parameter == Parameter::kExpertsFc2Weight);
    if (slot.expert) EXPECT_TRUE(slot.decays && !slot.replicated && !slot.vector);
  }
}

// Tensor-parallel rank 1 of replica 2 has number 5 in its stage, so its place in an expert group of 3 is 2.
TEST(ExpertSlots, HaveTheRowsOfTheRanksExperts) {
  const std::vector<ParameterSlot> slots = ParameterSlotsOf(ContextOf(SmallMoe(), LayoutOf(2, 3, 3)), 1, 2);
  const ParameterSlot &fc1 = slots[6], &fc2 = slots[7];
  ASSERT_EQ(fc1.name, "layers.0.experts.fc1.weight");
  EXPECT_EQ(fc1.global_rows, 6 * 20);
  EXPECT_EQ(fc1.global_columns, 16);
  ASSERT_EQ(fc1.pieces.size(), 1u);
  EXPECT_EQ(fc1.pieces[0].row, 4 * 20);
  EXPECT_EQ(fc1.pieces[0].rows, 2 * 20);
  ASSERT_EQ(fc2.name, "layers.0.experts.fc2.weight");
  EXPECT_EQ(fc2.global_rows, 6 * 16);
  EXPECT_EQ(fc2.global_columns, 10);
  EXPECT_EQ(fc2.pieces[0].row, 4 * 16);
  EXPECT_EQ(fc2.pieces[0].rows, 2 * 16);
  EXPECT_EQ(fc2.count, 2 * 16 * 10);
}

TEST(ExpertSlots, CountsAgreeWithTheLayerGraph) {
  for (const ParallelLayout& layout : Layouts(ZeroStage::kNone)) {
    const StageContext context = ContextOf(SmallMoe(), layout);
    int64_t count = 0, experts = 0;
    for (const ParameterSlot& slot : ParameterSlotsOf(context, 0)) {
      if (slot.layer != 0) continue;
      count += slot.count;
      experts += slot.expert ? slot.count : 0;
    }
    EXPECT_EQ(count, LayerParameters(LayerType::kTransformer, context.shape())) << LayoutText(layout);
    EXPECT_EQ(experts, ExpertParameters(context.shape())) << LayoutText(layout);
  }
}

// Returns the values of all parameters of the whole model.
std::map<std::string, std::vector<float>> WholeModel(const ModelSpec& model) {
  std::map<std::string, std::vector<float>> whole;
  for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(model, LayoutOf(1, 1, 1)), 0)) {
    std::vector<float>& values = whole[slot.name];
    values.resize(static_cast<size_t>(slot.count));
    FillInitialWeights(slot, model, kSeed, values);
  }
  return whole;
}

using Element = std::pair<std::string, int64_t>;

// Adds 1 for each element that the rank updates, and expects its initial value.
void Hold(ModelState& state, const std::map<std::string, std::vector<float>>& whole, std::map<Element, int>& held) {
  for (const ParameterSlot& slot : state.updated()) {
    const float* value = state.UpdatedWeight(slot);
    for (const ParameterPiece& piece : slot.pieces) {
      for (int64_t row = piece.row; row < piece.row + piece.rows; ++row) {
        for (int64_t column = piece.column; column < piece.column + piece.columns; ++column) {
          const int64_t at = row * slot.global_columns + column;
          ASSERT_EQ(*value++, whole.at(slot.name)[static_cast<size_t>(at)]) << slot.name;
          ++held[{slot.name, at}];
        }
      }
    }
  }
}

// Without ZeRO, each rank updates all that it has; with ZeRO, one rank updates an element of an expert. In every layout, the
// values are those of the whole model, and the memory is what the planner has planned.
void ExpectAllRanksMakeUp(ModelSpec model) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  const std::map<std::string, std::vector<float>> whole = WholeModel(model);
  for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer}) {
    for (const ParallelLayout& layout : Layouts(zero)) {
      for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
        model.dtype = dtype;
        const StageContext context = ContextOf(model, layout);
        std::map<Element, int> held;
        for (int32_t number = 0; number < RanksOfStage(layout); ++number) {
          ModelState state = ModelState::Create(context, number % layout.tp, number / layout.tp, kSeed, *backend).value();
          EXPECT_EQ(state.bytes(), StatesOf(context).total()) << LayoutText(layout);
          Hold(state, whole, held);
        }
        for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(model, LayoutOf(1, 1, 1)), 0)) {
          const bool zero_experts = zero == ZeroStage::kOptimizer;
          const int32_t dense = (slot.replicated ? layout.tp : 1) * (zero_experts ? 1 : layout.dp);
          const int32_t wanted = slot.by_load  ? RanksOfStage(layout)
                                 : slot.expert ? (zero_experts ? 1 : ExpertReplicas(layout))
                                               : dense;
          for (int64_t i = 0; i < slot.count; ++i) {
            ASSERT_EQ((held[{slot.name, i}]), wanted) << slot.name << " " << LayoutText(layout);
          }
        }
      }
    }
  }
}

TEST(ExpertStates, OfAllRanksMakeUpTheWholeModel) { ExpectAllRanksMakeUp(SmallMoe()); }

TEST(ExpertStates, WithADenseFirstLayerMakeUpTheWholeModel) {
  ModelSpec model = SmallMoe();
  model.moe.dense_layers = 1;
  ExpectAllRanksMakeUp(model);
  std::vector<std::string> names;
  for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(model, LayoutOf(2, 1, 2)), 1)) {
    if (slot.layer != 0) continue;
    EXPECT_FALSE(slot.expert) << slot.name;
    names.push_back(slot.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.ln1.weight", "layers.0.qkv.weight", "layers.0.proj.weight",
                                             "layers.0.ln2.weight", "layers.0.fc1.weight", "layers.0.fc2.weight"}));
}

TEST(ExpertStates, WithSharedExpertsMakeUpTheWholeModel) {
  ModelSpec model = SmallMoe();
  model.moe.shared_ffn = 12;
  ExpectAllRanksMakeUp(model);
  model.moe.shared_gate = true;
  ExpectAllRanksMakeUp(model);
  for (const ParameterSlot& slot : ParameterSlotsOf(ContextOf(model, LayoutOf(2, 1, 2)), 1)) {
    if (!slot.name.starts_with("layers.1.shared.")) continue;
    EXPECT_TRUE(slot.replicated && !slot.expert && !slot.by_load) << slot.name;
    EXPECT_EQ(slot.count, slot.global_rows * slot.global_columns) << slot.name;
    EXPECT_EQ(slot.vector, slot.parameter == Parameter::kSharedGateWeight);
  }
}

// Every rank holds the whole biases of routers, whatever ZeRO divides. They are the last elements of all arrays.
TEST(ExpertStates, WithRouterBiasesMakeUpTheWholeModel) {
  ModelSpec model = SmallMoe();
  model.moe.dense_layers = 1;
  model.layers = 4;
  model.moe.scores = RouterScores::kSigmoid;
  model.moe.router_bias = true;
  ExpectAllRanksMakeUp(model);
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
    model.dtype = dtype;
    ModelState state =
        ModelState::Create(ContextOf(model, LayoutOf(2, 3, 3, ZeroStage::kOptimizer)), 1, 2, kSeed, *backend).value();
    const ModelState::Range loads = state.LoadsRange();
    EXPECT_EQ(loads.count, 3 * 6);
    EXPECT_EQ(loads.begin + loads.count, std::ssize(state.gradients()));
    int32_t biases = 0;
    for (const ParameterSlot& slot : state.updated()) {
      if (!slot.by_load) continue;
      ++biases;
      EXPECT_EQ(slot.count, 6) << slot.name;
      EXPECT_EQ(state.RouterBias(slot.layer), state.UpdatedWeight(slot)) << slot.name;
      EXPECT_FALSE(slot.decays);
    }
    EXPECT_EQ(biases, 3);
    for (const AdamWTensor& tensor : state.Updates()) {
      EXPECT_LE(tensor.gradient + tensor.count, state.gradients().data() + loads.begin) << "no optimizer updates the biases";
    }
  }
}

// The ranges of a layer and of its experts must be apart, cover all of its slots, and have equal shares.
TEST(ExpertStates, HaveRangesOfTheirOwn) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  for (const ParallelLayout& layout : Layouts(ZeroStage::kOptimizer)) {
    const StageContext context = ContextOf(SmallMoe(), layout);
    ModelState state = ModelState::Create(context, 0, 0, kSeed, *backend).value();
    for (const int32_t layer : {0, 1}) {
      const ModelState::Range dense = state.LayerRange(layer), experts = state.ExpertRange(layer);
      EXPECT_EQ(dense.begin + dense.count, experts.begin) << LayoutText(layout);
      EXPECT_EQ(dense.count % OptimizerShares(context), 0);
      EXPECT_EQ(experts.count % ExpertShares(context), 0);
      EXPECT_LE(experts.begin + experts.count, static_cast<int64_t>(state.gradients().size()));
      for (const ParameterSlot& slot : state.slots()) {
        if (slot.layer != layer) continue;
        const ModelState::Range& range = slot.expert ? experts : dense;
        EXPECT_GE(slot.offset, range.begin) << slot.name;
        EXPECT_LE(slot.offset + slot.count, range.begin + range.count) << slot.name;
        if (ExpertShares(context) > 1 && OptimizerShares(context) > 1 && slot.offset == range.begin) {
          EXPECT_EQ(slot.offset % kShareAlignment, 0) << slot.name;
        }
      }
    }
    // Shares follow each other.
    int64_t end = 0;
    for (const ParameterSlot& slot : state.updated()) {
      EXPECT_GE(slot.share_offset, end) << slot.name << " " << LayoutText(layout);
      end = slot.share_offset + slot.count;
    }
    EXPECT_LE(end, static_cast<int64_t>(state.first_moments().size()));
  }
}

TEST(ExpertStates, BeginWithTheStatedDeviations) {
  ModelSpec model = SmallMoe();
  model.hidden = 256;
  model.moe.ffn = 128;
  const std::map<std::string, std::vector<float>> whole = WholeModel(model);
  const auto deviation = [&](const std::string& name) {
    double squares = 0;
    for (const float value : whole.at(name)) squares += double{value} * value;
    return std::sqrt(squares / static_cast<double>(whole.at(name).size()));
  };
  EXPECT_NEAR(deviation("layers.0.router.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("layers.0.experts.fc1.weight"), 0.02, 0.0002);
  EXPECT_NEAR(deviation("layers.0.experts.fc2.weight"), 0.02 / std::sqrt(4.0), 0.0001);
}

}  // namespace
}  // namespace lynx::worker
