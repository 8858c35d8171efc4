// Tests the shapes, sizes and groups of ranks of models with experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "planner/problem/expert_rounds.h"
#include "planner/problem/layer_graph.h"
#include "planner/problem/layout.h"
#include "planner/problem/stage_context.h"

namespace lynx {
namespace {

// b 2, s 16, h 8, w 12, E 4, top_k 2
ModelSpec Model() {
  ModelSpec model{.layers = 2, .hidden = 8, .heads = 2, .ffn = 12, .seq = 16, .vocab = 64, .dropout = 0};
  model.family = ModelFamily::kLlama;
  model.dtype = DataType::kBfloat16;
  model.moe = {.experts = 4, .top_k = 2};
  return model;
}

LayerShape Shape(const ModelSpec& model, const ParallelLayout& layout) { return ShapeOf(model, layout, 2); }

LayerShape DroppingShape(LayerShape shape) {
  shape.dropless = false;
  return shape;
}

TEST(Experts, RowsWithoutACapacityAreTheEvenShareTimesTheSkew) {
  ModelSpec model = Model();
  const LayerShape one = Shape(model, {.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true});
  EXPECT_EQ(one.shard_tokens(), 16);
  EXPECT_EQ(one.sent_rows(), 32);
  EXPECT_EQ(one.expert_rows(), 32);
  EXPECT_EQ(one.filled_rows(), 32);
  EXPECT_EQ(one.own_experts(), 1);
  model.moe.skew = 1.5;
  const LayerShape skewed = Shape(model, {.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true});
  EXPECT_EQ(skewed.sent_rows(), 32);
  EXPECT_EQ(skewed.expert_rows(), 48);
  EXPECT_EQ(skewed.filled_rows(), 48);
  // A token goes to an expert at most once. So two ranks with two experts each get each of their 64 tokens at most twice.
  model.moe.skew = 4;
  EXPECT_EQ(Shape(model, {.dp = 2, .ep = 2}).expert_rows(), 2 * 64);
  model.moe.top_k = 4;
  EXPECT_EQ(Shape(model, {.dp = 4, .ep = 4}).expert_rows(), 4 * 32);
  model = Model();
  // A rank that has all experts gets only its own rows.
  EXPECT_EQ(Shape(model, {}).expert_rows(), 64);
}

TEST(Experts, ACapacityGivesEachExpertOfEachRankARoom) {
  ModelSpec model = Model();
  model.moe.capacity = 1.25;
  const LayerShape shape = Shape(model, {.dp = 2, .ep = 2});
  EXPECT_EQ(shape.expert_room(), 20);  // 1.25 * 2 * 32 / 4
  EXPECT_EQ(shape.sent_rows(), 80);
  EXPECT_EQ(shape.expert_rows(), 80);  // 2 experts on this rank, with rows of 2 ranks
  EXPECT_EQ(shape.filled_rows(), 64);  // all rows, because each fits into its room
  model.moe.capacity = 0.5;
  EXPECT_EQ(Shape(model, {.dp = 2, .ep = 2}).filled_rows(), 32);  // the rows beyond the rooms are dropped
  model.moe.capacity = 4;
  EXPECT_EQ(Shape(model, {.dp = 2, .ep = 2}).expert_room(), 32);  // a token goes to an expert at most once
}

// Rounds have a quarter of the room, but never space for more rows than can be without room.
TEST(Experts, RowsWithoutRoomGoThroughRounds) {
  ModelSpec model = Model();
  model.moe.capacity = 1.25;
  EXPECT_EQ(Shape(model, {}).round_room(), 0) << "rows are dropped";
  model.moe.dropless = true;
  const LayerShape shape = Shape(model, {.dp = 2, .ep = 2});
  EXPECT_EQ(shape.expert_room(), 20);
  EXPECT_EQ(shape.expert_rows(), 80) << "the rooms stay as they are";
  EXPECT_EQ(shape.round_room(), 5);
  model.moe.capacity = 1.9;
  EXPECT_EQ(Shape(model, {}).expert_room(), 31);
  EXPECT_EQ(Shape(model, {}).round_room(), 1);
  model.moe.capacity = 2;
  EXPECT_EQ(Shape(model, {}).round_room(), 0) << "every row has room";
  model.moe.capacity = 0.001;
  EXPECT_EQ(Shape(model, {}).round_room(), 1);
  // The products of all rows are counted, including the rows that go through rounds.
  model.moe.capacity = 0.5;
  EXPECT_EQ(Shape(model, {.dp = 2, .ep = 2}).filled_rows(), 64);

  EXPECT_EQ(DenseShape(Shape(model, {})).round_room(), 0);
  const LayerGraph &with = LayerGraph::Of(shape), &without = LayerGraph::Of(DroppingShape(shape));
  EXPECT_NE(&with, &without);
  const auto reads = [](const std::vector<Tensor>& tensors, Tensor tensor) {
    return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
  };
  EXPECT_TRUE(reads(with.InfoOf(Op::kUnpermute).reads, Tensor::kLn2));
  EXPECT_TRUE(reads(with.InfoOf(Op::kPermute).backward_reads, Tensor::kLn2));
  EXPECT_FALSE(reads(without.InfoOf(Op::kUnpermute).reads, Tensor::kLn2));
  EXPECT_EQ(with.recomputable(), without.recomputable());
}

// The tensors of a round are placed one after another. Their size does not depend on the load.
TEST(Experts, TheScratchOfARoundIsPlanned) {
  ModelSpec model = Model();
  model.moe.capacity = 1.25;
  model.moe.dropless = true;
  const auto padded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  for (const int32_t ep : {1, 2}) {
    const LayerShape shape = Shape(model, {.dp = 2, .ep = ep});
    const int64_t rows = 4 * 5, copies = ep > 1 ? 2 : 1;  // rows of 8 elements; experts of width 12; 2 bytes
    const int64_t route = padded(32 * 2 * 12), of_rows = copies * (padded(rows * 8 * 2) + padded(rows * 4));
    const int64_t inner = padded(rows * 24 * 2) + 2 * padded(rows * 12 * 2);
    const RoundScratch forward = RoundScratchOf(Pass::kForward, shape), backward = RoundScratchOf(Pass::kBackward, shape);
    EXPECT_EQ(forward.total.value, route + padded(ep * 4) + of_rows + inner);
    EXPECT_EQ(backward.total.value, padded(32 * 2 * 4) + route + of_rows + inner + padded(rows * 8 * 2) +
                                        padded(rows * 24 * 2) + copies * padded(rows * 4));
    EXPECT_EQ(backward.late, Bytes(0)) << "the router reads it there";
    EXPECT_EQ(forward.sent == forward.received, ep == 1);
    EXPECT_EQ(WorkspaceBytes(Op::kUnpermute, Pass::kForward, shape), forward.total);
    EXPECT_EQ(WorkspaceBytes(Op::kPermute, Pass::kBackward, shape), backward.total);
    EXPECT_EQ(WorkspaceBytes(Op::kUnpermute, Pass::kForward, DroppingShape(shape)), Bytes(0));
  }
}

// Capacities are rounded up to thousandths. A capacity that exceeds whole thousandths only by a rounding error of doubles is
// not rounded up.
TEST(Experts, CapacitiesAreThousandthsRoundedUp) {
  ModelSpec model = Model();
  for (int permille = 1; permille <= 4000; ++permille) {
    model.moe.capacity = permille / 1000.0;
    ASSERT_EQ(Shape(model, {}).capacity_permille, permille);
  }
  model.moe.capacity = 1.2345;
  EXPECT_EQ(Shape(model, {}).capacity_permille, 1235);
}

TEST(Experts, BytesAndProductsFollowTheRows) {
  const LayerShape shape = Shape(Model(), {.dp = 2, .ep = 2});  // 64 rows
  EXPECT_EQ(TensorBytes(Tensor::kExpertRows, shape), Bytes(64 * 8 * 2));
  EXPECT_EQ(TensorBytes(Tensor::kExpertWeights, shape), Bytes(64 * 4));
  EXPECT_EQ(TensorBytes(Tensor::kFc1, shape), Bytes(64 * 24 * 2));
  EXPECT_EQ(TensorBytes(Tensor::kSwiglu, shape), Bytes(64 * 12 * 2));
  EXPECT_EQ(TensorBytes(Tensor::kScores, shape), Bytes(32 * 4 * 4));
  EXPECT_EQ(TensorBytes(Tensor::kRoute, shape), Bytes(32 * 2 * 12));
  EXPECT_EQ(OpFlops(Op::kFc1, Pass::kForward, shape), 2 * 64 * 8 * 24);
  EXPECT_EQ(OpFlops(Op::kFc2, Pass::kBackward, shape), 2 * 64 * 12 * 8);
  EXPECT_EQ(OpFlops(Op::kRouter, Pass::kForward, shape), 2 * 32 * 8 * 4);
  EXPECT_EQ(ExpertParameters(shape), 2 * 3 * 8 * 12);  // two experts
  EXPECT_EQ(OpParameters(Op::kRouter, shape), 8 * 4);
  // The bytes of rows and weights in each direction: 2 * 64 * (8 * 2 + 4) / 2.
  EXPECT_EQ(CollectiveBytes(LayerType::kTransformer, Segment::kNorm2, Pass::kForward, shape), Bytes(64 * (8 * 2 + 4)));
  EXPECT_EQ(CollectiveBytes(LayerType::kTransformer, Segment::kMlp, Pass::kForward, shape), Bytes(64 * 8 * 2));
}

TEST(Experts, OnlyGroupsOfSeveralRanksTransfer) {
  const auto windows = [](const LayerShape& shape, Pass pass) {
    int count = 0;
    for (const Segment segment : LayerGraph::Of(shape).SegmentsOf(LayerType::kTransformer, pass)) {
      count += Transfers(shape, LayerType::kTransformer, segment, pass);
    }
    EXPECT_EQ(count > 0, HasCollectives(shape));
    return count;
  };
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    EXPECT_EQ(windows(Shape(Model(), {}), pass), 0);
    EXPECT_EQ(windows(Shape(Model(), {.dp = 2, .ep = 2}), pass), 2);
    EXPECT_EQ(windows(Shape(Model(), {.tp = 2, .sequence_parallel = true}), pass), 2);
    EXPECT_EQ(windows(Shape(Model(), {.tp = 2, .ep = 2, .sequence_parallel = true}), pass), 4);
  }
}

// expert_rows can be recomputed only with another dispatch. No backward op reads the tensors that the experts return.
TEST(Experts, WhatCanBeRecomputed) {
  const LayerGraph& graph = LayerGraph::Of(Shape(Model(), {.dp = 2, .ep = 2}));
  EXPECT_TRUE(graph.RepeatsCollective(Tensor::kExpertRows));
  EXPECT_EQ(graph.MadeWith(Tensor::kExpertRows), (std::vector<Tensor>{Tensor::kExpertRows, Tensor::kExpertWeights}));
  EXPECT_EQ(graph.MadeWith(Tensor::kScores), (std::vector<Tensor>{Tensor::kScores, Tensor::kRoute}));
  for (const Tensor tensor : {Tensor::kRows, Tensor::kExpertOut, Tensor::kCombined}) {
    EXPECT_EQ(graph.RecomputableIndex(tensor), -1) << EnumName(tensor);
  }
  EXPECT_FALSE(LayerGraph::Of(Shape(Model(), {})).RepeatsCollective(Tensor::kExpertRows));
  // permute reads the route that is made together with the scores. swiglu reads the weights that arrive with the rows.
  EXPECT_TRUE(Contains(graph.InputsOf(Tensor::kExpertRows), Tensor::kScores));
  EXPECT_TRUE(Contains(graph.InputsOf(Tensor::kSwiglu), Tensor::kExpertRows));
  // Without tensor parallelism no collective lies between proj and add1.
  EXPECT_FALSE(graph.RepeatsCollective(Tensor::kX1));
  EXPECT_TRUE(LayerGraph::Of(Shape(Model(), {.tp = 2, .sequence_parallel = true})).RepeatsCollective(Tensor::kX1));
}

// Every rank of a stage is in one expert group, and the groups of either kind do not overlap.
TEST(Experts, GroupsDivideTheRanksOfAStage) {
  for (const RankOrder order : {RankOrder::kTpPpDp, RankOrder::kTpDpPp}) {
    const ParallelLayout layout{.tp = 2, .pp = 3, .dp = 4, .cp = 2, .ep = 8, .rank_order = order};
    EXPECT_EQ(RanksOfStage(layout), 16);
    EXPECT_EQ(ExpertReplicas(layout), 2);
    std::set<int32_t> ranks;
    for (int32_t stage = 0; stage < layout.pp; ++stage) {
      for (int32_t number = 0; number < RanksOfStage(layout); ++number) {
        const int32_t rank = RankInStage(layout, stage, number);
        const RankCoordinates at = CoordinatesOf(layout, rank);
        EXPECT_EQ(at.stage, stage);
        EXPECT_EQ(NumberInStage(layout, at), number);
        ranks.insert(rank);
      }
    }
    EXPECT_EQ(ranks.size(), 48u);
  }
}

TEST(Experts, PublishedModelsHaveTheirParameters) {
  ModelSpec mixtral{.layers = 32, .hidden = 4096, .heads = 32, .ffn = 14336, .seq = 4096, .vocab = 32000, .dropout = 0};
  mixtral.family = ModelFamily::kLlama;
  mixtral.kv_heads = 8;
  mixtral.moe = {.experts = 8, .top_k = 2};
  EXPECT_EQ(ModelParameters(mixtral), 46'702'792'704);  // Mixtral 8x7B
  ModelSpec qwen{.layers = 48, .hidden = 2048, .heads = 32, .ffn = 6144, .seq = 4096, .vocab = 151936, .dropout = 0};
  qwen.family = ModelFamily::kLlama;
  qwen.kv_heads = 4, qwen.head_dim = 128, qwen.qk_norm = true;
  qwen.moe = {.experts = 128, .top_k = 8, .ffn = 768};
  EXPECT_EQ(ModelParameters(qwen), 30'532'122'624);  // Qwen3-30B-A3B
}

}  // namespace
}  // namespace lynx
