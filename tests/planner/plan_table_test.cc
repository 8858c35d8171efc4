#include "planner/plan_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx {
namespace {

using testing::HasSubstr;

Plan TwoStages() {
  Plan plan;
  plan.model = {.layers = 5, .hidden = 64, .heads = 4, .ffn = 256, .seq = 128};
  plan.layout = {.tp = 2, .pp = 2, .dp = 1};
  plan.micro_batch = 4;
  plan.microbatches = 4;
  plan.activation_limit = kMiB * 16;
  plan.step = Nanos(800'000'000);
  StagePlan first{.first_layer = 0, .end_layer = 3, .policy = NamedPolicy(RecomputeMode::kFull, 3)};
  first.policy.layers[0].fill(Placement::kStore);
  first.policy.layers[1][0] = Placement::kForwardAttn;
  first.arena = kMiB * 15;
  first.states.weights = kMiB * 2;
  first.forward = Nanos(100'000'000);
  first.recompute_hidden = Nanos(30'000'000);
  first.recompute_exposed = Nanos(10'000'000);
  first.stall = Nanos(160'000'000);
  StagePlan second{.first_layer = 3, .end_layer = 5, .policy = NamedPolicy(RecomputeMode::kNone, 2)};
  plan.stages = {first, second};
  return plan;
}

TEST(PlanTable, IsOneReadableScreen) {
  EXPECT_EQ(PlanTable(TwoStages()),
            R"(tp2 pp2 dp1: 4 ranks; 4 microbatches of 4 samples; recompute auto; activation limit 16.0 MiB a rank

STAGE  LAYERS  PEAK      STATES   WINDOWS  FORWARD   BACKWARD  RECOMPUTE HIDDEN  EXPOSED  COLLECTIVES  STALL
0      e 0-2   15.0 MiB  2.0 MiB  f1       100.0 ms  0 ns      30.0 ms           10.0 ms  0 ns         160.0 ms
1      3-4 h   0 B       0 B      -        0 ns      0 ns      0 ns              0 ns     0 ns         0 ns

LAYERS  POLICY
0       store all
1       f1: ln1; critical: qkv probs context x1 ln2 fc1 gelu
2       full
3-4     store all

predicted: step 800.0 ms, 2560 tokens/s, stalls 10% of it, recomputation 40.0 ms on the busiest stage, 75% hidden
)");
}

TEST(PlanTable, SaysWhenNothingIsRecomputed) {
  Plan plan = TwoStages();
  for (StagePlan& s : plan.stages) s.recompute_hidden = s.recompute_exposed = Nanos(0);
  plan.activation_limit = Bytes(0);
  EXPECT_THAT(PlanTable(plan), HasSubstr("nothing is recomputed"));
  EXPECT_THAT(PlanTable(plan), HasSubstr("activation limit none"));
}

TEST(AlignedTable, PadsColumnsWithoutTrailingSpaces) {
  EXPECT_EQ(AlignedTable({{"A", "LONG"}, {"value", "x"}, {"b"}}), "A      LONG\nvalue  x\nb\n");
}

}  // namespace
}  // namespace lynx
