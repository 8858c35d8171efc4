#include "planner/cost/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

// There is one stage with tp 2. An all-reduce of x takes 640 ns, and each op takes 100 ns forward.
class OneStage : public ::testing::Test {
 protected:
  StageTimes Run(const std::string& text) {
    const CostModel costs(profile_, model_, layout_, 1, 2);
    absl::StatusOr<Simulation> simulation = Simulate({Parse(text)}, {TinyContext(model_, layout_, 2, 0)}, costs);
    EXPECT_TRUE(simulation.ok()) << simulation.status().message();
    return simulation.ok() ? simulation->stages[0] : StageTimes{};
  }

  const ModelSpec model_ = TinyModel(4);
  const ParallelLayout layout_{.tp = 2};
  HardwareProfile profile_ = RoundProfile(model_);
};

TEST_F(OneStage, ExposedCollectiveAddsItsLength) {
  const StageTimes times = Run("0F0:0.attn 0AR+0:0.attn 0AR-0:0.attn 0F0:0.mlp");
  EXPECT_EQ(times.forward, Nanos(1000));
  EXPECT_EQ(times.communication_exposed, Nanos(640));
  EXPECT_EQ(times.end, Nanos(1640));
  EXPECT_EQ(times.spans[1].transfer_begin, Nanos(500));
  EXPECT_EQ(times.spans[1].transfer_end, Nanos(1140));
  EXPECT_EQ(times.spans[2].begin, Nanos(500));
  EXPECT_EQ(times.spans[2].end, Nanos(1140));
}

TEST_F(OneStage, RecomputationInAWindowIsHiddenUpToTheWindowsEnd) {
  const StageTimes inside = Run("0F1:0.attn 0AR+1:0.attn 0R0:0.attn(ln1,qkv) 0AR-1:0.attn 0F1:0.mlp");
  EXPECT_EQ(inside.recompute_hidden, Nanos(200));
  EXPECT_EQ(inside.recompute_exposed, Nanos(0));
  EXPECT_EQ(inside.communication_exposed, Nanos(440));
  EXPECT_EQ(inside.end, Nanos(1640));
  // The weight gradient comes first in its window and uses 300 of the 640 ns. So 60 of the 400 ns of recomputation do not fit.
  const StageTimes over = Run("0BAR+0:1.mlp 0W0:1.mlp 0R0:0.attn(ln1,qkv,probs,context) 0BAR-0:1.mlp");
  EXPECT_EQ(over.recompute_hidden, Nanos(340));
  EXPECT_EQ(over.recompute_exposed, Nanos(60));
  EXPECT_EQ(over.spans[2].hidden, Nanos(340));
  EXPECT_EQ(over.end, Nanos(700));
}

TEST_F(OneStage, RecomputationBeforeComputeIsExposedEvenBesideATransfer) {
  const StageTimes times = Run("0BAR+0:1.mlp 0R0:0.attn(ln1) 0B0:0.attn 0BAR-0:1.mlp");
  EXPECT_EQ(times.recompute_hidden, Nanos(0));
  EXPECT_EQ(times.recompute_exposed, Nanos(100));
}

TEST_F(OneStage, RecomputationBeforeItsOwnCollectiveIsExposed) {
  const StageTimes times = Run("0R0:0.attn(proj) 0RAR+0:0.attn 0RAR-0:0.attn 0R0:0.mlp(add1) 0B0:0.attn");
  EXPECT_EQ(times.recompute_exposed, Nanos(200));
  EXPECT_EQ(times.recompute_hidden, Nanos(0));
  EXPECT_EQ(times.communication_exposed, Nanos(640));
}

TEST_F(OneStage, OverlapSlowsWhatRunsBesideATransfer) {
  profile_.overlap_slowdown_permille = 1250;
  profile_.communication_compute_permille = 200;
  // A window of 640 ns holds 409 ns of work. Attention is 500 ns of work and begins together with the window, so it ends after
  // 640 + (500 - 409) ns.
  const StageTimes times = Run("0AR+0:0.attn 0F1:0.attn 0AR-0:0.attn 0F0:0.mlp");
  EXPECT_EQ(times.forward, Nanos(640 + 500 - 409 + 500));
  EXPECT_EQ(times.communication_exposed, Nanos(0));
}

TEST_F(OneStage, TransfersOfAGroupQueue) {
  const StageTimes times = Run("0AR+0:0.attn 0AR+1:0.attn 0AR-0:0.attn 0AR-1:0.attn");
  EXPECT_EQ(times.spans[0].transfer_end, Nanos(640));
  EXPECT_EQ(times.spans[1].transfer_begin, Nanos(640));
  EXPECT_EQ(times.spans[1].transfer_end, Nanos(1280));
}

TEST_F(OneStage, AWaitWithoutAStartIsAnError) {
  const CostModel costs(profile_, model_, layout_, 1, 2);
  const absl::Status status = Simulate({Parse("0AR-0:0.attn")}, {TinyContext(model_, layout_, 2, 0)}, costs).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("0AR-0:0.attn"));
}

// There are two stages with tp 1. A boundary transfer takes 640 ns.
class TwoStages : public ::testing::Test {
 protected:
  absl::StatusOr<Simulation> Run(const std::string& first, const std::string& second) {
    const CostModel costs(RoundProfile(model_), model_, layout_, 1, 2);
    return Simulate({Parse(first), Parse(second)}, {TinyContext(model_, layout_, 2, 0), TinyContext(model_, layout_, 2, 1)},
                    costs);
  }

  const ModelSpec model_ = TinyModel(4);
  const ParallelLayout layout_{.pp = 2};
};

TEST_F(TwoStages, ATransferBeginsWhenBothSidesHaveStartedIt) {
  // The receiver is late. The transfer runs from 1000 to 1640 ns, and the sender's wait includes the transfer.
  const auto late = Run("0F0:0.attn 0SF+0 0SF-0", "1F1:2.attn 1F1:2.mlp 1RF+0 1RF-0");
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(late->stages[0].spans[1].transfer_end, Nanos(1640));
  EXPECT_EQ(late->stages[0].stall, Nanos(1140));
  EXPECT_EQ(late->stages[1].stall, Nanos(640));
  EXPECT_EQ(late->step, Nanos(1640));
}

TEST_F(TwoStages, RecomputationBeforeAStallIsHidden) {
  const auto simulation = Run("0RB+0 0R0:0.attn(ln1,qkv) 0RB-0 0B0:1.mlp", "1B0:2.mlp 1SB+0 1SB-0");
  ASSERT_TRUE(simulation.ok());
  EXPECT_EQ(simulation->stages[0].recompute_hidden, Nanos(200));
  EXPECT_EQ(simulation->stages[0].stall, Nanos(800 + 640 - 200));
}

TEST_F(TwoStages, DirectionsDoNotQueueBehindEachOther) {
  const auto simulation = Run("0SF+0 0RB+0 0SF-0 0RB-0", "1RF+0 1SB+0 1RF-0 1SB-0");
  ASSERT_TRUE(simulation.ok());
  EXPECT_EQ(simulation->step, Nanos(640));
}

TEST_F(TwoStages, DeadlockNamesEveryWaitingStage) {
  const auto simulation = Run("0RB+0 0RB-0 0SF+0 0SF-0", "1RF+0 1RF-0 1SB+0 1SB-0");
  ASSERT_FALSE(simulation.ok());
  EXPECT_EQ(simulation.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(simulation.status().message()),
            "deadlock: stage 0 waits at 0RB-0 (action 1) for stage 1; stage 1 waits at 1RF-0 (action 1) for stage 0");
}

TEST_F(TwoStages, TheWorldWaitsForTheLastStage) {
  const auto simulation = Run("0NORM+ 0NORM-", "1F0:2.attn 1NORM+ 1NORM-");
  ASSERT_TRUE(simulation.ok());
  EXPECT_EQ(simulation->stages[0].communication_exposed, Nanos(500 + 16));
  const auto missing = Run("0NORM+ 0NORM-", "1F0:2.attn");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(std::string(missing.status().message()), "deadlock: stage 0 waits at 0NORM- (action 1) for stage 1");
}

TEST_F(TwoStages, MismatchedMicrobatchesAndMissingNeighboursAreErrors) {
  const auto crossed = Run("0SF+0 0SF-0", "1RF+1 1RF-1");
  ASSERT_FALSE(crossed.ok());
  EXPECT_THAT(std::string(crossed.status().message()), HasSubstr("1RF+1 meets 0SF+0 of stage 0"));
  const auto outside = Run("0RF+0 0RF-0", "");
  ASSERT_FALSE(outside.ok());
  EXPECT_THAT(std::string(outside.status().message()), HasSubstr("no neighbour"));
}

// There are two ranks with two virtual stages each. Stages 0 and 2 are on rank 0.
class TwoChunks : public ::testing::Test {
 protected:
  absl::StatusOr<Simulation> Run(const std::string& first, const std::string& second, const ParallelLayout& layout) {
    const int32_t pieces = PipelineOf(layout).pieces();
    const std::vector<StageContext> contexts =
        PipelineContexts(model_, layout, 1, 2, std::vector<int32_t>(static_cast<size_t>(pieces), 4 / pieces));
    return Simulate({Parse(first), Parse(second)}, contexts, CostModel(RoundProfile(model_), model_, layout, 1, 2));
  }
  std::string ErrorOf(const std::string& first, const std::string& second) {
    return std::string(Run(first, second, kInterleaved).status().message());
  }

  static inline const ParallelLayout kInterleaved{.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved};
  const ModelSpec model_ = TinyModel(4);
};

TEST_F(TwoChunks, TransfersBetweenTwoRanksShareALink) {
  // The x of stages 0 and 2 and the gradient of stage 2 go from rank 0 to rank 1. The gradient of stage 1 goes to rank 0.
  const auto simulation =
      Run("0SF+0 2SF+0 2SB+0 0RB+0 0SF-0 2SF-0 2SB-0 0RB-0", "1RF+0 3RF+0 1RB+0 1SB+0 1RF-0 3RF-0 1RB-0 1SB-0", kInterleaved);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  const std::vector<ActionSpan>& spans = simulation->stages[0].spans;
  EXPECT_EQ(spans[0].transfer_end, Nanos(640));
  EXPECT_EQ(spans[1].transfer_begin, Nanos(640));
  EXPECT_EQ(spans[2].transfer_end, Nanos(3 * 640));
  EXPECT_EQ(spans[3].transfer_end, Nanos(640));
}

TEST_F(TwoChunks, TheLastRankWaitsForTheFirstAndTheFirstForTheLast) {
  EXPECT_THAT(ErrorOf("2RF+0 2RF-0 0SF+0", "1RF+0 1RF-0 1SF+0"),
              HasSubstr("stage 0 waits at 2RF-0 (action 1) for stage 1; stage 1 waits at 1RF-0 (action 1) for stage 0"));
}

TEST_F(TwoChunks, ActionsAreOfStagesThatAreThere) {
  EXPECT_THAT(ErrorOf("1SF+0", ""), HasSubstr("1SF+0 (action 0) is of a virtual stage that is elsewhere"));
  EXPECT_THAT(ErrorOf("", "3SF+0"), HasSubstr("3SF+0 (action 0) has no neighbour stage to meet"));
  const auto turn = Run("", "1SF+0", {.pp = 2, .schedule = ScheduleKind::kZeroBubbleV});
  EXPECT_THAT(std::string(turn.status().message()), HasSubstr("has its neighbour stage on the same rank"));
}

TEST_F(TwoChunks, TheTwoCopiesOfALayerAreReducedTogether) {
  const ParallelLayout chimera{.pp = 2, .schedule = ScheduleKind::kChimera};
  // Layer 0 is in stage 0 on rank 0 and in stage 2 on rank 1. Rank 1 takes 500 ns longer.
  const auto simulation = Run("0DP+:0 0DP-:0", "2F0:0.attn 2DP+:0 2DP-:0", chimera);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_EQ(simulation->stages[0].spans[0].transfer_begin, Nanos(500));
  EXPECT_EQ(simulation->stages[0].end, simulation->stages[1].end);
  const auto alone = Run("0DP+:0 0DP-:0", "", chimera);
  EXPECT_THAT(std::string(alone.status().message()), HasSubstr("stage 0 waits at 0DP-:0 (action 1) for stage 1"));
}

}  // namespace
}  // namespace lynx
