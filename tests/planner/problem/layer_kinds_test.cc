#include "planner/problem/layer_kinds.h"

#include <gtest/gtest.h>

#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {
namespace {

StageContext Context(int32_t dense_layers) {
  StageContext context;
  context.model = {.layers = 6, .hidden = 64, .heads = 4, .ffn = 256, .seq = 32, .vocab = 128, .dropout = 0};
  context.model.family = ModelFamily::kLlama;
  context.model.moe = {.experts = 8, .top_k = 2, .ffn = 48, .capacity = 1.5, .skew = 2, .dense_layers = dense_layers};
  context.layout = {.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true};
  return context;
}

TEST(LayerKinds, OnlyTheFirstLayersLackExperts) {
  const LayerKinds kinds(Context(2));
  for (const int32_t layer : {kEmbeddingLayer, kHeadLayer, 2, 5}) {
    EXPECT_FALSE(kinds.IsDense(layer)) << layer;
    EXPECT_EQ(kinds.ShapeOf(layer), kinds.shape());
    EXPECT_EQ(&kinds.GraphOf(layer), &kinds.graph());
  }
  for (const int32_t layer : {0, 1}) {
    EXPECT_TRUE(kinds.IsDense(layer));
    EXPECT_FALSE(kinds.ShapeOf(layer).moe());
    EXPECT_TRUE(kinds.GraphOf(layer).Has(Op::kFc1));
    EXPECT_FALSE(kinds.GraphOf(layer).Has(Op::kRouter));
  }
  EXPECT_FALSE(LayerKinds(Context(0)).IsDense(0));
}

// A layer without experts is the layer of the same model without model.moe.
TEST(LayerKinds, ADenseShapeIsThatOfTheModelWithoutExperts) {
  const StageContext context = Context(2);
  ModelSpec plain = context.model;
  plain.moe = MoeSpec();
  EXPECT_EQ(LayerKinds(context).ShapeOf(0), ShapeOf(plain, context.layout, context.micro_batch));
  EXPECT_EQ(LayerKinds(context).ShapeOf(2), ShapeOf(context.model, context.layout, context.micro_batch));
}

TEST(LayerKinds, SlicesCountTheirLayersWithoutExperts) {
  const MoeSpec moe{.experts = 8, .top_k = 2, .dense_layers = 3};
  const auto dense = [&](int32_t first, int32_t end) {
    return StageSlice{.first_layer = first, .end_layer = end}.DenseLayers(moe);
  };
  EXPECT_EQ(dense(0, 2), 2);
  EXPECT_EQ(dense(2, 5), 1);
  EXPECT_EQ(dense(3, 5), 0);
  EXPECT_EQ(dense(0, 8), 3);
}

TEST(LayerKinds, APolicyKeepsThePlacementsOfTensorsThatBothKindsHave) {
  const LayerKinds kinds(Context(1));
  const LayerGraph &sparse = kinds.graph(), &dense = kinds.GraphOf(0);
  LayerPolicy policy{};
  const auto place = [&](Tensor tensor, Placement placement) {
    policy[static_cast<size_t>(sparse.RecomputableIndex(tensor))] = placement;
  };
  place(Tensor::kLn1, Placement::kAbove1);
  place(Tensor::kExpertRows, Placement::kCritical);
  place(Tensor::kFc1, Placement::kOffload);
  place(Tensor::kSwiglu, Placement::kStall);
  const LayerPolicy translated = PolicyIn(dense, sparse, policy);
  for (size_t i = 0; i < dense.recomputable().size(); ++i) {
    const Tensor tensor = dense.recomputable()[i];
    EXPECT_EQ(translated[i], policy[static_cast<size_t>(sparse.RecomputableIndex(tensor))]) << EnumName(tensor);
  }
  EXPECT_EQ(PolicyIn(sparse, sparse, policy), policy);
}

}  // namespace
}  // namespace lynx
