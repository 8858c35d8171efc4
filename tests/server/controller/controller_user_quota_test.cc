// Tests the quotas of users within a queue: which jobs wait for them, which do not, which borrow devices and give them back,
// and the reasons that waiting jobs have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Answer;
using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::GiveWay;
using ::lynx::server::testing::kTwo;
using ::lynx::server::testing::MakeSpec;
using ::testing::HasSubstr;

JobSpec Spec(const std::string& name, int32_t ranks) {
  JobSpec spec = MakeSpec(name, ranks, ranks);
  spec.train.steps = 10'000;
  spec.scheduling.queue = "guests";
  return spec;
}

std::string KindsOf(const JobRecord& record) {
  std::string kinds;
  for (const PendingReason& reason : record.pending) kinds += (kinds.empty() ? "" : " ") + reason.kind;
  return kinds;
}

// Two nodes with two devices each. Jobs are in the queue "guests", in which each user may have two devices.
class UserQuotaTest : public ::testing::Test {
 protected:
  void Begin(bool may_borrow, int32_t quota = 0) {
    cluster_.SetQueue({.name = "guests", .quota = quota, .may_borrow = may_borrow, .user_quota = 2});
    cluster_.AddNode("n0");
    cluster_.AddNode("n1");
  }
  JobId Submit(const JobSpec& spec, const std::string& owner) { return cluster_.Submit(spec, "", owner); }
  // A job of the user that trains on two devices.
  JobId Train(const std::string& name, const std::string& owner) {
    const JobId job = Submit(Spec(name, 2), owner);
    cluster_.MeasureAll();
    Answer(cluster_, kTwo, 100);
    cluster_.AllReady(job);
    for (int64_t step = 0; step < 6; ++step) cluster_.StepAll(job, step);
    return job;
  }
  Cluster cluster_;
};

TEST_F(UserQuotaTest, AUserWhoHasTheQuotaWaitsAndHoldsUpNobodyElse) {
  Begin(false);
  const JobId first = Train("first", "alice");
  const JobId second = Submit(Spec("second", 1), "alice"), third = Submit(Spec("third", 1), "alice");
  EXPECT_EQ(cluster_.State(second), JobState::kQueued);
  EXPECT_EQ(KindsOf(cluster_.Record(second)), "quota");
  EXPECT_EQ(cluster_.Record(second).reason,
            "user alice has a quota of 2 devices in queue guests, which does not borrow; waits for 1 device of it");
  const JobId other = Submit(Spec("other", 2), "bob");
  EXPECT_EQ(cluster_.State(other), JobState::kPlanning) << "it is within the quota of its user";
  cluster_.RestartServer();
  for (const char* node : {"n0", "n1"}) {
    cluster_.AttachAgent(node);
    cluster_.AttachWorker(node);
  }
  cluster_.Settle();
  EXPECT_EQ(cluster_.State(second), JobState::kQueued);
  EXPECT_THAT(cluster_.Record(second).reason, HasSubstr("user alice has a quota of 2 devices")) << "it outlives the server";
  cluster_.Cancel(other);
  cluster_.Cancel(first);
  EXPECT_EQ(cluster_.State(second), JobState::kPlanning);
  EXPECT_EQ(cluster_.State(third), JobState::kPlanning);
}

TEST_F(UserQuotaTest, ASmallerJobDoesNotPassAnotherOfItsUser) {
  Begin(false);
  JobSpec one = Spec("one", 1);
  const JobId first = Submit(one, "alice");
  EXPECT_EQ(cluster_.State(first), JobState::kPlanning);
  const JobId large = Submit(Spec("large", 2), "alice"), small = Submit(Spec("small", 1), "alice");
  EXPECT_EQ(cluster_.State(large), JobState::kQueued);
  EXPECT_EQ(cluster_.State(small), JobState::kQueued) << "otherwise small jobs would starve it";
}

TEST_F(UserQuotaTest, AJobThatNeedsMoreThanItsUserMayHaveSaysSoAndHoldsUpNothing) {
  Begin(false);
  const JobId large = Submit(Spec("large", 3), "alice");
  EXPECT_EQ(KindsOf(cluster_.Record(large)), "structural");
  EXPECT_EQ(cluster_.Record(large).reason,
            "needs 3 devices, more than the quota of 2 of user alice in queue guests, which does not borrow");
  EXPECT_EQ(cluster_.State(Submit(Spec("small", 1), "alice")), JobState::kPlanning);
}

TEST_F(UserQuotaTest, ManyJobsThatNeedMoreThanTheirUserMayHaveHoldUpNothing) {
  Begin(false);
  for (int n = 0; n < 30; ++n) Submit(Spec("large", 3), "alice");
  const JobId small = Submit(Spec("small", 1), "alice");
  cluster_.MeasureAll();
  EXPECT_NE(cluster_.State(small), JobState::kQueued);
}

TEST_F(UserQuotaTest, AUserWhoBorrowsGivesBackToOneWithinTheQuota) {
  Begin(true);
  const JobId first = Train("first", "alice");
  const JobId borrower = Train("borrower", "alice");
  EXPECT_EQ(cluster_.State(borrower), JobState::kRunning) << "nobody else waits";
  const JobId own = Submit(Spec("own", 2), "alice");
  EXPECT_EQ(cluster_.Record(borrower).stop, StopKind::kNone) << "a user does not give back to the own jobs";
  EXPECT_THAT(cluster_.Record(own).reason, HasSubstr("would borrow: user alice has a quota of 2 devices in queue guests"));
  const JobId other = Submit(Spec("other", 2), "bob");
  EXPECT_EQ(cluster_.Record(borrower).stop, StopKind::kPreempt);
  EXPECT_EQ(cluster_.Record(first).stop, StopKind::kNone) << "it is within the quota of its user";
  GiveWay(cluster_, borrower, 7);
  EXPECT_EQ(cluster_.State(other), JobState::kPlanning);
}

TEST_F(UserQuotaTest, TheQueuesOwnQuotaHoldsToo) {
  Begin(false, 3);
  Train("first", "alice");
  const JobId other = Submit(Spec("other", 2), "bob");
  EXPECT_EQ(cluster_.State(other), JobState::kQueued);
  EXPECT_THAT(cluster_.Record(other).reason, HasSubstr("queue guests has a quota of 3 devices and does not borrow"));
}

TEST_F(UserQuotaTest, ItCountsInEachQueueForItself) {
  Begin(false);
  Train("first", "alice");
  JobSpec elsewhere = Spec("elsewhere", 2);
  elsewhere.scheduling.queue = "default";
  EXPECT_EQ(cluster_.State(Submit(elsewhere, "alice")), JobState::kPlanning);
}

TEST_F(UserQuotaTest, ManyJobsOfOneUserDoNotHideThoseOfOthers) {
  Begin(false);
  Train("first", "alice");
  for (int i = 0; i < 150; ++i) Submit(Spec("more", 1), "alice");
  EXPECT_EQ(cluster_.State(Submit(Spec("other", 2), "bob")), JobState::kPlanning);
}

TEST_F(UserQuotaTest, AnElasticJobKeepsToTheQuotaOfItsUser) {
  Begin(false);
  JobSpec spec = testing::Elastic(1, 4);
  spec.scheduling.queue = "guests";
  const JobId job = Submit(spec, "alice");
  cluster_.MeasureAll();
  ASSERT_EQ(cluster_.plans().size(), 1u);
  EXPECT_EQ(cluster_.plans().front().request.cluster.devices(), 2);
  Answer(cluster_, kTwo, 100);
  cluster_.AllReady(job);
  for (int64_t step = 0; step < 6; ++step) cluster_.StepAll(job, step);
  cluster_.Advance(10);
  cluster_.MeasureAll();
  EXPECT_TRUE(cluster_.plans().empty()) << "two more devices are free, but not for this user";
}

}  // namespace
}  // namespace lynx::server
