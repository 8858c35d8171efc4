#include "planner/recompute/recompute_policy.h"

#include <gtest/gtest.h>

#include <set>

namespace lynx {
namespace {

using enum Placement;

TEST(RecomputePolicyTest, NamedPoliciesPlaceEachTensor) {
  // The placements are in this order: ln1 qkv probs context x1 ln2 fc1 gelu.
  const LayerPolicy none = {};
  const LayerPolicy full = {kCritical, kCritical, kCritical, kCritical, kCritical, kCritical, kCritical, kCritical};
  const LayerPolicy keep = {kCritical, kCritical, kCritical, kCritical, kStore, kCritical, kCritical, kCritical};
  const LayerPolicy selective = {kStore, kStore, kCritical, kStore, kStore, kStore, kStore, kStore};
  EXPECT_EQ(NamedPolicy(LayerGraph::Of({}), RecomputeMode::kNone, 3).layers, std::vector<LayerPolicy>(3, none));
  EXPECT_EQ(NamedPolicy(LayerGraph::Of({}), RecomputeMode::kFull, 2).layers, std::vector<LayerPolicy>(2, full));
  EXPECT_EQ(NamedPolicy(LayerGraph::Of({}), RecomputeMode::kFullKeepCollectives, 1).layers, std::vector<LayerPolicy>(1, keep));
  EXPECT_EQ(NamedPolicy(LayerGraph::Of({}), RecomputeMode::kSelective, 1).layers, std::vector<LayerPolicy>(1, selective));
}

TEST(RecomputePolicyTest, LayerText) {
  EXPECT_EQ(LayerPolicyText(LayerGraph::Of({}), NamedPolicy(LayerGraph::Of({}), RecomputeMode::kNone, 1).layers[0]),
            "store all");
  EXPECT_EQ(LayerPolicyText(LayerGraph::Of({}), NamedPolicy(LayerGraph::Of({}), RecomputeMode::kFull, 1).layers[0]), "full");
  EXPECT_EQ(
      LayerPolicyText(LayerGraph::Of({}), NamedPolicy(LayerGraph::Of({}), RecomputeMode::kFullKeepCollectives, 1).layers[0]),
      "x1 stored; critical: ln1 qkv probs context ln2 fc1 gelu");
  EXPECT_EQ(LayerPolicyText(LayerGraph::Of({}), {kForward1, kForward1, kStall, kStall, kStore, kAbove1, kStore, kCritical}),
            "x1 fc1 stored; f1: ln1 qkv; stall: probs context; b1: ln2; critical: gelu");
  EXPECT_EQ(LayerPolicyText(LayerGraph::Of({}), {kForward2, kForward2, kOwn1, kOwn1, kStall, kAbove2, kAbove2, kAbove2}),
            "f2: ln1 qkv; stall: x1; b2: ln2 fc1 gelu; o1: probs context");
}

TEST(RecomputePolicyTest, StageTextGroupsEqualLayers) {
  StagePolicy policy = NamedPolicy(LayerGraph::Of({}), RecomputeMode::kFull, 5);
  EXPECT_EQ(StagePolicyText(LayerGraph::Of({}), policy, 3), "layers 3-7: full");
  policy.layers[4] = NamedPolicy(LayerGraph::Of({}), RecomputeMode::kNone, 1).layers[0];
  EXPECT_EQ(StagePolicyText(LayerGraph::Of({}), policy, 0), "layers 0-3: full; layer 4: store all");
  policy.layers[0] = policy.layers[4];
  EXPECT_EQ(StagePolicyText(LayerGraph::Of({}), policy, 0), "layer 0: store all; layers 1-3: full; layer 4: store all");
  EXPECT_EQ(StagePolicyText(LayerGraph::Of({}), {}, 0), "");
}

TEST(RecomputePolicyTest, PlacementNamesAreDistinct) {
  std::set<std::string_view> names;
  for (int i = 0; i < kPlacementCount; ++i) names.insert(EnumName(static_cast<Placement>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kPlacementCount));
  EXPECT_STREQ(EnumName(kCritical), "critical");
}

}  // namespace
}  // namespace lynx
