#include "server/controller/jobs/waiting_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/parts_fixture.h"

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class WaitingJobsTest : public ::testing::Test {
 protected:
  LiveJob& AddJob(const std::string& id, int32_t priority = 0) {
    LiveJob& job = parts_.AddJob(id);
    JobSpec spec = *job.record.spec;
    spec.scheduling.priority = priority;
    job.record.spec = std::make_shared<const JobSpec>(spec);
    return job;
  }
  std::vector<int64_t> Ready() const {
    std::vector<int64_t> submissions;
    for (const auto& [queue, keys] : waiting_.ready()) {
      for (const auto& [priority, submission] : keys) submissions.push_back(submission);
    }
    return submissions;
  }
  testing::PartsFixture parts_;
  WaitingJobs waiting_{parts_.options, parts_.step, parts_.jobs};
};

TEST_F(WaitingJobsTest, PriorityThenAge) {
  for (LiveJob* job : {&AddJob("a"), &AddJob("b", 5), &AddJob("c", 5), &AddJob("d", -1)}) waiting_.Enqueue(*job);
  EXPECT_THAT(Ready(), ElementsAre(2, 3, 1, 4));
  waiting_.Dequeue(parts_.jobs.At(JobId("c")));
  EXPECT_THAT(Ready(), ElementsAre(2, 1, 4));
  EXPECT_THAT(parts_.jobs.active(), ElementsAre(JobId("c")));
  EXPECT_TRUE(parts_.step.queue_changed());
}

TEST_F(WaitingJobsTest, AHeldJobHasNoTurn) {
  LiveJob& job = AddJob("a");
  job.record.held = true;
  waiting_.Enqueue(job);
  EXPECT_THAT(Ready(), IsEmpty());
  ASSERT_EQ(job.record.pending.size(), 1u);
  EXPECT_EQ(job.record.pending[0].kind, "held");
  job.record.held = false;
  waiting_.SetReady(job);
  EXPECT_THAT(Ready(), ElementsAre(1));
}

TEST_F(WaitingJobsTest, ADependentJobHasNoTurn) {
  AddJob("a");
  LiveJob& job = AddJob("b");
  job.record.waits_for = {JobId("a")};
  waiting_.Enqueue(job);
  EXPECT_THAT(Ready(), IsEmpty());
  EXPECT_THAT(waiting_.dependents(), ElementsAre(JobId("b")));
  ASSERT_EQ(job.record.pending.size(), 1u);
  EXPECT_EQ(job.record.pending[0].text, "begins after small (a) has succeeded");
}

TEST_F(WaitingJobsTest, AJobThatHasTrainedComesBeforeThoseAfterIt) {
  LiveJob& first = AddJob("a");
  LiveJob& second = AddJob("b");
  EXPECT_FALSE(waiting_.SomeoneWaits());
  waiting_.Enqueue(second);
  EXPECT_TRUE(waiting_.SomeoneWaits());
  EXPECT_FALSE(waiting_.SomeoneIsBefore(first));
  waiting_.Enqueue(first);
  EXPECT_TRUE(waiting_.SomeoneIsBefore(second));
  first.queue.structural = true;  // a job that cannot begin anyway
  EXPECT_FALSE(waiting_.SomeoneIsBefore(second));
}

TEST_F(WaitingJobsTest, ThePlaceInTheLineEnds) {
  LiveJob& job = AddJob("a");
  job.record.generation = Generation(1);
  parts_.At(10);
  waiting_.Enqueue(job);
  EXPECT_EQ(job.queue.line_until, NanosFromSeconds(10) + parts_.options.return_timeout);
  job.queue.structural = true;
  parts_.step.QueueIsLookedAt();
  parts_.At(11);
  waiting_.LeaveLine();
  EXPECT_FALSE(parts_.step.queue_changed());
  parts_.At(131);
  waiting_.LeaveLine();
  EXPECT_EQ(job.queue.line_until, Nanos(0));
  EXPECT_TRUE(parts_.step.queue_changed());
}

TEST_F(WaitingJobsTest, AReasonIsToldOnce) {
  LiveJob& job = AddJob("a");
  waiting_.SetPending(job, {{"capacity", "waits"}, {"quota", "borrows"}});
  EXPECT_EQ(job.record.reason, "waits; borrows");
  EXPECT_THAT(parts_.step.TakeNotices(), ElementsAre(Pair(JobId("a"), IsEmpty())));
  waiting_.SetPending(job, {{"capacity", "waits"}, {"quota", "borrows"}});
  EXPECT_THAT(parts_.step.TakeNotices(), IsEmpty());
}

}  // namespace
}  // namespace lynx::server
