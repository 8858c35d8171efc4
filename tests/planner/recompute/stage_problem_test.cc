#include "planner/recompute/stage_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/recompute/stage_heu.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

using ::testing::ElementsAre;

const ParallelLayout kTp2{.tp = 2};

RecomputeProblem TinyProblem(const HardwareProfile& profile, const ParallelLayout& layout, const StageTraits& traits) {
  const ModelSpec model = TinyModel(2);
  return MakeStageProblem(CostModel(profile, model, layout, 1, 2), ShapeOf(model, layout, 1), traits);
}

TEST(StageProblem, FollowsFromTheLayerGraphAndTheCosts) {
  const RecomputeProblem problem =
      TinyProblem(RoundProfile(TinyModel(2)), kTp2, {.layers = 3, .in_flight = 2, .stall = Nanos(30)});
  EXPECT_TRUE(ValidateProblem(problem).ok());
  std::vector<ItemSet> inputs;
  std::vector<SegmentSet> readers;
  for (const RecomputeItem& item : problem.items) {
    inputs.push_back(item.inputs);
    readers.push_back(item.read_by);
  }
  // The items are in the order ln1 qkv probs context x1 ln2 fc1 gelu. The segments are in the order mlp attn end.
  EXPECT_THAT(inputs, ElementsAre(0, 0b1, 0b10, 0b110, 0b1000, 0b10000, 0b100000, 0b1000000));
  EXPECT_THAT(readers, ElementsAre(0b10, 0b10, 0b10, 0b10, 0b10, 0b01, 0b01, 0b01));
  EXPECT_TRUE(problem.items[4].collective);
  EXPECT_EQ(problem.items[4].cost, Nanos(200 + 640));  // proj, add1 and the all-reduce between them
  EXPECT_EQ(problem.items[7].bytes, Bytes(1280));      // 10 * 32 floats, a multiple of the alignment
  EXPECT_THAT(problem.forward, ElementsAre(Nanos(640), Nanos(640)));
  // In each backward window, three weight gradients of 100 ns run first.
  EXPECT_THAT(problem.backward, ElementsAre(Nanos(340), Nanos(340)));
  EXPECT_EQ(problem.stall, Nanos(30));
  EXPECT_EQ(problem.early, Nanos(0));
  EXPECT_EQ(problem.layers, 3);
  EXPECT_EQ(problem.in_flight, 2);
}

TEST(StageProblem, TheHeadsWindowHidesTheTopLayersFirstWork) {
  const RecomputeProblem problem =
      TinyProblem(RoundProfile(TinyModel(2)), kTp2, {.in_flight = 1, .below_head = true, .stall = Nanos(30)});
  // The head's window has 640 ns. The weight gradient of the logits takes 100 ns of it.
  EXPECT_EQ(problem.early, Nanos(540));
  // Only one microbatch is in flight. So no other microbatch runs forward at that time, and the stage waits for none.
  EXPECT_THAT(problem.forward, ElementsAre(Nanos(0), Nanos(0)));
  EXPECT_EQ(problem.stall, Nanos(0));
}

TEST(StageProblem, SequenceParallelismHasFourWindowsAPass) {
  const RecomputeProblem problem =
      TinyProblem(RoundProfile(TinyModel(2)), {.tp = 2, .sequence_parallel = true}, {.layers = 2, .in_flight = 2});
  EXPECT_TRUE(ValidateProblem(problem).ok());
  EXPECT_EQ(problem.forward.size(), 4u);
  EXPECT_EQ(problem.backward.size(), 4u);
  EXPECT_EQ(problem.segments(), 5);
  // qkv and fc1 read gathered tensors, and the partial sum of x1 is reduce-scattered.
  std::vector<int> collectives;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    if (problem.items[i].collective) collectives.push_back(static_cast<int>(i));
  }
  EXPECT_THAT(collectives, ElementsAre(1, 4, 6));
}

TEST(StageProblem, WithoutTensorParallelismThereAreNoWindows) {
  const RecomputeProblem problem = TinyProblem(RoundProfile(TinyModel(2)), {}, {.layers = 2, .in_flight = 3});
  for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
    for (const ParetoPoint& point : LayerPareto(problem, place)) {
      for (Placement p : point.policy) EXPECT_TRUE(p == Placement::kStore || p == Placement::kCritical);
    }
  }
}

TEST(StageProblem, WithoutWindowsEverythingRecomputedIsExposed) {
  const RecomputeProblem problem =
      WithoutWindows(TinyProblem(RoundProfile(TinyModel(2)), kTp2, {.in_flight = 2, .below_head = true, .stall = Nanos(30)}));
  LayerPolicy all;
  all.fill(Placement::kStore);
  std::fill(all.begin(), all.begin() + 8, Placement::kCritical);
  const absl::StatusOr<StageValue> value = EvaluateStage(problem, {{all}});
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(value->exposed, Nanos(9 * 100 + 640));
}

TEST(StageProblem, WideWindowsHideWhatTheyMay) {
  HardwareProfile profile = RoundProfile(TinyModel(2));
  profile.intra_node.bytes_per_second = 100'000'000;  // windows take 6400 ns
  const RecomputeProblem problem = TinyProblem(profile, kTp2, {.layers = 2, .in_flight = 4});
  // Every item except x1 can be recomputed without exposed time.
  const std::vector<ParetoPoint> front = LayerPareto(problem, LayerPlace::kInner);
  EXPECT_EQ(front.front().exposed, Nanos(0));
  EXPECT_EQ(front.front().held, Bytes(4 * 768));  // x1 has 640 bytes, and 768 bytes with padding
}

TEST(StageProblem, OffloadsOnlyWhereAskedAndWhereTheDeviceCan) {
  HardwareProfile profile = RoundProfile(TinyModel(2));
  const StageTraits asked{.layers = 2, .in_flight = 5, .host_memory = Bytes(1 << 20)};
  EXPECT_EQ(TinyProblem(profile, kTp2, asked).host_budget, Bytes(0));
  profile.host = {Nanos(5), 2'000'000'000, 1'000'000'000, 1'000'000'000};
  EXPECT_EQ(TinyProblem(profile, kTp2, {.layers = 2, .in_flight = 5}).host_budget, Bytes(0));
  const RecomputeProblem problem = TinyProblem(profile, kTp2, asked);
  EXPECT_TRUE(ValidateProblem(problem).ok());
  EXPECT_EQ(problem.host_budget, Bytes(1 << 20));
  // gelu has 10 * 32 floats. They leave at two bytes per nanosecond and come back at one byte per nanosecond.
  EXPECT_EQ(problem.items[7].copy_out, Nanos(5 + 1280 / 2));
  EXPECT_EQ(problem.items[7].copy_in, Nanos(5 + 1280));
  const ModelSpec model = TinyModel(2);
  const CostModel costs(profile, model, kTp2, 1, 2);
  const LayerType layer = LayerType::kTransformer;
  EXPECT_EQ(problem.copy_out, costs.LayerTime(layer, Pass::kForward) * 2);
  EXPECT_EQ(problem.copy_in, costs.LayerTime(layer, Pass::kBackward) * 2);
  EXPECT_EQ(problem.resident, 2);
  StageTraits many = asked;
  many.layers = 4;
  EXPECT_EQ(TinyProblem(profile, kTp2, many).resident, 1);
  EXPECT_EQ(TinyProblem(profile, kTp2, many).copy_out, problem.copy_out * 2);
  EXPECT_EQ(WithoutOffloading(problem), TinyProblem(profile, kTp2, {.layers = 2, .in_flight = 5}));
  // With two microbatches in flight, every microbatch would be on its way to or from the host, so nothing is offloaded.
  StageTraits few = asked;
  few.in_flight = 2;
  EXPECT_EQ(TinyProblem(profile, kTp2, few), WithoutOffloading(TinyProblem(profile, kTp2, few)));
}

TEST(StageProblem, OffloadingSavesMemoryWhereCopiesAreFree) {
  HardwareProfile profile = RoundProfile(TinyModel(2), Nanos(400));
  profile.host = {Nanos(0), 100'000'000'000, 100'000'000'000, 200'000'000'000};
  const StageTraits traits{.layers = 6, .in_flight = 6, .host_memory = Bytes(1 << 20)};
  RecomputeProblem problem = TinyProblem(profile, kTp2, traits);
  const StagePolicy stored{std::vector<LayerPolicy>(6)};
  problem.budget = EvaluateStage(problem, stored)->bytes() / 4;
  const std::optional<StageSolution> with = StageHeu(problem).Best(6, problem.budget);
  ASSERT_TRUE(with.has_value());
  EXPECT_EQ(with->value.exposed, Nanos(0));
  EXPECT_GT(with->value.host, Bytes(0));
  EXPECT_LE(with->value.host, Bytes(1 << 20));
  problem.host_budget = Bytes(0);
  const std::optional<StageSolution> without = StageHeu(problem).Best(6, problem.budget);
  EXPECT_TRUE(!without || without->value.exposed > Nanos(0));
}

// The memory of the host and its link are limited. So the choice between storing, recomputing and offloading is one decision.
TEST(StageProblem, MoreHostMemoryOrAFasterLinkNeverHurts) {
  const auto exposed = [](int64_t host, int64_t rate) {
    HardwareProfile profile = RoundProfile(TinyModel(2), Nanos(400));
    profile.host = {Nanos(0), rate, rate, rate};
    RecomputeProblem problem = TinyProblem(profile, kTp2, {.layers = 6, .in_flight = 6, .host_memory = Bytes(host)});
    const StagePolicy stored{std::vector<LayerPolicy>(6)};
    problem.budget = EvaluateStage(problem, stored)->bytes() / 4;
    return StageHeu(problem).Best(6, problem.budget)->value.exposed;
  };
  EXPECT_LT(exposed(1 << 20, 4'000'000'000), exposed(0, 4'000'000'000));
  EXPECT_LE(exposed(1 << 20, 4'000'000'000), exposed(1 << 17, 4'000'000'000));
  EXPECT_LT(exposed(1 << 20, 4'000'000'000), exposed(1 << 20, 100'000'000));
}

TEST(StageProblem, SizesBeyondTheLimitsAreCut) {
  ModelSpec model = TinyModel(2);
  model.seq = 1 << 20;
  const CostModel costs(RoundProfile(TinyModel(2)), model, kTp2, 4096, 2);
  const RecomputeProblem problem =
      MakeStageProblem(costs, ShapeOf(model, kTp2, 4096), {.in_flight = 1 << 20, .stall = kMaxWork * 3});
  EXPECT_TRUE(ValidateProblem(problem).ok()) << ValidateProblem(problem).message();
  EXPECT_EQ(problem.items[2].bytes, kMaxItem);  // probs
  EXPECT_EQ(problem.in_flight, kMaxInFlight);
}

}  // namespace
}  // namespace lynx
