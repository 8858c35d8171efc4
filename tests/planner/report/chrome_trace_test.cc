#include "planner/report/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "tests/planner/report/report_fixtures.h"

namespace lynx {
namespace {

using nlohmann::json;

json TraceOf(const ReportFixture& fixture, size_t limit = 1'000'000) {
  const auto trace = ChromeTrace(fixture.step, limit);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return json::parse(trace->json);
}

int64_t NanosOf(const json& micros) { return std::llround(micros.get<double>() * 1000); }

// Checks the rules of the trace event format that viewers need.
TEST(ChromeTrace, KeepsTheFormatsRules) {
  const json trace = TraceOf(*SmallStep());
  std::set<std::pair<int, int>> named_threads;
  std::set<int> named_processes;
  for (const json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    ASSERT_TRUE(phase == "M" || phase == "X" || phase == "C" || phase == "s" || phase == "f") << event;
    ASSERT_TRUE(event["pid"].is_number_integer() && event["pid"].get<int>() > 0) << event;
    ASSERT_TRUE(event["name"].is_string() && !event["name"].get<std::string>().empty()) << event;
    if (phase == "M") {
      if (event["name"] == "process_name") named_processes.insert(event["pid"].get<int>());
      if (event["name"] == "thread_name") named_threads.insert({event["pid"].get<int>(), event["tid"].get<int>()});
      continue;
    }
    ASSERT_TRUE(event["ts"].is_number() && event["ts"].get<double>() >= 0) << event;
    EXPECT_TRUE(named_processes.count(event["pid"].get<int>())) << event;
    if (phase == "C") {
      for (const auto& value : event["args"]) ASSERT_TRUE(value.is_number_integer()) << event;
      continue;
    }
    EXPECT_TRUE(named_threads.count({event["pid"].get<int>(), event["tid"].get<int>()})) << event;
    ASSERT_TRUE(event["cat"].is_string()) << event;
    if (phase == "X") ASSERT_TRUE(event["dur"].is_number() && event["dur"].get<double>() >= 0) << event;
  }
  std::set<int> threads;
  for (const auto& [process, thread] : named_threads) EXPECT_TRUE(threads.insert(thread).second) << thread;
}

// Each compute lane has the actions of one strand. With kPairs, a strand has every second microbatch. With kNeighbours, strand
// 1 has the forward passes, and strand 2 has everything else.
TEST(ChromeTrace, PassesSideBySideHaveALaneEach) {
  for (const WeaveMode weave : {WeaveMode::kPairs, WeaveMode::kNeighbours}) {
    const json trace = TraceOf(*WovenStep(weave));
    std::map<int, std::string> lanes;
    for (const json& event : trace["traceEvents"]) {
      if (event["name"] == "thread_name") lanes[event["tid"].get<int>()] = event["args"]["name"];
    }
    std::map<std::string, int> slices;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] != "X" || !event.contains("args") || !event["args"].contains("microbatch")) continue;
      const std::string& lane = lanes[event["tid"].get<int>()];
      if (!lane.starts_with("compute")) continue;
      const bool pairs = weave == WeaveMode::kPairs;
      if (!pairs && (event["cat"] == "wait" || event["cat"] == "stall")) continue;  // either lane may have these
      ++slices[lane];
      const bool second = pairs ? event["args"]["microbatch"].get<int>() % 2 == 1 : event["cat"] != "forward";
      EXPECT_EQ(lane, second ? "compute, strand 2" : "compute, strand 1") << event;
    }
    EXPECT_GT(slices["compute, strand 1"], 0);
    EXPECT_GT(slices["compute, strand 2"], 0);
  }
}

// Slices of a thread must be nested or disjoint. A viewer does not show other slices.
TEST(ChromeTrace, SlicesOfAThreadNest) {
  const json trace = TraceOf(*SmallStep());
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> open;
  int nested = 0;
  std::map<int, int64_t> last;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const int64_t begin = NanosOf(event["ts"]), end = begin + NanosOf(event["dur"]);
    auto& stack = open[event["tid"].get<int>()];
    EXPECT_GE(begin, last[event["tid"].get<int>()]) << "not in order: " << event;
    last[event["tid"].get<int>()] = begin;
    while (!stack.empty() && stack.back().second <= begin) stack.pop_back();
    if (!stack.empty()) {
      EXPECT_LE(end, stack.back().second) << event;
      ++nested;
    }
    stack.push_back({begin, end});
  }
  EXPECT_GT(nested, 0) << "hidden parts stand inside their recompute actions";
}

TEST(ChromeTrace, FlowsLeadFromATransferToTheWaitForIt) {
  const json trace = TraceOf(*SmallStep());
  std::map<int, json> starts;
  int arrived = 0;
  const auto inside = [&](const json& flow, const std::string& sign) {
    for (const json& slice : trace["traceEvents"]) {
      if (slice["ph"] != "X" || slice["tid"] != flow["tid"]) continue;
      const int64_t begin = NanosOf(slice["ts"]), at = NanosOf(flow["ts"]);
      if (begin <= at && at < begin + NanosOf(slice["dur"]) &&
          slice["name"].get<std::string>().find(sign) != std::string::npos) {
        return true;
      }
    }
    return false;
  };
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "s") {
      EXPECT_TRUE(starts.emplace(event["id"].get<int>(), event).second) << "a flow's number stands for one flow";
    }
    if (event["ph"] != "f") continue;
    ++arrived;
    ASSERT_TRUE(starts.count(event["id"].get<int>())) << event;
    const json& start = starts[event["id"].get<int>()];
    EXPECT_EQ(event["bp"], "e");
    EXPECT_LE(NanosOf(start["ts"]), NanosOf(event["ts"]));
    EXPECT_TRUE(inside(start, "+")) << start;
    EXPECT_TRUE(inside(event, "-")) << event;
  }
  EXPECT_GT(arrived, 0);
  EXPECT_EQ(static_cast<size_t>(arrived), starts.size());
}

TEST(ChromeTrace, TellsEveryActionThatTakesTime) {
  const auto fixture = SmallStep();
  const json trace = TraceOf(*fixture);
  std::set<std::pair<int, std::string>> told;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") told.insert({event["pid"].get<int>(), event["name"]});
  }
  for (size_t s = 0; s < fixture->plan.stages.size(); ++s) {
    const auto& spans = fixture->step.simulation.stages[s].spans;
    for (size_t i = 0; i < spans.size(); ++i) {
      const Action& action = fixture->plan.stages[s].program[i];
      const bool waited = InfoOf(action.kind).phase == Phase::kWait;
      if (waited && spans[i].begin == spans[i].end) continue;
      EXPECT_TRUE(told.count({static_cast<int>(s) + 1, ActionText(action)})) << ActionText(action);
    }
  }
}

TEST(ChromeTrace, CountersReachThePeak) {
  const auto fixture = SmallStep();
  const json trace = TraceOf(*fixture);
  std::map<int, int64_t> most;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "C") continue;
    int64_t total = 0;
    for (const auto& value : event["args"]) total += value.get<int64_t>();
    most[event["pid"].get<int>()] = std::max(most[event["pid"].get<int>()], total);
  }
  for (size_t s = 0; s < fixture->plan.stages.size(); ++s) {
    EXPECT_EQ(most[static_cast<int>(s) + 1], fixture->plan.stages[s].live_peak.value);
  }
}

TEST(ChromeTrace, LongStepsAreCutAndSaidToBe) {
  const auto fixture = SmallStep();
  const auto whole = ChromeTrace(fixture->step);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->end, fixture->plan.step);
  const auto cut = ChromeTrace(fixture->step, 200);
  ASSERT_TRUE(cut.ok());
  EXPECT_LT(cut->end, fixture->plan.step);
  const json trace = json::parse(cut->json);
  int slices = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") continue;
    EXPECT_LT(NanosOf(event["ts"]), cut->end.value);
    slices += event["ph"] == "X";
  }
  EXPECT_GT(slices, 100);
  EXPECT_LT(slices, 300);
  EXPECT_EQ(trace["otherData"]["told_until_us"],
            std::to_string(cut->end.value / 1000) + "." + std::to_string(1000 + cut->end.value % 1000).substr(1));
}

TEST(ChromeTrace, SameStepSameBytes) { EXPECT_EQ(ChromeTrace(SmallStep()->step)->json, ChromeTrace(SmallStep()->step)->json); }

}  // namespace
}  // namespace lynx
