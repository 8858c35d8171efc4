#include "planner/report/step_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "planner/report/chrome_trace.h"
#include "tests/planner/plan/plan_fixtures.h"
#include "tests/planner/report/report_fixtures.h"

namespace lynx {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

bool Same(const ActionSpan& a, const ActionSpan& b) {
  return a.begin == b.begin && a.end == b.end && a.transfer_begin == b.transfer_begin && a.transfer_end == b.transfer_end &&
         a.hidden == b.hidden;
}

// Returns the predicted spans, changed as if they had been measured. All spans and transfers are later by `late`. No transfer
// begins before the action that starts it.
std::vector<ActionSpan> LikeMeasured(const Program& program, const StageTimes& times, Nanos late) {
  std::vector<ActionSpan> spans = times.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    spans[i].begin += late;
    spans[i].end += late;
    if (InfoOf(program[i].kind).phase != Phase::kStart) continue;
    spans[i].transfer_begin = std::max(spans[i].transfer_begin, times.spans[i].begin) + late;
    spans[i].transfer_end = std::max(spans[i].transfer_begin, times.spans[i].transfer_end + late);
  }
  return spans;
}

MeasuredStep Measured(const ReportFixture& fixture, const std::vector<Nanos>& late) {
  std::vector<std::vector<ActionSpan>> stages;
  for (size_t s = 0; s < fixture.plan.stages.size(); ++s) {
    stages.push_back(LikeMeasured(fixture.plan.stages[s].program, fixture.step.simulation.stages[s], late[s]));
  }
  return AlignStages(fixture.plan, 7, std::move(stages));
}

TEST(StepTrace, TracesTheFirstStepsThenFewerThenEveryFourThousandth) {
  std::vector<int64_t> traced;
  for (int64_t nth = 1; nth <= 20'000; ++nth) {
    if (IsTracedStep(nth)) traced.push_back(nth);
  }
  EXPECT_THAT(traced, ::testing::ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384));
}

TEST(StepTrace, OneRankTracesForEachPipelineRank) {
  const ParallelLayout layout{.tp = 2, .pp = 3, .dp = 2};
  std::set<int32_t> stages;
  int tracing = 0;
  for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const RankCoordinates coordinates = CoordinatesOf(layout, rank);
    if (!TracesForItsStage(coordinates)) continue;
    ++tracing;
    stages.insert(coordinates.stage);
  }
  EXPECT_EQ(tracing, 3);
  EXPECT_EQ(stages.size(), 3u);
}

TEST(StepTrace, TimesComeBackAsTheSpansThatTheyWere) {
  const auto fixture = SmallStep();
  const Program& program = fixture->plan.stages[0].program;
  const std::vector<ActionSpan> spans = LikeMeasured(program, fixture->step.simulation.stages[0], Nanos(1000));
  const auto back = SpansOfTrace(program, TraceTimes(spans));
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), spans.size());
  for (size_t i = 0; i < spans.size(); ++i) EXPECT_TRUE(Same((*back)[i], spans[i])) << ActionText(program[i]);
}

TEST(StepTrace, TimesThatAreNotTheProgramsAreRefused) {
  const Program program = Parse("0F3:1.attn 0AR+3:1.attn 0R2:1.attn(ln1) 0AR-3:1.attn");
  const std::vector<int64_t> good = {0, 10, 0, 0, 0, 0, 1, 2, 30, 0, 0, 8, 0, 0, 8, 0, 22, 0, 0, 0};
  ASSERT_TRUE(SpansOfTrace(program, good).ok());
  const auto refused = [&](size_t at, int64_t value) {
    std::vector<int64_t> bad = good;
    bad[at] = value;
    return std::string(SpansOfTrace(program, bad).status().message());
  };
  EXPECT_THAT(refused(1, -1), HasSubstr("action 0 that is negative"));
  EXPECT_THAT(refused(1, kMaxTracedStep.value + 1), HasSubstr("beyond"));
  EXPECT_THAT(refused(8, kMaxTracedStep.value), HasSubstr("is longer than"));
  EXPECT_THAT(refused(3, 5), HasSubstr("a transfer for action 0, 0F3:1.attn, which starts none"));
  EXPECT_THAT(refused(14, 9), HasSubstr("hides more of action 2"));
  EXPECT_THAT(refused(4, 1), HasSubstr("hides more of action 0"));
  const auto few = SpansOfTrace(program, std::vector<int64_t>(15));
  EXPECT_THAT(std::string(few.status().message()), HasSubstr("has 15 times, but a program of 4 actions needs 20"));
}

// The clocks of two stages may differ by seconds. This must not change how the spans of the stages lie relative to each other.
TEST(StepTrace, StagesMeetWhereTheWorldsSumCompletes) {
  const auto fixture = SmallStep();
  const MeasuredStep together = Measured(*fixture, {Nanos(0), Nanos(0)});
  const MeasuredStep apart = Measured(*fixture, {Nanos(0), Nanos(5'000'000'000)});
  EXPECT_EQ(together.end, fixture->step.simulation.step);
  EXPECT_EQ(apart.end, together.end + Nanos(5'000'000'000)) << "the step began on the stage that was asked first";
  for (size_t i = 0; i < together.stages[0].size(); ++i) {
    ASSERT_EQ(apart.stages[0][i].begin, together.stages[0][i].begin + Nanos(5'000'000'000));
  }
  for (size_t i = 0; i < together.stages[1].size(); ++i) {
    ASSERT_EQ(apart.stages[1][i].begin, together.stages[1][i].begin + Nanos(5'000'000'000));
  }
}

TEST(StepTrace, TheTableHasMeasuredAndPredictedOfEachStage) {
  const auto fixture = SmallStep();
  const std::string table = MeasuredTable(fixture->plan, Measured(*fixture, {Nanos(0), Nanos(0)}), &fixture->step.simulation);
  EXPECT_THAT(table, HasSubstr("step 8 took "));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2 + 1 + 4) << table;
  EXPECT_THAT(table, HasSubstr("predicted"));
  const std::string alone = MeasuredTable(fixture->plan, Measured(*fixture, {Nanos(0), Nanos(0)}), nullptr);
  EXPECT_EQ(std::count(alone.begin(), alone.end(), '\n'), 2 + 1 + 2) << alone;
}

TEST(MeasuredChromeTrace, ShowsEachStageMeasuredAboveItsPrediction) {
  const auto fixture = SmallStep();
  const MeasuredStep measured = Measured(*fixture, {Nanos(0), Nanos(0)});
  const auto text = MeasuredChromeTrace("small", fixture->plan, measured, &fixture->step.simulation);
  ASSERT_TRUE(text.ok()) << text.status();
  const json trace = json::parse(text->json);
  std::map<int, std::string> processes;
  std::map<int, int> slices, flows;
  for (const json& event : trace["traceEvents"]) {
    const int pid = event["pid"];
    if (event["name"] == "process_name") processes[pid] = event["args"]["name"];
    if (event["ph"] == "X") ++slices[pid];
    if (event["ph"] == "f") ++flows[pid];
  }
  ASSERT_EQ(processes.size(), 4u);
  EXPECT_THAT(processes[1], HasSubstr("measured stage 0"));
  EXPECT_THAT(processes[2], HasSubstr("predicted stage 0"));
  EXPECT_THAT(processes[3], HasSubstr("measured stage 1"));
  EXPECT_EQ(slices[1], slices[2]) << "what was measured here is what was predicted";
  EXPECT_EQ(flows[3], flows[4]);
  EXPECT_GT(flows[1], 0);
  EXPECT_EQ(trace["otherData"]["times"], "measured, of step 8; below each stage as it was predicted");
  const auto alone = MeasuredChromeTrace("small", fixture->plan, measured, nullptr);
  EXPECT_THAT(alone->json, ::testing::Not(HasSubstr("predicted stage")));
}

// A rank may begin to wait for a transfer before its peers do. The transfer then begins during this wait.
TEST(MeasuredChromeTrace, LeadsFromATransferThatBeginsDuringTheWaitForIt) {
  const auto fixture = SmallStep();
  MeasuredStep measured = Measured(*fixture, {Nanos(0), Nanos(0)});
  const Program& program = fixture->plan.stages[0].program;
  const auto flows = [&] {
    const json trace = json::parse(MeasuredChromeTrace("small", fixture->plan, measured, nullptr)->json);
    return std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(),
                         [](const json& event) { return event["ph"] == "f" && event["pid"] == 1; });
  };
  const auto before = flows();
  int moved = 0;
  for (size_t i = 0; i + 1 < program.size(); ++i) {
    ActionSpan& start = measured.stages[0][i];
    const ActionSpan& wait = measured.stages[0][i + 1];
    if (program[i].kind != ActionKind::kAllReduceStart || wait.end - wait.begin < Nanos(10)) continue;
    start.transfer_begin = wait.begin + Nanos(5);
    ++moved;
  }
  ASSERT_GT(moved, 0);
  EXPECT_EQ(flows(), before);
}

}  // namespace
}  // namespace lynx
