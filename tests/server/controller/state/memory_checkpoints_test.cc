#include "server/controller/state/memory_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/parts_fixture.h"

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MemoryCheckpoints, NodesAreToldWhichJobsHaveEnded) {
  testing::PartsFixture parts;
  MemoryCheckpoints checkpoints(parts.step, parts.jobs);
  LiveNode& node = parts.AddNode("n1", 1, 1);
  LiveJob& job = parts.AddJob("a");
  parts.step.TakeWorkers();

  checkpoints.Note(node, {JobId("a")});
  EXPECT_THAT(checkpoints.EndedOf(node), IsEmpty());
  EXPECT_THAT(parts.step.TakeWorkers(), IsEmpty());

  job.record.state = JobState::kFailed;
  checkpoints.TellHoldersOf(job);
  EXPECT_THAT(parts.step.TakeWorkers(), ElementsAre(NodeId("n1")));
  EXPECT_THAT(checkpoints.EndedOf(node), ElementsAre(JobId("a")));
}

TEST(MemoryCheckpoints, AJobThatTheServerDoesNotKnowHasEnded) {
  testing::PartsFixture parts;
  MemoryCheckpoints checkpoints(parts.step, parts.jobs);
  LiveNode& node = parts.AddNode("n1", 1, 1);
  parts.step.TakeWorkers();
  checkpoints.Note(node, {JobId("old")});
  EXPECT_THAT(checkpoints.EndedOf(node), ElementsAre(JobId("old")));
  EXPECT_THAT(parts.step.TakeWorkers(), ElementsAre(NodeId("n1")));
}

TEST(MemoryCheckpoints, AForgottenNodeIsNotTold) {
  testing::PartsFixture parts;
  MemoryCheckpoints checkpoints(parts.step, parts.jobs);
  LiveNode& node = parts.AddNode("n1", 1, 1);
  LiveJob& job = parts.AddJob("a");
  checkpoints.Note(node, {JobId("a")});
  checkpoints.Forget(node);
  parts.step.TakeWorkers();
  checkpoints.TellHoldersOf(job);
  EXPECT_THAT(parts.step.TakeWorkers(), IsEmpty());
  EXPECT_THAT(node.copies, IsEmpty());
}

}  // namespace
}  // namespace lynx::server
