#include "planner/report/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "planner/program/memory_model.h"
#include "tests/planner/plan/plan_fixtures.h"
#include "tests/planner/report/report_fixtures.h"

namespace lynx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StageTimeline TimelineOfText(const std::string& text, const std::vector<ActionSpan>& spans) {
  return TimelineOf(Parse(text), spans);
}

TEST(Timeline, PutsWaitsOnTheComputeLaneAndTransfersOnTheirOwn) {
  const StageTimeline timeline = TimelineOfText("0F3:1.attn 0AR+3:1.attn 0R2:1.attn(ln1) 0AR-3:1.attn",
                                                {{Nanos(0), Nanos(10)},
                                                 {Nanos(10), Nanos(10), Nanos(12), Nanos(40)},
                                                 {Nanos(10), Nanos(18), Nanos(0), Nanos(0), Nanos(8)},
                                                 {Nanos(18), Nanos(40)}});
  EXPECT_THAT(timeline.lanes, ElementsAre("compute", "communication"));
  ASSERT_EQ(timeline.spans.size(), 4u);
  EXPECT_EQ(timeline.spans[0].kind, SpanKind::kForward);
  EXPECT_EQ(timeline.spans[1].kind, SpanKind::kRecomputeHidden);
  EXPECT_EQ(timeline.spans[1].end, Nanos(18));
  EXPECT_EQ(timeline.spans[2].kind, SpanKind::kTensorTransfer);
  EXPECT_EQ(timeline.spans[2].lane, 1);
  EXPECT_EQ(timeline.spans[2].begin, Nanos(12));
  EXPECT_EQ(timeline.spans[2].end, Nanos(40));
  EXPECT_EQ(timeline.spans[3].kind, SpanKind::kCommunicationWait);
  EXPECT_EQ(timeline.spans[3].end - timeline.spans[3].begin, Nanos(22));
}

// In a simulation, the start of a transfer takes no time. In a measured step it takes some time, which counts in the same
// category as the wait for the transfer.
TEST(Timeline, MeasuredStartsCountWhereTheirWaitsDo) {
  const StageTimeline timeline = TimelineOfText("0AR+3:1.attn 0SF+3 0NORM+", {{Nanos(0), Nanos(3), Nanos(2), Nanos(40)},
                                                                              {Nanos(3), Nanos(5), Nanos(4), Nanos(9)},
                                                                              {Nanos(5), Nanos(9), Nanos(9), Nanos(10)}});
  const Breakdown breakdown = BreakdownOf(timeline);
  EXPECT_EQ(breakdown[static_cast<size_t>(SpanKind::kCommunicationWait)], Nanos(3));
  EXPECT_EQ(breakdown[static_cast<size_t>(SpanKind::kStall)], Nanos(2));
  EXPECT_EQ(breakdown[static_cast<size_t>(SpanKind::kOptimizer)], Nanos(4)) << "the sum of squares";
}

TEST(Timeline, SplitsRecomputationThatIsHiddenInPart) {
  const StageTimeline timeline = TimelineOfText("0R2:1.attn(ln1)", {{Nanos(5), Nanos(25), Nanos(0), Nanos(0), Nanos(6)}});
  ASSERT_EQ(timeline.spans.size(), 2u);
  EXPECT_EQ(timeline.spans[0].kind, SpanKind::kRecomputeHidden);
  EXPECT_EQ(timeline.spans[0].end, Nanos(11));
  EXPECT_EQ(timeline.spans[1].kind, SpanKind::kRecomputeExposed);
  EXPECT_EQ(timeline.spans[1].begin, Nanos(11));
  EXPECT_EQ(timeline.spans[1].end, Nanos(25));
}

TEST(Timeline, GivesTransfersThatOverlapLanesOfTheirOwn) {
  const auto start = [](int64_t begin, int64_t end) { return ActionSpan{Nanos(0), Nanos(0), Nanos(begin), Nanos(end)}; };
  const StageTimeline timeline = TimelineOfText("0SF+0 0RB+0 0AR+0:1.attn", {start(0, 10), start(5, 15), start(10, 20)});
  EXPECT_THAT(timeline.lanes, ElementsAre("compute", "communication", "communication 2"));
  EXPECT_EQ(timeline.spans[0].lane, 1);
  EXPECT_EQ(timeline.spans[1].lane, 2);
  EXPECT_EQ(timeline.spans[2].lane, 1);
  EXPECT_EQ(timeline.spans[0].kind, SpanKind::kBoundaryTransfer);
}

TEST(Timeline, WaitingForAStageIsAStallAndForReplicasIsNot) {
  const StageTimeline timeline = TimelineOfText("1RF+0 1RF-0 1NORM+ 1NORM-", {{Nanos(0), Nanos(0), Nanos(3), Nanos(7)},
                                                                              {Nanos(0), Nanos(7)},
                                                                              {Nanos(7), Nanos(7), Nanos(7), Nanos(9)},
                                                                              {Nanos(7), Nanos(9)}});
  std::map<SpanKind, int> kinds;
  for (const TimelineSpan& span : timeline.spans) ++kinds[span.kind];
  EXPECT_EQ(kinds[SpanKind::kStall], 1);
  EXPECT_EQ(kinds[SpanKind::kCommunicationWait], 1);
  EXPECT_EQ(kinds[SpanKind::kDataTransfer], 1);
}

TEST(Timeline, BreakdownIsWhatTheSimulatorCounts) {
  const auto fixture = SmallStep();
  for (size_t i = 0; i < fixture->plan.stages.size(); ++i) {
    const StagePlan& stage = fixture->plan.stages[i];
    const StageTimes& times = fixture->step.simulation.stages[i];
    const StageTimeline timeline = TimelineOf(stage.program, times.spans);
    const Breakdown breakdown = BreakdownOf(timeline);
    const auto of = [&](SpanKind kind) { return breakdown[static_cast<size_t>(kind)]; };
    EXPECT_EQ(of(SpanKind::kForward), stage.forward);
    EXPECT_EQ(of(SpanKind::kBackward), stage.backward);
    EXPECT_EQ(of(SpanKind::kWeight), stage.weight);
    EXPECT_EQ(of(SpanKind::kOptimizer), stage.optimizer);
    EXPECT_EQ(of(SpanKind::kRecomputeHidden), stage.recompute_hidden);
    EXPECT_EQ(of(SpanKind::kRecomputeExposed), stage.recompute_exposed);
    EXPECT_EQ(of(SpanKind::kCommunicationWait), stage.communication_exposed);
    EXPECT_EQ(of(SpanKind::kStall), stage.stall);
    Nanos sum;
    for (const Nanos time : breakdown) sum += time;
    EXPECT_EQ(sum, times.end);
    std::map<int32_t, Nanos> free;
    for (const TimelineSpan& span : timeline.spans) {
      EXPECT_GE(span.begin, free[span.lane]) << "lane " << span.lane;
      free[span.lane] = span.end;
    }
  }
  EXPECT_GT(fixture->plan.stages[0].recompute_hidden.value, 0) << "the fixture should recompute in windows";
}

TEST(ActionMeaning, SaysWhatAnActionDoes) {
  EXPECT_EQ(ActionMeaning(*ParseAction("0R3:12.attn(ln1,qkv)")),
            "recomputation (ln1, qkv), layer 12, segment attn, microbatch 3");
  EXPECT_EQ(ActionMeaning(*ParseAction("0AR-3:12.mlp")), "wait for the all-reduce, layer 12, segment mlp, microbatch 3");
  EXPECT_EQ(ActionMeaning(*ParseAction("1F0:h.head")), "forward, head, segment head, microbatch 0");
  EXPECT_EQ(ActionMeaning(*ParseAction("0DP+:e")), "reduction of weight gradients over replicas, embedding");
  EXPECT_EQ(ActionMeaning(*ParseAction("0OPT")), "optimizer step");
}

TEST(ActionMeaning, KnowsEveryKindOfTheTable) {
  for (int kind = 0; kind < kActionKindCount; ++kind) {
    const std::string text = ActionMeaning({.kind = static_cast<ActionKind>(kind), .layer = 0, .ops = 1, .tensors = 1});
    EXPECT_THAT(text, testing::Not(testing::AnyOf(testing::StartsWith("computation"), testing::StartsWith("transfer"),
                                                  testing::StartsWith("wait for the transfer"))))
        << "kind " << kind << " has no words: " << text;
  }
}

TEST(StageMemory, AddsUpToWhatIsAllocated) {
  const auto fixture = SmallStep();
  for (size_t i = 0; i < fixture->plan.stages.size(); ++i) {
    const StagePlan& stage = fixture->plan.stages[i];
    const auto memory =
        MemoryOf(stage, fixture->plan.ContextOf(static_cast<int32_t>(i)), fixture->step.simulation.stages[i].spans);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(TotalOf(memory->peak), stage.arena + stage.states.total());
    Bytes most;
    for (const MemoryPoint& point : memory->points) most = std::max(most, TotalOf(point.live));
    EXPECT_EQ(most, stage.live_peak);
    EXPECT_GT(memory->peak[static_cast<size_t>(MemoryKind::kStored)].value, 0);
  }
}

// There is one layer on one stage. The layer's input is kept, and the norm is recomputed.
TEST(StageMemory, TellsStoredFromRecomputedAndPassing) {
  const StageContext context = TinyContext(TinyModel(1), {.tp = 1, .pp = 1, .dp = 1}, 1, 0);
  StagePlan stage;
  stage.program = Parse("0F0:e.embed 0F0:e.end 0F0:0.attn 0R0:0.attn(ln1) 0B0:0.end");
  std::vector<ActionSpan> times;
  for (int64_t i = 0; i < 5; ++i) times.push_back({Nanos(i * 10), Nanos(i * 10 + 10)});
  const auto memory = MemoryOf(stage, context, times);
  ASSERT_FALSE(memory.ok());
  EXPECT_THAT(std::string(memory.status().message()), HasSubstr("reads grad_ln1"));
  stage.program.pop_back();
  times.pop_back();
  const auto forward = MemoryOf(stage, context, times);
  ASSERT_TRUE(forward.ok()) << forward.status();
  const auto at = [&](size_t point, MemoryKind kind) { return forward->points[point].live[static_cast<size_t>(kind)]; };
  EXPECT_EQ(at(3, MemoryKind::kRecomputed), Bytes(768));  // ln1 has 640 bytes, and 768 bytes with padding
  EXPECT_EQ(at(3, MemoryKind::kStored), Bytes(768));      // the layer's input, which the recomputation reads
  EXPECT_GT(at(2, MemoryKind::kWorkspace).value, 0);      // qkv and similar tensors, which nothing reads later here
}

TEST(Thinned, KeepsEveryPeak) {
  std::vector<MemoryPoint> points;
  for (int64_t i = 0; i < 1000; ++i) {
    LiveBytes live{};
    live[static_cast<size_t>(MemoryKind::kStored)] = Bytes(i % 97 == 0 ? 1000 + i : i % 7);
    points.push_back({Nanos(i), live});
  }
  const std::vector<MemoryPoint> thinned = Thinned(points, Nanos(1000), 40);
  EXPECT_LE(thinned.size(), 40u);
  int peaks = 0;
  for (size_t i = 0; i < thinned.size(); ++i) {
    peaks += TotalOf(thinned[i].live) >= Bytes(1000);
    if (i > 0) EXPECT_LT(thinned[i - 1].begin, thinned[i].begin);
  }
  EXPECT_EQ(peaks, 11);
  EXPECT_EQ(Thinned(points, Nanos(1000), 1000).size(), 1000u);
}

TEST(PredictStep, KnowsThatNodesDiffer) {
  PlanRequest request = SmallRequest(kKiB * 1000);
  HardwareProfile slow = request.cluster.groups[0].profile;
  slow.flops_per_second /= 2;
  request.cluster.groups[0].nodes = 1;
  request.cluster.groups.push_back(request.cluster.groups[0]);
  request.cluster.groups[1].profile = slow;
  const auto fixture = PlannedStep(request);
  EXPECT_EQ(fixture->step.simulation.step, fixture->plan.step);
}

TEST(PredictStep, RefusesAPlanOfAnotherProfile) {
  auto fixture = SmallStep();
  fixture->request.cluster.groups[0].profile.intra_node.latency = Nanos(1'000'000);
  const auto step = PredictStep(fixture->request, fixture->plan);
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(step.status().message()), HasSubstr("give the profile and the cluster that the plan was made for"));
}

TEST(MemoryLimit, IsTheSmallerOfDeviceAndStatedActivations) {
  auto fixture = SmallStep();
  const Bytes pinned = fixture->plan.stages[0].states.total() + kKiB * 1000;
  EXPECT_EQ(MemoryLimitOf(fixture->request, fixture->plan, 0), pinned);
  fixture->request.cluster.groups[0].memory_per_device = pinned - Bytes(1);
  EXPECT_EQ(MemoryLimitOf(fixture->request, fixture->plan, 0), pinned - Bytes(1));
  fixture->request.spec.resources.activation_memory_per_rank = Bytes(0);
  fixture->request.cluster.groups[0].memory_per_device = kGiB;
  EXPECT_EQ(MemoryLimitOf(fixture->request, fixture->plan, 0), kGiB);
  fixture->request.cluster.groups[0].memory_per_device = Bytes(0);
  EXPECT_EQ(MemoryLimitOf(fixture->request, fixture->plan, 0), Bytes(0));
}

TEST(DetailRanges, CutTheMiddleOutOfLongSteps) {
  std::vector<StageTimeline> stages(2);
  for (StageTimeline& stage : stages) {
    for (int64_t i = 0; i < 300; ++i) stage.spans.push_back({.begin = Nanos(i * 10), .end = Nanos(i * 10 + 10)});
  }
  const auto whole = DetailRanges(stages, Nanos(3000), 600);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].end, Nanos(3000));
  const auto cut = DetailRanges(stages, Nanos(3000), 120);
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0].end, Nanos(400));     // 2 x 40 spans begin before this time
  EXPECT_EQ(cut[1].begin, Nanos(2800));  // 2 x 20 spans end after this time
  EXPECT_EQ(cut[1].end, Nanos(3000));
}

}  // namespace
}  // namespace lynx
