#include "planner/cost/cost_model.h"

#include <gtest/gtest.h>

#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

Action ActionOf(const std::string& text) { return *ParseAction(text); }

TEST(CostModel, RooflineTakesTheSlowerOfArithmeticAndMemory) {
  const ModelSpec model = TinyModel(2);
  HardwareProfile profile = RoundProfile(model);
  profile.measured.clear();
  profile.op_overhead = Nanos(7);
  const LayerShape shape = ShapeOf(model, ParallelLayout{}, 1);
  const CostModel slow_arithmetic(profile, model, {}, 1, 1);
  EXPECT_FALSE(slow_arithmetic.measured());
  // fc1 takes 2 * 10 tokens * 16 * 64 FLOPs, at one FLOP per nanosecond. This is longer than its memory traffic takes.
  EXPECT_EQ(slow_arithmetic.OpTime(Op::kFc1, Pass::kForward), Nanos(2 * 10 * 16 * 64 + 7));
  // gelu has almost no arithmetic. Its time is that of reading and writing 10 * 64 floats.
  EXPECT_EQ(slow_arithmetic.OpTime(Op::kGelu, Pass::kForward), Nanos(2 * 10 * 64 * 4 + 7));
  EXPECT_EQ(slow_arithmetic.OpTime(Op::kGelu, Pass::kWeight), Nanos(0));
  profile.flops_per_second *= 1'000'000;
  const CostModel fast_arithmetic(profile, model, {}, 1, 1);
  EXPECT_EQ(fast_arithmetic.OpTime(Op::kFc1, Pass::kForward), Nanos(OpTraffic(Op::kFc1, Pass::kForward, shape).value + 7));
}

TEST(CostModel, LargeProductsDoNotOverflow) {
  ModelSpec model{.layers = 1, .hidden = 16384, .heads = 128, .ffn = 65536, .seq = 8192, .vocab = 50304};
  HardwareProfile profile = StatedCpuProfile();
  const CostModel costs(profile, model, {}, 8, 1);
  const double flops = 2.0 * 8 * 8192 * 16384 * 65536;
  EXPECT_NEAR(Seconds(costs.OpTime(Op::kFc1, Pass::kForward)), flops / 40e9, 1e-3);
}

TEST(CostModel, AbsurdRatesGiveLongTimesNotNonsense) {
  const ModelSpec model = TinyModel(2);
  HardwareProfile profile = RoundProfile(model);
  profile.measured.clear();
  profile.flops_per_second = 1;
  EXPECT_EQ(CostModel(profile, model, {}, 1, 1).OpTime(Op::kFc1, Pass::kForward), kMaxTime);
}

TEST(CostModel, UnusableProfilesAreRefused) {
  const HardwareProfile good = StatedCpuProfile();
  EXPECT_TRUE(CheckProfile(good).ok());
  HardwareProfile bad = good;
  bad.intra_node.bytes_per_second = 0;
  EXPECT_EQ(std::string(CheckProfile(bad).message()),
            "the hardware profile of \"cpu: stated, not measured\" is unusable: rates and bandwidths must be positive, "
            "and one is 0; measure the nodes again");
  bad = good;
  bad.inter_node.latency = Nanos(-1);
  EXPECT_FALSE(CheckProfile(bad).ok());
  bad = good;
  bad.measured.push_back({});
  EXPECT_TRUE(CheckProfile(bad).ok());
  bad.measured[0].ops[3].weight = kMaxTime + Nanos(1);
  EXPECT_FALSE(CheckProfile(bad).ok());
  bad = good;
  bad.adapters = 0;
  EXPECT_FALSE(CheckProfile(bad).ok());
  bad = good;
  bad.pod_nodes = -1;
  EXPECT_FALSE(CheckProfile(bad).ok());
  bad = good;
  bad.pod_nodes = 4;
  bad.oversubscription_permille = 999;
  EXPECT_FALSE(CheckProfile(bad).ok());
  bad = good;
  bad.oversubscription_permille = 2000;
  EXPECT_FALSE(CheckProfile(bad).ok()) << "between which nodes?";
  bad = good;
  bad.overlap_slowdown_permille = 999;
  EXPECT_FALSE(CheckProfile(bad).ok());
  bad = good;
  bad.communication_compute_permille = 1001;
  EXPECT_FALSE(CheckProfile(bad).ok());
}

TEST(CostModel, MeasuredTimesArePreferredAndSummedOverSegments) {
  const ModelSpec model = TinyModel(4);
  const CostModel costs(RoundProfile(model), model, {.tp = 2}, 1, 4);
  EXPECT_TRUE(costs.measured());
  const StageContext context = TinyContext(model, {.tp = 2}, 1, 0);
  EXPECT_EQ(costs.ComputeTime(ActionOf("0F0:1.attn"), context), Nanos(500));
  EXPECT_EQ(costs.ComputeTime(ActionOf("0B0:1.mlp"), context), Nanos(800));
  EXPECT_EQ(costs.ComputeTime(ActionOf("0W0:1.attn"), context), Nanos(300));
  EXPECT_EQ(costs.ComputeTime(ActionOf("0R0:1.attn(ln1,qkv)"), context), Nanos(200));
  EXPECT_EQ(costs.ComputeTime(ActionOf("0AR+0:1.attn"), context), Nanos(0));
  const LayerShape shape = context.shape();
  const int64_t parameters = 4 * LayerParameters(LayerType::kTransformer, shape) +
                             LayerParameters(LayerType::kEmbedding, shape) + LayerParameters(LayerType::kHead, shape);
  EXPECT_EQ(costs.ComputeTime(ActionOf("0OPT"), context), Nanos(parameters * 1000 / (1 << 20)));
}

ModelSpec Mixture(double capacity) {
  return {.layers = 4,
          .hidden = 256,
          .heads = 8,
          .ffn = 512,
          .seq = 128,
          .vocab = 1024,
          .dropout = 0,
          .family = ModelFamily::kLlama,
          .moe = {.experts = 8, .top_k = 2, .capacity = capacity}};
}

TEST(CostModel, AShapeThatNobodyMeasuredIsScaledByTheNearestMeasuredOne) {
  const ModelSpec model{.layers = 4, .hidden = 256, .heads = 8, .ffn = 1024, .seq = 128, .vocab = 1024};
  HardwareProfile stated = StatedCpuProfile();
  stated.measured.clear();
  const HardwareProfile truth = ThirdOf(stated);
  const HardwareProfile profile = WithMeasured(stated, truth, model, {.tp = 2}, 2);
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 1}, ParallelLayout{.tp = 4, .sequence_parallel = true}}) {
    for (const int32_t micro_batch : {1, 8}) {
      const CostModel scaled(profile, model, layout, micro_batch, 4), real(truth, model, layout, micro_batch, 4);
      EXPECT_FALSE(scaled.measured()) << "this shape was not measured";
      for (const OpInfo& info : LayerGraph::Of(ShapeOf(model, layout, micro_batch)).ops()) {
        const double expected = Seconds(real.OpTime(info.op, Pass::kForward));
        EXPECT_NEAR(Seconds(scaled.OpTime(info.op, Pass::kForward)), expected, 0.01 * expected) << EnumName(info.op);
      }
    }
  }
  // With two measured shapes, the model scales by the nearer one. It never scales by the shape of another model.
  const HardwareProfile two = WithMeasured(profile, ThirdOf(truth), model, {.tp = 2}, 16);
  const Nanos near_the_first = CostModel(two, model, {.tp = 2}, 4, 4).OpTime(Op::kFc1, Pass::kForward);
  const Nanos near_the_second = CostModel(two, model, {.tp = 2}, 8, 4).OpTime(Op::kFc1, Pass::kForward);
  EXPECT_EQ(near_the_first, CostModel(profile, model, {.tp = 2}, 4, 4).OpTime(Op::kFc1, Pass::kForward));
  EXPECT_GT(near_the_second, CostModel(profile, model, {.tp = 2}, 8, 4).OpTime(Op::kFc1, Pass::kForward) * 2);
  ModelSpec other = model;
  other.hidden = 512;
  other.ffn = 2048;
  EXPECT_EQ(CostModel(profile, other, {.tp = 2}, 2, 4).OpTime(Op::kFc1, Pass::kForward),
            CostModel(stated, other, {.tp = 2}, 2, 4).OpTime(Op::kFc1, Pass::kForward));
}

// A job is planned again for the load of experts that was measured. Times that were measured for another load are scaled to
// this load.
TEST(CostModel, WhatWasMeasuredServesOtherLoadsOfExperts) {
  ModelSpec model = Mixture(/*capacity=*/4);
  HardwareProfile stated = StatedCpuProfile();
  stated.measured.clear();
  const HardwareProfile truth = ThirdOf(stated);
  const ParallelLayout layout{.dp = 4, .ep = 4};
  const HardwareProfile profile = WithMeasured(stated, truth, model, layout, 2);
  model.moe.skew = 1.5;
  const CostModel scaled(profile, model, layout, 2, 4), real(truth, model, layout, 2, 4);
  EXPECT_TRUE(scaled.measured());
  for (const Op op : {Op::kFc1, Op::kFc2, Op::kRouter}) {
    const double expected = Seconds(real.OpTime(op, Pass::kForward));
    EXPECT_NEAR(Seconds(scaled.OpTime(op, Pass::kForward)), expected, 0.01 * expected) << EnumName(op);
  }
}

// Experts are measured with full rooms. If half of the rows have no room and go through rounds, the products of these rows must
// be added.
TEST(CostModel, RowsThatGoThroughRoundsWereNotMeasured) {
  ModelSpec model = Mixture(/*capacity=*/0.5);
  HardwareProfile stated = StatedCpuProfile();
  stated.measured.clear();
  const HardwareProfile truth = ThirdOf(stated);
  const ParallelLayout layout{.dp = 4, .ep = 4};
  HardwareProfile profile = WithMeasured(stated, truth, model, layout, 2);
  const CostModel rooms(profile, model, layout, 2, 4);
  profile.measured.front().shape.dropless = model.moe.dropless = true;
  const CostModel costs(profile, model, layout, 2, 4), real(truth, model, layout, 2, 4);
  EXPECT_TRUE(costs.measured());
  for (const Op op : {Op::kFc1, Op::kFc2}) {
    const double expected = Seconds(real.OpTime(op, Pass::kForward));
    EXPECT_NEAR(Seconds(costs.OpTime(op, Pass::kForward)), expected, 0.01 * expected) << EnumName(op);
    EXPECT_GT(costs.OpTime(op, Pass::kForward), rooms.OpTime(op, Pass::kForward) * 3 / 2) << EnumName(op);
  }
  EXPECT_EQ(costs.OpTime(Op::kRouter, Pass::kForward), rooms.OpTime(Op::kRouter, Pass::kForward));
}

TEST(CostModel, WhatWasMeasuredServesTheShapeWithSequenceParallelismToo) {
  const ModelSpec model = TinyModel(4);
  HardwareProfile profile = RoundProfile(model);
  const ParallelLayout plain{.tp = 2}, sharded{.tp = 2, .sequence_parallel = true};
  const CostModel measured(profile, model, plain, 1, 4);
  const CostModel derived(profile, model, sharded, 1, 4);
  EXPECT_TRUE(derived.measured());
  EXPECT_EQ(derived.OptimizerTime(1 << 20), measured.OptimizerTime(1 << 20));
  // With sequence parallelism, matrix products take the same time. A norm reads and writes only half of the tokens, but all of
  // its weights.
  for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) {
    EXPECT_EQ(derived.OpTime(Op::kFc1, pass), measured.OpTime(Op::kFc1, pass));
  }
  const int64_t time = measured.OpTime(Op::kLn1, Pass::kForward).value;
  const int64_t all = OpTraffic(Op::kLn1, Pass::kForward, ShapeOf(model, plain, 1)).value;
  const int64_t half = OpTraffic(Op::kLn1, Pass::kForward, ShapeOf(model, sharded, 1)).value;
  EXPECT_EQ(derived.OpTime(Op::kLn1, Pass::kForward), Nanos(time * half / all));
  // The profile now has only times with sequence parallelism. Times without it are derived from them. A time that was measured
  // for the shape itself is used unchanged.
  for (ShapeTimes& times : profile.measured) times.shape.sequence_parallel = times.shape.tp > 1;
  EXPECT_EQ(CostModel(profile, model, plain, 1, 4).OpTime(Op::kLn1, Pass::kForward), Nanos(time * all / half));
  EXPECT_EQ(CostModel(profile, model, sharded, 1, 4).OpTime(Op::kLn1, Pass::kForward), Nanos(time));
}

TEST(CostModel, GroupsUseTheSlowLinkWhenTheyLeaveTheNode) {
  const ModelSpec model = TinyModel(4);
  HardwareProfile profile = RoundProfile(model);
  profile.inter_node = {Nanos(1000), 1'000'000'000};
  const ParallelLayout layout{.tp = 2, .pp = 2, .dp = 2};
  const CostModel costs(profile, model, layout, 1, 4);
  const StageContext context = TinyContext(model, layout, 2, 0);
  // A replica fills a node, so only data-parallel groups and the group of all ranks communicate between nodes.
  EXPECT_EQ(costs.TransferTime(ActionOf("0AR+0:0.attn")), Nanos(640));
  EXPECT_EQ(costs.TransferTime(ActionOf("0SF+0")), Nanos(640));
  EXPECT_EQ(costs.TransferTime(ActionOf("0DP+:0")),
            Nanos(2 * (1000 + LayerParameters(LayerType::kTransformer, context.shape()) * 2)));
  EXPECT_EQ(costs.TransferTime(ActionOf("0NORM+")), Nanos(14 * 1002));
  const CostModel scattered(profile, model, layout, 1, 1);
  EXPECT_EQ(scattered.TransferTime(ActionOf("0AR+0:0.attn")), Nanos(2 * (1000 + 320)));
  EXPECT_EQ(scattered.TransferTime(ActionOf("0SF+0")), Nanos(1640));
}

TEST(CostModel, InnerLinksJoinAlignedBlocks) {
  const ModelSpec model = TinyModel(4);
  HardwareProfile profile = RoundProfile(model);
  profile.inner_links = {{2, {Nanos(0), 2'000'000'000}}};
  const CostModel pairs(profile, model, {.tp = 2, .pp = 2}, 1, 4);
  const StageContext context = TinyContext(model, {.tp = 2, .pp = 2}, 1, 0);
  EXPECT_EQ(pairs.TransferTime(ActionOf("0AR+0:0.attn")), Nanos(320)) << "twice as fast inside a pair";
  EXPECT_EQ(pairs.TransferTime(ActionOf("0SF+0")), Nanos(640)) << "from pair to pair";
  // With three devices per node, ranks 2 and 3 form a tensor-parallel group and are on different nodes.
  profile.inter_node = {Nanos(0), 500'000'000};
  const CostModel crooked(profile, model, {.tp = 2, .pp = 2}, 1, 3);
  EXPECT_EQ(crooked.TransferTime(ActionOf("0AR+0:0.attn")), Nanos(1280));
}

TEST(CostModel, TheOrderOfRanksDecidesWhichGroupsStayInsideANode) {
  const ModelSpec model = TinyModel(4);
  HardwareProfile profile = RoundProfile(model);
  profile.inter_node = {Nanos(0), 500'000'000};
  ParallelLayout layout{.tp = 2, .pp = 2, .dp = 2};
  const CostModel stages(profile, model, layout, 1, 4);
  layout.rank_order = RankOrder::kTpDpPp;
  const CostModel replicas(profile, model, layout, 1, 4);
  EXPECT_EQ(stages.DataReduceTime(1000), Nanos(2 * 4000));
  EXPECT_EQ(replicas.DataReduceTime(1000), Nanos(4000));
  EXPECT_EQ(stages.BoundaryTime(0, Bytes(1000)), Nanos(1000));
  EXPECT_EQ(replicas.BoundaryTime(0, Bytes(1000)), Nanos(2000));
}

// In a ring of 8 ranks, each rank sends 2 x 7/8 of the gradients. If a node has several ranks of the group, the ring can use
// one of the node's adapters for each of them, up to the number of adapters.
TEST(CostModel, RingsBetweenNodesUseTheAdaptersOfAllTheirMembers) {
  const ModelSpec model = TinyModel(4);
  HardwareProfile profile = RoundProfile(model);
  profile.intra_node = {Nanos(0), 10'000'000'000};
  profile.inter_node = {Nanos(0), 1'000'000'000};
  const auto reduce = [&](const ParallelLayout& layout, int32_t per_node, int32_t adapters) {
    profile.adapters = adapters;
    return CostModel(profile, model, layout, 1, per_node).DataReduceTime(2000);  // 8000 bytes
  };
  EXPECT_EQ(reduce({.dp = 8}, 4, 1), Nanos(14 * 1000)) << "of an unknown number, one counts";
  EXPECT_EQ(reduce({.dp = 8}, 4, 4), Nanos(14 * 250));
  EXPECT_EQ(reduce({.dp = 8}, 4, 2), Nanos(14 * 500)) << "a node has no more";
  EXPECT_EQ(reduce({.tp = 2, .dp = 8}, 4, 4), Nanos(14 * 500)) << "two members of each group in a node";
  EXPECT_EQ(reduce({.pp = 4, .dp = 8}, 4, 4), Nanos(14 * 1000)) << "stages inside: one member of each group in a node";
  EXPECT_EQ(reduce({.pp = 4, .dp = 8, .rank_order = RankOrder::kTpDpPp}, 4, 4), Nanos(14 * 250));
  EXPECT_EQ(reduce({.dp = 4, .cp = 2}, 4, 4), Nanos(14 * 250)) << "context-parallel ranks reduce gradients, too";
  EXPECT_EQ(reduce({.dp = 5}, 4, 4), Nanos(8 * 1600)) << "the last node has one member";
  EXPECT_EQ(reduce({.dp = 4}, 4, 4), Nanos(6 * 200)) << "inside a node";
  profile.intra_node.bytes_per_second = 3'000'000'000;
  EXPECT_EQ(reduce({.dp = 8}, 4, 4), Nanos(14 * 334)) << "all rings pass each member over the link inside the node";
  profile.intra_node.bytes_per_second = 500'000'000;
  EXPECT_EQ(reduce({.dp = 8}, 4, 4), Nanos(14 * 1000)) << "never slower than over one adapter";
  // A tensor-parallel group on two nodes also uses both adapters. At the boundary between stages each rank sends alone, so a
  // second adapter does not help.
  profile.intra_node.bytes_per_second = 10'000'000'000;
  profile.adapters = 1;
  const auto window = [&] {
    return CostModel(profile, model, {.tp = 4, .pp = 2}, 1, 2).TransferTime(ActionOf("0AR+0:0.attn"));
  };
  const Nanos one = window();
  profile.adapters = 2;
  EXPECT_EQ(window(), one / 2);
  EXPECT_EQ(CostModel(profile, model, {.tp = 2, .pp = 2}, 1, 2).BoundaryTime(0, Bytes(1000)), Nanos(1000));
}

TEST(CostModel, ZeroSharesGradientsAndUpdates) {
  ModelSpec model = TinyModel(4);
  model.dtype = DataType::kBfloat16;
  HardwareProfile profile = RoundProfile(model);
  profile.measured.clear();
  const CostModel whole(profile, model, {.dp = 4}, 1, 4);
  EXPECT_EQ(whole.DataReduceTime(1000), Nanos(6 * 1000));
  EXPECT_EQ(whole.WeightGatherTime(1000), Nanos(0));
  EXPECT_EQ(whole.OptimizerTime(1000), Nanos(66 * 1000));
  const CostModel shared(profile, model, {.dp = 2, .cp = 2, .zero = ZeroStage::kOptimizer}, 1, 4);
  EXPECT_EQ(shared.DataReduceTime(1000), Nanos(3 * 1000));
  EXPECT_EQ(shared.WeightGatherTime(1000), Nanos(3 * 500));
  EXPECT_EQ(shared.OptimizerTime(1000), Nanos(12 * 1000 + 54 * 250));
  ModelSpec half = model;
  half.gradient_dtype = DataType::kBfloat16;
  const CostModel narrow(profile, half, {.dp = 2, .cp = 2, .zero = ZeroStage::kOptimizer}, 1, 4);
  EXPECT_EQ(narrow.OptimizerTime(1000), Nanos(6 * 1000 + 60 * 250)) << "shares are copied to 32 bits";
  EXPECT_EQ(narrow.DataReduceTime(1000), Nanos(3 * 500));
  const StageContext context = TinyContext(model, {.dp = 2, .cp = 2, .zero = ZeroStage::kOptimizer}, 1, 0);
  EXPECT_EQ(shared.TransferTime(ActionOf("0PG+:0")),
            shared.WeightGatherTime(LayerParameters(LayerType::kTransformer, context.shape())));
}

// Two nodes of four replicas each. A group is a node, or half of one.
TEST(CostModel, GroupsOfReplicasShareStatesInsideThem) {
  const ModelSpec model = TinyModel(4);
  HardwareProfile profile = RoundProfile(model);
  profile.measured.clear();
  profile.intra_node = {Nanos(0), 4'000'000'000};
  profile.inter_node = {Nanos(0), 1'000'000'000};
  ParallelLayout layout{.dp = 8, .zero = ZeroStage::kWeights, .zero_group = 4};
  const CostModel nodes(profile, model, layout, 1, 4);
  // 4000 bytes: 3 times 1000 bytes in the node, then twice 500 bytes of the rank's 1000 between the nodes.
  EXPECT_EQ(nodes.DataReduceTime(1000), Nanos(3 * 250 + 2 * 500));
  EXPECT_EQ(nodes.WeightGatherTime(1000), Nanos(3 * 250));
  EXPECT_EQ(nodes.OptimizerTime(1000),
            CostModel(profile, model, {.dp = 4, .zero = ZeroStage::kWeights}, 1, 4).OptimizerTime(1000));
  // With groups of two, the ring over the groups has two members in each node.
  layout.zero_group = 2;
  EXPECT_EQ(CostModel(profile, model, layout, 1, 4).DataReduceTime(1000), Nanos(500 + 6 * 500));
  profile.adapters = 4;
  EXPECT_EQ(CostModel(profile, model, layout, 1, 4).DataReduceTime(1000), Nanos(500 + 6 * 250));
  // The rings of both groups together need four adapters, but there are two. So each ring has half of an adapter.
  profile.adapters = 2;
  EXPECT_EQ(CostModel(profile, model, layout, 1, 4).DataReduceTime(1000), Nanos(500 + 6 * 500));
  // If the stages of a replica are neighbours, a group of two replicas spans both nodes.
  profile.adapters = 1;
  layout = {.pp = 4, .dp = 2, .zero = ZeroStage::kOptimizer};
  const CostModel spread(profile, model, layout, 1, 4);
  layout = {.pp = 4, .dp = 4, .zero = ZeroStage::kOptimizer, .zero_group = 2};
  EXPECT_EQ(CostModel(profile, model, layout, 1, 4).WeightGatherTime(1000), spread.WeightGatherTime(1000));
  // A single group that contains all replicas has the same times as no groups.
  layout = {.dp = 8, .cp = 2, .zero = ZeroStage::kOptimizer};
  const CostModel all(profile, model, layout, 1, 4);
  layout.zero_group = 8;
  EXPECT_EQ(CostModel(profile, model, layout, 1, 4).DataReduceTime(1000), all.DataReduceTime(1000));
}

TEST(CostModel, ContextParallelRanksGatherKeysAndValues) {
  ModelSpec model = TinyModel(4);
  HardwareProfile profile = RoundProfile(model);
  profile.measured.clear();
  profile.flops_per_second = profile.memory_bytes_per_second = 1'000'000'000'000'000;
  const CostModel costs(profile, model, {.cp = 2}, 1, 2);
  // The keys and values of 10 tokens are 16 wide and have 32 bits. Half of them come from the other rank.
  EXPECT_EQ(costs.OpTime(Op::kProbs, Pass::kForward), Nanos(640 + 1));
  EXPECT_EQ(costs.OpTime(Op::kProbs, Pass::kBackward), Nanos(2 * 640 + 1));
  EXPECT_EQ(costs.OpTime(Op::kContext, Pass::kForward), Nanos(1));
}

TEST(CostModel, CopiesToTheHostTakeTheirOwnLink) {
  const ModelSpec model = TinyModel(4);
  HardwareProfile profile = RoundProfile(model);
  const StageContext context = TinyContext(model, {}, 1, 0);
  const CostModel without(profile, model, {}, 1, 1);
  EXPECT_EQ(without.TransferTime(ActionOf("0OF+0:1(qkv)")), kMaxTime);
  EXPECT_EQ(without.TransferTime(ActionOf("0LD+0:1(qkv)")), kMaxTime);
  profile.host = {Nanos(5), 500'000'000, 1'000'000'000, 1'200'000'000};
  const CostModel with(profile, model, {}, 1, 1);
  EXPECT_EQ(with.TransferTime(ActionOf("0OF+0:1(ln1,qkv)")), Nanos(5 + 2 * 4 * 640));
  EXPECT_EQ(with.TransferTime(ActionOf("0LD+0:1(ln1,qkv)")), Nanos(5 + 4 * 640));
}

TEST(CostModel, TheLastRankOfAPipelineReachesTheFirstOverItsOwnLink) {
  const ModelSpec model = TinyModel(6);
  HardwareProfile profile = RoundProfile(model);
  profile.inter_node = {Nanos(1000), 1'000'000'000};
  const ParallelLayout layout{.pp = 3, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved};
  // Ranks 0 and 1 share a node.
  const CostModel costs(profile, model, layout, 1, 2);
  const std::vector<StageContext> contexts = PipelineContexts(model, layout, 1, 3, {1, 1, 1, 1, 1, 1});
  EXPECT_EQ(costs.TransferTime(ActionOf("0SF+0")), Nanos(640));
  EXPECT_EQ(costs.TransferTime(ActionOf("4SB+0")), Nanos(640));
  EXPECT_EQ(costs.TransferTime(ActionOf("1SF+0")), Nanos(1640));
  EXPECT_EQ(costs.TransferTime(ActionOf("2SF+0")), Nanos(1640));
  EXPECT_EQ(costs.TransferTime(ActionOf("3RF+0")), Nanos(1640));
}

TEST(CostModel, WindowsOpenOnlyWithTensorParallelism) {
  const ModelSpec model = TinyModel(4);
  const CostModel one(RoundProfile(model), model, {}, 1, 1);
  EXPECT_EQ(one.WindowTime(LayerType::kTransformer, Segment::kAttn, Pass::kForward), Nanos(0));
  const CostModel two(RoundProfile(model), model, {.tp = 2}, 1, 2);
  EXPECT_EQ(two.WindowTime(LayerType::kTransformer, Segment::kAttn, Pass::kForward), Nanos(640));
  EXPECT_EQ(two.WindowTime(LayerType::kTransformer, Segment::kMlp, Pass::kBackward), Nanos(640));
  EXPECT_EQ(two.WindowTime(LayerType::kTransformer, Segment::kEnd, Pass::kBackward), Nanos(0));
}

TEST(CostModel, LayerTimesAddWindowsAndHideWeightGradients) {
  const ModelSpec model = TinyModel(4);
  const CostModel costs(RoundProfile(model), model, {.tp = 2}, 1, 2);
  EXPECT_EQ(costs.LayerTime(LayerType::kTransformer, Pass::kForward), Nanos(500 + 640 + 500 + 640 + 100));
  // In each window of 640 ns, weight gradients of 300 ns are hidden.
  EXPECT_EQ(costs.LayerTime(LayerType::kTransformer, Pass::kBackward), Nanos(800 + 640 + 1200 + 640 + 200));
  const CostModel one(RoundProfile(model), model, {}, 1, 1);
  EXPECT_EQ(one.LayerTime(LayerType::kTransformer, Pass::kBackward), Nanos(800 + 300 + 1200 + 300 + 200));
  EXPECT_EQ(one.LayerTime(LayerType::kEmbedding, Pass::kBackward), Nanos(400));
}

TEST(CostModel, OverlapIsSlowedAndSharesTheCore) {
  const ModelSpec model = TinyModel(1);
  HardwareProfile profile = RoundProfile(model);
  profile.overlap_slowdown_permille = 1250;
  profile.communication_compute_permille = 200;
  const CostModel costs(profile, model, {}, 1, 1);
  // The core has 800 of the 1000 ns left. In this time it completes 640 ns of work.
  EXPECT_EQ(costs.OverlapCapacity(Nanos(1000)), Nanos(640));
  EXPECT_EQ(costs.OverlappedTime(Nanos(320), Nanos(1000)), Nanos(500));
  EXPECT_EQ(costs.OverlappedTime(Nanos(640), Nanos(1000)), Nanos(1000));
  EXPECT_EQ(costs.OverlappedTime(Nanos(700), Nanos(1000)), Nanos(1060));
  EXPECT_EQ(costs.OverlappedTime(Nanos(700), Nanos(0)), Nanos(700));
  EXPECT_EQ(costs.OverlappedTime(Nanos(0), Nanos(1000)), Nanos(0));
}

}  // namespace
}  // namespace lynx
