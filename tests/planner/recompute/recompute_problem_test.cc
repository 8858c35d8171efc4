#include "planner/recompute/recompute_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {
namespace {

using enum Placement;
using ::testing::HasSubstr;

// Returns a problem with two items. i0 has 10 bytes and takes 7 ns. i1 has 100 bytes, takes 20 ns and is made from i0. Segment
// 0 reads i1; segment 1 reads both items.
RecomputeProblem TwoItems() {
  RecomputeProblem problem{.layers = 2, .in_flight = 3};
  problem.items = {{.bytes = Bytes(10), .cost = Nanos(7), .read_by = 0b10},
                   {.bytes = Bytes(100), .cost = Nanos(20), .inputs = 0b1, .read_by = 0b11}};
  problem.forward = {Nanos(5)};
  problem.backward = {Nanos(8)};
  return problem;
}

StageValue ValueOf(const RecomputeProblem& problem, const StagePolicy& policy) {
  const absl::StatusOr<StageValue> value = EvaluateStage(problem, policy);
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? *value : StageValue{};
}

std::string ErrorOf(const RecomputeProblem& problem, const StagePolicy& policy) {
  return std::string(EvaluateStage(problem, policy).status().message());
}

TEST(RecomputeProblem, StoredItemsAreHeldForAllMicrobatches) {
  const StageValue value = ValueOf(TwoItems(), {{{}, {}}});
  EXPECT_EQ(value.held, Bytes(2 * 3 * 110));
  EXPECT_EQ(value.transient, Bytes(0));
  EXPECT_EQ(value.exposed, Nanos(0));
}

TEST(RecomputeProblem, WhatAForwardWindowMakesIsHeldOnceAndBeyondTheWindowExposed) {
  const StageValue value = ValueOf(TwoItems(), {{{kForward1}, {}}});
  EXPECT_EQ(value.held, Bytes(3 * 100 + 10 + 3 * 110));
  EXPECT_EQ(value.transient, Bytes(0));
  EXPECT_EQ(value.exposed, Nanos(2));
}

TEST(RecomputeProblem, NeighboursShareABackwardWindow) {
  const RecomputeProblem problem = TwoItems();
  // Both placements mean one window of 8 ns in the backward pass of the top layer: the top layer calls it o1, and the layer
  // below calls it b1.
  EXPECT_EQ(ValueOf(problem, {{{kAbove1}, {}}}).exposed, Nanos(0));
  EXPECT_EQ(ValueOf(problem, {{{}, {kOwn1}}}).exposed, Nanos(0));
  EXPECT_EQ(ValueOf(problem, {{{kAbove1}, {kOwn1}}}).exposed, Nanos(6));
  // o1 of the bottom layer is another window, in the bottom layer's own backward pass.
  EXPECT_EQ(ValueOf(problem, {{{kOwn1}, {kOwn1}}}).exposed, Nanos(0));
}

TEST(RecomputeProblem, TransientMemoryIsThatOfTheWorstPhaseOfTwoNeighbours) {
  const RecomputeProblem problem = TwoItems();
  // The critical path before segment 0 (c0) makes i1, which lives in both phases. In phase 0, i0 lives too: i1 is made from it.
  EXPECT_EQ(ValueOf(problem, {{{}, {kCritical, kCritical}}}).transient, Bytes(110));
  // b1 comes after segment 0 of the upper layer. At that time the upper layer holds what it needs in its phase 1.
  EXPECT_EQ(ValueOf(problem, {{{kAbove1}, {kStore, kCritical}}}).transient, Bytes(110));
  RecomputeProblem first_only = problem;
  first_only.items[1].read_by = 0b01;
  EXPECT_EQ(ValueOf(first_only, {{{kAbove1}, {kStore, kCritical}}}).transient, Bytes(100));
}

TEST(RecomputeProblem, AnInputLivesAsLongAsRecomputationReadsIt) {
  RecomputeProblem problem = TwoItems();
  problem.items[0].read_by = 0b01;
  problem.items[1].read_by = 0b10;
  // i0 is made for segment 0. It is read once more before segment 1, where i1 is made from it.
  EXPECT_EQ(ValueOf(problem, {{{}, {kCritical, kCritical}}}).transient, Bytes(110));
  EXPECT_EQ(ValueOf(problem, {{{}, {kCritical, kStore}}}).transient, Bytes(10));
}

TEST(RecomputeProblem, CriticalItemsAreMadeAsLateAsTheirReadersAllow) {
  RecomputeProblem problem = TwoItems();
  problem.items[1].read_by = 0b10;
  problem.early = Nanos(5);
  // No item of the layer is read before segment 1. So the items are made after the window, and `early` hides nothing.
  EXPECT_EQ(ValueOf(problem, {{{}, {kCritical, kCritical}}}).exposed, Nanos(27));
  // o1 makes i1 and therefore needs i0 before segment 0.
  EXPECT_EQ(ValueOf(problem, {{{}, {kCritical, kOwn1}}}).exposed, Nanos(7 - 5 + 20 - 8));
}

TEST(RecomputeProblem, EarlyWorkOfTheTopLayerIsHiddenUpToACollective) {
  RecomputeProblem problem = TwoItems();
  problem.early = Nanos(25);
  EXPECT_EQ(ValueOf(problem, {{{}, {kCritical, kCritical}}}).exposed, Nanos(2));
  EXPECT_EQ(ValueOf(problem, {{{kCritical, kCritical}, {}}}).exposed, Nanos(27));
  problem.items[1].collective = true;
  EXPECT_EQ(ValueOf(problem, {{{}, {kCritical, kCritical}}}).exposed, Nanos(20));
}

TEST(RecomputeProblem, TheStallIsSharedByTheStage) {
  RecomputeProblem problem = TwoItems();
  problem.stall = Nanos(10);
  const StageValue value = ValueOf(problem, {{{kStall}, {kStall}}});
  EXPECT_EQ(value.exposed, Nanos(4));
  EXPECT_EQ(value.held, Bytes(2 * (300 + 10)));
}

TEST(RecomputeProblem, OffloadingTakesHostMemoryCopiesAndTheResidentMicrobatches) {
  RecomputeProblem problem = TwoItems();
  problem.host_budget = Bytes(1000);
  problem.resident = 2;
  problem.copy_out = Nanos(30);
  problem.copy_in = Nanos(25);
  problem.items[1].copy_out = Nanos(20);
  problem.items[1].copy_in = Nanos(19);
  const StageValue value = ValueOf(problem, {{{kStore, kOffload}, {kStore, kOffload}}});
  EXPECT_EQ(value.held, Bytes(2 * (3 * 10 + 2 * 100)));
  EXPECT_EQ(value.host, Bytes(2 * 3 * 100));
  EXPECT_EQ(value.exposed, Nanos(13));  // the larger of the two excesses, because both directions run at the same time
  problem.in_flight = 1;
  EXPECT_EQ(ValueOf(problem, {{{kStore, kOffload}, {}}}).held, Bytes(110 + 110));
}

TEST(RecomputeProblem, RefusesPoliciesThatBreakARule) {
  RecomputeProblem problem = TwoItems();
  EXPECT_THAT(ErrorOf(problem, {{{}}}), HasSubstr("a policy of 1 layers for a stage of 2"));
  // i1 is made from i0, which comes later.
  EXPECT_THAT(ErrorOf(problem, {{{kAbove1, kForward1}, {}}}), HasSubstr("layer 0: item 0 in b1: what reads it comes"));
  EXPECT_THAT(ErrorOf(problem, {{{kCritical, kAbove1}, {}}}), HasSubstr("layer 0: item 0 in critical: what reads it"));
  // No layer is above the top layer.
  EXPECT_THAT(ErrorOf(problem, {{{}, {kAbove1}}}), HasSubstr("layer 1: item 0 in b1: not possible here"));
  // o1 comes after segment 0, which reads i1.
  EXPECT_THAT(ErrorOf(problem, {{{kStore, kOwn1}, {}}}), HasSubstr("item 1 in o1: not possible here"));
  EXPECT_THAT(ErrorOf(problem, {{{kForward2}, {}}}), HasSubstr("item 0 in f2: not possible here"));
  EXPECT_THAT(ErrorOf(problem, {{{kStall}, {}}}), HasSubstr("item 0 in stall: not possible here"));
  EXPECT_THAT(ErrorOf(problem, {{{kOffload}, {}}}), HasSubstr("item 0 in offload: not possible here"));
  problem.items[0].allowed = static_cast<PlacementSet>(~BitOf(kOwn1));
  EXPECT_THAT(ErrorOf(problem, {{{kOwn1}, {}}}), HasSubstr("item 0 in o1: not possible here"));
  problem.items[1].collective = true;
  EXPECT_THAT(ErrorOf(problem, {{{kStore, kForward1}, {}}}), HasSubstr("item 1 in f1: not possible here"));
  problem.items[0].read_by = 0;
  EXPECT_THAT(ErrorOf(problem, {{{kCritical}, {}}}), HasSubstr("item 0 in critical: nothing reads it"));
}

TEST(RecomputeProblem, WhatNothingReadsTakesNothing) {
  RecomputeProblem problem = TwoItems();
  problem.items[0].read_by = 0;
  EXPECT_EQ(ValueOf(problem, {{{}, {}}}).held, Bytes(2 * 3 * 100));
  EXPECT_EQ(ValueOf(problem, {{{}, {kStore, kCritical}}}).held, Bytes(3 * 100 + 3 * 10));
}

TEST(RecomputeProblem, ValidationNamesWhatIsWrong) {
  const auto error_with = [](auto change) {
    RecomputeProblem problem = TwoItems();
    change(problem);
    return std::string(ValidateProblem(problem).message());
  };
  EXPECT_TRUE(ValidateProblem(TwoItems()).ok());
  EXPECT_THAT(error_with([](auto& p) { p.items.resize(kMaxItems + 1); }), HasSubstr("number of items is 17"));
  EXPECT_THAT(error_with([](auto& p) { p.forward.resize(5); }), HasSubstr("forward windows is 5"));
  EXPECT_THAT(error_with([](auto& p) { p.backward.resize(5); }), HasSubstr("backward windows is 5"));
  EXPECT_THAT(error_with([](auto& p) { p.layers = 0; }), HasSubstr("layers is 0"));
  EXPECT_THAT(error_with([](auto& p) { p.in_flight = 0; }), HasSubstr("in_flight is 0"));
  EXPECT_THAT(error_with([](auto& p) { p.resident = 0; }), HasSubstr("resident is 0"));
  EXPECT_THAT(error_with([](auto& p) { p.forward[0] = Nanos(-1); }), HasSubstr("a forward window is -1"));
  EXPECT_THAT(error_with([](auto& p) { p.backward[0] = Nanos(-1); }), HasSubstr("a backward window is -1"));
  EXPECT_THAT(error_with([](auto& p) { p.stall = Nanos(-2); }), HasSubstr("stall is -2"));
  EXPECT_THAT(error_with([](auto& p) { p.early = Nanos(-2); }), HasSubstr("early is -2"));
  EXPECT_THAT(error_with([](auto& p) { p.budget = Bytes(-3); }), HasSubstr("budget is -3"));
  EXPECT_THAT(error_with([](auto& p) { p.host_budget = Bytes(-3); }), HasSubstr("host_budget is -3"));
  EXPECT_THAT(error_with([](auto& p) { p.copy_out = Nanos(-1); }), HasSubstr("copy_out is -1"));
  EXPECT_THAT(error_with([](auto& p) { p.copy_in = Nanos(-1); }), HasSubstr("copy_in is -1"));
  EXPECT_THAT(error_with([](auto& p) { p.items[1].bytes = Bytes(-1); }), HasSubstr("item 1 bytes is -1"));
  EXPECT_THAT(error_with([](auto& p) { p.items[1].cost = kMaxWork * 2; }), HasSubstr("item 1 cost is"));
  EXPECT_THAT(error_with([](auto& p) { p.items[1].copy_out = Nanos(-1); }), HasSubstr("item 1 copy_out is -1"));
  EXPECT_THAT(error_with([](auto& p) { p.items[1].copy_in = Nanos(-1); }), HasSubstr("item 1 copy_in is -1"));
  EXPECT_THAT(error_with([](auto& p) { p.items[0].inputs = 0b10; }), HasSubstr("item 0 reads itself or an item after"));
  EXPECT_THAT(error_with([](auto& p) { p.items[0].read_by = 0b100; }), HasSubstr("a segment beyond the 2"));
}

TEST(RecomputeProblem, EqualsAPlayedLayer) {
  int64_t refused = 0, accepted = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem =
        RandomProblem({.items = 5, .forward = 3, .backward = 3, .stall = true, .offload = true}, number);
    ASSERT_TRUE(ValidateProblem(problem).ok());
    for (int i = 0; i < 3000; ++i) {
      const LayerPlace place = i % 2 == 0 ? LayerPlace::kTop : LayerPlace::kInner;
      LayerPolicy policy{};
      for (size_t item = 0; item < problem.items.size(); ++item) policy[item] = static_cast<Placement>(number(0, 15));
      // Most of the placements are possible ones. Otherwise nearly all policies would be refused.
      for (size_t item = 0; item < problem.items.size() && i % 10 != 0; ++item) {
        while (!Contains(PossiblePlacements(problem, static_cast<int>(item), place), policy[item])) {
          policy[item] = static_cast<Placement>(number(0, 15));
        }
      }
      const std::optional<LayerUse> played = PlayedLayer(problem, policy, place).Play();
      const absl::StatusOr<LayerUse> use = UseOf(problem, policy, place);
      ASSERT_EQ(use.ok(), played.has_value()) << PolicyText(problem, policy) << ": " << use.status().message();
      if (played) {
        ASSERT_EQ(*use, *played) << PolicyText(problem, policy);
      }
      ++(played ? accepted : refused);
    }
  }
  EXPECT_GT(accepted, 10000);
  EXPECT_GT(refused, 10000);
}

TEST(RecomputeProblem, LessExposedTimeComesFirstThenDeviceThenHostMemory) {
  const StageValue value{.held = Bytes(5), .transient = Bytes(5), .host = Bytes(5), .exposed = Nanos(5)};
  const auto with = [&](auto change) {
    StageValue other = value;
    change(other);
    return other;
  };
  EXPECT_FALSE(Better(value, value));
  EXPECT_TRUE(Better(with([](auto& v) { v.exposed = Nanos(4), v.held = Bytes(50); }), value));
  EXPECT_TRUE(Better(with([](auto& v) { v.transient = Bytes(4), v.host = Bytes(50); }), value));
  EXPECT_TRUE(Better(with([](auto& v) { v.host = Bytes(4); }), value));
  RecomputeProblem problem{.budget = Bytes(10), .host_budget = Bytes(5)};
  EXPECT_TRUE(Fits(problem, value));
  EXPECT_FALSE(Fits(problem, with([](auto& v) { v.held = Bytes(6); })));
  EXPECT_FALSE(Fits(problem, with([](auto& v) { v.host = Bytes(6); })));
}

}  // namespace
}  // namespace lynx
