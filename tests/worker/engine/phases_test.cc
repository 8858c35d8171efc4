#include "worker/engine/phases.h"

#include <gtest/gtest.h>

#include "planner/program/hidden_time.h"

namespace lynx::worker {
namespace {

struct Case {
  Program program;
  std::vector<ActionTrace> trace;
};

// Returns a program and the trace of its actions. The actions run one after another and take `lengths` ns. The transfers have
// no end until a test sets one.
Case Make(const std::string& text, const std::vector<int64_t>& lengths) {
  Case c{ParseProgram(text).value(), {}};
  EXPECT_EQ(c.program.size(), lengths.size());
  Nanos now(1000);
  for (int64_t length : lengths) {
    c.trace.push_back({now, now + Nanos(length), Nanos(0)});
    now += Nanos(length);
  }
  return c;
}

StepPhases PhasesOf(const Case& c) { return PhasesOf(c.program, HidingStarts(c.program, StartsOfWaits(c.program)), c.trace); }

TEST(Phases, PairsEachWaitWithItsOwnStart) {
  const Program program = ParseProgram("0AR+0:1.attn 0AR+1:1.attn 0AR-1:1.attn 0SF+0 0AR-0:1.attn 0SF-0").value();
  EXPECT_EQ(StartsOfWaits(program), (std::vector<int32_t>{-1, -1, 1, -1, 0, 3}));
}

TEST(Phases, PairsARepeatedTransferWithItsLatestStart) {
  const Program program = ParseProgram("0AR+0:1.attn 0AR-0:1.attn 0AR+0:1.attn 0AR-0:1.attn").value();
  EXPECT_EQ(StartsOfWaits(program), (std::vector<int32_t>{-1, 0, -1, 2}));
}

TEST(Phases, PairsTransfersOfExperts) {
  const Program program =
      ParseProgram("0AA+0:1.norm2 0AG+0:2.norm1 0AA-0:1.norm2 0DP+:1 0XP+:1 0XP-:1 0AG-0:2.norm1 0DP-:1").value();
  EXPECT_EQ(StartsOfWaits(program), (std::vector<int32_t>{-1, -1, 0, -1, -1, 4, 1, 3}));
}

// Collectives of the expert group end segments, like those of the tensor-parallel group. Ranks with the same experts count as
// replicas.
TEST(Phases, WaitsForExpertsCountWithThoseOfTheSameSort) {
  const Case c = Make("0AA+0:1.norm2 0AA-0:1.norm2 0BAA+0:1.out 0BAA-0:1.out 0XP+:1 0XP-:1 0XG+:1 0XG-:1",
                      {1, 20, 300, 4'000, 50'000, 600'000, 7'000'000, 80'000'000});
  EXPECT_EQ(PhasesOf(c).tensor_wait, Nanos(4'321));
  EXPECT_EQ(PhasesOf(c).data_parallel_wait, Nanos(87'650'000));
  EXPECT_EQ(PhasesOf(c).stall, Nanos(0));
}

TEST(Phases, RecomputationThatEndsBeforeTheTransferIsHidden) {
  Case c = Make("0BAR+0:1.mlp 0R0:0.attn(ln1,qkv) 0BAR-0:1.mlp", {1, 50, 30});
  c.trace[0].transfer_end = c.trace[1].end + Nanos(29);
  EXPECT_EQ(PhasesOf(c).recompute_hidden, Nanos(50));
  EXPECT_EQ(PhasesOf(c).recompute_exposed, Nanos(0));
  EXPECT_EQ(PhasesOf(c).tensor_wait, Nanos(31));
}

TEST(Phases, OnlyThePartBeforeTheTransferCompletesIsHidden) {
  Case c = Make("0BAR+0:1.mlp 0R0:0.attn(ln1,qkv) 0BAR-0:1.mlp", {1, 50, 2});
  c.trace[0].transfer_end = c.trace[1].begin + Nanos(20);
  EXPECT_EQ(PhasesOf(c).recompute_hidden, Nanos(20));
  EXPECT_EQ(PhasesOf(c).recompute_exposed, Nanos(30));
}

TEST(Phases, RecomputationAfterTheTransferCompletedIsExposed) {
  Case c = Make("0BAR+0:1.mlp 0W0:1.mlp 0R0:0.attn(ln1) 0BAR-0:1.mlp", {1, 40, 50, 2});
  c.trace[0].transfer_end = c.trace[2].begin - Nanos(5);
  EXPECT_EQ(PhasesOf(c).recompute_hidden, Nanos(0));
  EXPECT_EQ(PhasesOf(c).recompute_exposed, Nanos(50));
  EXPECT_EQ(PhasesOf(c).weight, Nanos(40));
}

TEST(Phases, RecomputationAndWeightActionsBetweenItAndTheWaitAreSkipped) {
  Case c = Make("0BAR+0:1.mlp 0R0:0.attn(ln1) 0W0:1.mlp 0R0:0.mlp(gelu) 0BAR-0:1.mlp", {1, 10, 20, 30, 2});
  c.trace[0].transfer_end = c.trace[3].begin + Nanos(7);
  EXPECT_EQ(PhasesOf(c).recompute_hidden, Nanos(17));
  EXPECT_EQ(PhasesOf(c).recompute_exposed, Nanos(23));
}

TEST(Phases, StartsBetweenRecomputationAndTheWaitAreSkipped) {
  Case c = Make("0BAR+0:1.mlp 0R0:0.attn(ln1) 0SF+1 0BAR-0:1.mlp 0SF-1", {1, 50, 3, 30, 1});
  c.trace[0].transfer_end = c.trace[3].end;
  EXPECT_EQ(PhasesOf(c).recompute_hidden, Nanos(50));
  EXPECT_EQ(PhasesOf(c).recompute_exposed, Nanos(0));
}

TEST(Phases, RecomputationFollowedByComputeIsExposedWhole) {
  Case c = Make("0BAR+0:1.mlp 0R0:1.attn(ln1) 0B0:1.attn 0BAR-0:1.mlp", {1, 10, 20, 30});
  c.trace[0].transfer_end = c.trace[3].end;
  EXPECT_EQ(PhasesOf(c).recompute_hidden, Nanos(0));
  EXPECT_EQ(PhasesOf(c).recompute_exposed, Nanos(10));
}

TEST(Phases, RecomputationFollowedByAStartIsExposedWhole) {
  Case c = Make("0BAR+0:1.mlp 0R0:1.attn(proj) 0RAR+0:1.attn 0RAR-0:1.attn 0BAR-0:1.mlp", {1, 10, 1, 5, 30});
  c.trace[0].transfer_end = c.trace[4].end;
  c.trace[2].transfer_end = c.trace[3].end;
  EXPECT_EQ(PhasesOf(c).recompute_exposed, Nanos(10));
}

TEST(Phases, RecomputationAtTheEndIsExposed) {
  const Case c = Make("0R0:1.attn(ln1)", {10});
  EXPECT_EQ(PhasesOf(c).recompute_exposed, Nanos(10));
}

TEST(Phases, EveryActionCountsInItsPhase) {
  const Case c = Make(
      "0RF+0 0RF-0 0F0:1.attn 0AR+0:1.attn 0AR-0:1.attn 0SB+0 0SB-0 0B0:1.mlp 0W0:1.mlp 0DP+:1 0DP-:1 0NORM+ 0NORM- "
      "0OPT",
      {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192});
  const StepPhases expected{.forward = Nanos(4),
                            .backward = Nanos(128),
                            .weight = Nanos(256),
                            .optimizer = Nanos(2048 + 8192),
                            .recompute_hidden = Nanos(0),
                            .recompute_exposed = Nanos(0),
                            .tensor_wait = Nanos(8 + 16),
                            .stall = Nanos(1 + 2 + 32 + 64),
                            .data_parallel_wait = Nanos(512 + 1024),
                            .norm_wait = Nanos(4096)};
  EXPECT_EQ(PhasesOf(c), expected);
}

}  // namespace
}  // namespace lynx::worker
