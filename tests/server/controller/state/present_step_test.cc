#include "server/controller/state/present_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/parts_fixture.h"

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PresentStep, AnEventIsStoredSentAndWrittenIntoTheRecord) {
  testing::PartsFixture parts;
  LiveJob& job = parts.AddJob("a");
  parts.At(5);
  parts.step.SetState(job, JobState::kPlanning, EventKind::kPlanning, "plans");
  parts.step.AddEvent(job, EventKind::kDrift, "slower");
  const std::vector<InsertEvent> inserted = parts.Take<InsertEvent>();
  ASSERT_EQ(inserted.size(), 2u);
  EXPECT_EQ(inserted[0].event.sequence, 1);
  EXPECT_EQ(inserted[0].event.state, JobState::kPlanning);
  EXPECT_EQ(inserted[0].event.time, NanosFromSeconds(5));
  EXPECT_EQ(inserted[1].event.sequence, 2);
  EXPECT_EQ(job.record.reason, "plans");
  EXPECT_EQ(job.record.events, 2);
  EXPECT_THAT(parts.step.TakeTouched(), ElementsAre(JobId("a")));
  EXPECT_EQ(parts.step.TakeNotices().at(JobId("a")).size(), 2u);
}

TEST(PresentStep, WhatIsTakenIsForgotten) {
  testing::PartsFixture parts;
  LiveJob& job = parts.AddJob("a");
  job.record.ranks = {{.where = {NodeId("n1"), 0}}, {.where = {NodeId("n2"), 0}}};
  parts.step.TellNodesOf(job);
  EXPECT_THAT(parts.step.TakeWorkers(), ElementsAre(NodeId("n1"), NodeId("n2")));
  EXPECT_THAT(parts.step.TakeWorkers(), IsEmpty());
  parts.step.Notify(JobId("a"));
  parts.step.Forget(JobId("a"));
  EXPECT_THAT(parts.step.TakeNotices(), IsEmpty());
}

TEST(PresentStepDeathTest, TimeDoesNotGoBack) {
  PresentStep step;
  step.Begin(Nanos(2), Nanos(2));
  EXPECT_DEATH(step.Begin(Nanos(1), Nanos(3)), "now");
}

}  // namespace
}  // namespace lynx::server
