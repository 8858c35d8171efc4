#include "server/health/trace_assembly.h"

#include <gtest/gtest.h>

#include "planner/report/step_trace.h"
#include "tests/server/controller/controller_fixture.h"

namespace lynx::server {
namespace {

using testing::Cluster;
using testing::MakeSpec;

// Returns a report of `count` actions of a program with `actions` actions, from action number `first` on. All five times of an
// action are equal to the action's number.
TraceReport Part(int64_t step, int32_t actions, int32_t first, int32_t count) {
  TraceReport part{.step = step, .actions = actions, .first = first};
  for (int32_t i = first; i < first + count; ++i) part.times.insert(part.times.end(), kTimesPerAction, i);
  return part;
}

TEST(TraceAssembly, IsWholeWithTheLastPartOfTheLastStage) {
  TraceAssembly traces(2);
  EXPECT_FALSE(traces.Add(1, Part(0, 3, 0, 2)));
  EXPECT_FALSE(traces.Add(0, Part(0, 2, 0, 2)));
  const auto stages = traces.Add(1, Part(0, 3, 2, 1));
  ASSERT_TRUE(stages);
  ASSERT_EQ(stages->size(), 2u);
  EXPECT_EQ((*stages)[0], Part(0, 2, 0, 2).times);
  EXPECT_EQ((*stages)[1], Part(0, 3, 0, 3).times);
}

TEST(TraceAssembly, AStageMayBeAStepAhead) {
  TraceAssembly traces(2);
  EXPECT_FALSE(traces.Add(0, Part(0, 1, 0, 1)));
  EXPECT_FALSE(traces.Add(0, Part(1, 1, 0, 1)));
  EXPECT_TRUE(traces.Add(1, Part(0, 1, 0, 1)));
  EXPECT_TRUE(traces.Add(1, Part(1, 1, 0, 1)));
}

TEST(TraceAssembly, PartsWithAGapMakeNoTrace) {
  TraceAssembly traces(1);
  EXPECT_FALSE(traces.Add(0, Part(0, 4, 2, 2))) << "the server began in the middle";
  EXPECT_FALSE(traces.Add(0, Part(1, 4, 0, 1)));
  EXPECT_FALSE(traces.Add(0, Part(1, 4, 2, 2)));
  EXPECT_FALSE(traces.Add(0, Part(2, 4, 0, 2)));
  EXPECT_FALSE(traces.Add(0, Part(2, 5, 2, 2))) << "of another program";
  EXPECT_TRUE(traces.Add(0, Part(3, 4, 0, 4)));
}

TEST(TraceAssembly, ForgetsTheOldestOfManyThatNeverBecomeWhole) {
  TraceAssembly traces(2);
  for (int64_t step = 0; step < 6; ++step) EXPECT_FALSE(traces.Add(0, Part(step, 1, 0, 1)));
  EXPECT_FALSE(traces.Add(1, Part(0, 1, 0, 1)));
  EXPECT_TRUE(traces.Add(1, Part(5, 1, 0, 1)));
}

TEST(ControllerTraces, KeepsTheNewestStepOfTheRanksThatStandForTheirStages) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId job = cluster.Run(MakeSpec("a", 4, 4), {.tp = 2, .pp = 2});
  EXPECT_EQ(cluster.TraceOf(job), nullptr);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const int64_t number = 10 + rank;
    cluster.Say(job, rank, TraceReport{.step = 1, .actions = 1, .first = 0, .times = {number, 0, 0, 0, 0}});
  }
  const StepTrace* trace = cluster.TraceOf(job);
  ASSERT_NE(trace, nullptr);
  EXPECT_EQ(trace->step, 1);
  EXPECT_EQ(trace->generation, cluster.Record(job).generation);
  EXPECT_EQ(trace->plan_digest, cluster.Record(job).plan_digest);
  EXPECT_EQ(trace->stages, (std::vector<std::vector<int64_t>>{{10, 0, 0, 0, 0}, {12, 0, 0, 0, 0}}));
}

}  // namespace
}  // namespace lynx::server
