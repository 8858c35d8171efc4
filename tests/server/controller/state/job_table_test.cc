#include "server/controller/state/job_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/parts_fixture.h"

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobTableTest : public ::testing::Test {
 protected:
  void End(LiveJob& job, double seconds) {
    job.record.state = JobState::kSucceeded;
    job.record.ended = NanosFromSeconds(seconds);
    parts_.jobs.MarkEnded(job);
  }
  testing::PartsFixture parts_;
  JobTable& jobs_ = parts_.jobs;
};

TEST_F(JobTableTest, FindsAJobByIdKeyAndSubmission) {
  LiveJob& job = parts_.AddJob("a1");
  EXPECT_EQ(jobs_.Find(JobId("a1")), &job);
  EXPECT_EQ(jobs_.WithKey("key-a1"), &job);
  EXPECT_EQ(&jobs_.OfSubmission(1), &job);
  EXPECT_EQ(jobs_.NextSubmission(), 2);
  EXPECT_EQ(jobs_.Find(JobId("b")), nullptr);
  EXPECT_EQ(jobs_.WithKey("other"), nullptr);
}

TEST_F(JobTableTest, NothingRemainsOfARemovedJob) {
  LiveJob& job = parts_.AddJob("a1");
  jobs_.SetActive(job.record.id, true);
  jobs_.Remove(JobId("a1"));
  EXPECT_TRUE(jobs_.empty());
  EXPECT_EQ(jobs_.WithKey("key-a1"), nullptr);
  EXPECT_THAT(jobs_.unfinished(), IsEmpty());
  EXPECT_THAT(jobs_.active(), IsEmpty());
  EXPECT_THAT(jobs_.List(10, {}, nullptr), IsEmpty());
  EXPECT_EQ(jobs_.NextSubmission(), 2) << "numbers are not used twice";
}

TEST_F(JobTableTest, DropsTheJobThatEndedFirst) {
  for (const char* id : {"a", "b", "c"}) parts_.AddJob(id);
  End(jobs_.At(JobId("b")), 1);
  End(jobs_.At(JobId("c")), 2);
  End(jobs_.At(JobId("a")), 3);
  EXPECT_THAT(jobs_.DropOldest(3), IsEmpty());
  EXPECT_THAT(jobs_.DropOldest(1), ElementsAre(JobId("b"), JobId("c")));
  EXPECT_TRUE(jobs_.Contains(JobId("a")));
  EXPECT_EQ(jobs_.WithKey("key-b"), nullptr);
}

TEST_F(JobTableTest, AnEndedJobExcludesNoNode) {
  LiveJob& job = parts_.AddJob("a");
  jobs_.Exclude(job, NodeId("n1"), NanosFromSeconds(5));
  ASSERT_NE(jobs_.ExcludedBy(NodeId("n1")), nullptr);
  EXPECT_EQ(jobs_.ExcludedBy(NodeId("n1"))->at(JobId("a")), NanosFromSeconds(5));
  EXPECT_THAT(job.record.excluded, ElementsAre(NodeId("n1")));
  End(job, 6);
  EXPECT_EQ(jobs_.ExcludedBy(NodeId("n1")), nullptr);
  EXPECT_THAT(job.record.excluded, ElementsAre(NodeId("n1"))) << "the record still tells it";
}

TEST_F(JobTableTest, ANameMeansTheAskersNewestJobOrElseTheNewestOfAll) {
  parts_.AddJob("a1").record.owner = "alice";
  parts_.AddJob("a2").record.owner = "alice";
  parts_.AddJob("b1").record.owner = "bob";
  parts_.AddJob("l1").record.owner = "local";
  parts_.AddJob("b2").record.owner = "bob";
  EXPECT_EQ(*jobs_.Resolve("small", "alice"), JobId("a2"));
  EXPECT_EQ(*jobs_.Resolve("small", "carol"), JobId("b2"));
  EXPECT_EQ(*jobs_.Resolve("small", ""), JobId("b2"));
  EXPECT_EQ(*jobs_.Resolve("small", "local"), JobId("b2")) << "on a server without TLS everybody is local";
  EXPECT_EQ(*jobs_.Resolve("b1", "alice"), JobId("b1")) << "an id is an id";
}

TEST_F(JobTableTest, ListsTheJobsOfOneOwner) {
  parts_.AddJob("a1").record.owner = "alice";
  parts_.AddJob("b1").record.owner = "bob";
  LiveJob& ended = parts_.AddJob("a2");
  ended.record.owner = "alice";
  End(ended, 1);
  const auto ids = [&](const std::vector<JobState>& states, const std::string& owner) {
    std::vector<std::string> found;
    for (const JobRecord* job : jobs_.List(10, states, nullptr, owner)) found.push_back(job->id.value);
    return found;
  };
  EXPECT_THAT(ids({}, "alice"), ElementsAre("a2", "a1"));
  EXPECT_THAT(ids({JobState::kQueued}, "alice"), ElementsAre("a1")) << "those that have not ended are looked up elsewhere";
  EXPECT_THAT(ids({}, "bob"), ElementsAre("b1"));
  EXPECT_THAT(ids({}, ""), ElementsAre("a2", "b1", "a1"));
  EXPECT_THAT(ids({}, "carol"), IsEmpty());
}

TEST_F(JobTableTest, ResolvesIdThenNewestNameThenPrefix) {
  parts_.AddJob("abc1", "train");
  parts_.AddJob("abd2", "train");
  parts_.AddJob("train", "other");
  EXPECT_EQ(*jobs_.Resolve("train", ""), JobId("train"));
  EXPECT_EQ(*jobs_.Resolve("other", ""), JobId("train"));
  EXPECT_EQ(*jobs_.Resolve("abc", ""), JobId("abc1"));
  EXPECT_THAT(std::string(jobs_.Resolve("ab", "").status().message()), HasSubstr("begins the ids of several jobs"));
  EXPECT_EQ(jobs_.Resolve("x", "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(jobs_.Resolve("", "").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobTableTest, ListsTheNewestFirst) {
  for (const char* id : {"a", "b", "c", "d"}) parts_.AddJob(id);
  End(jobs_.At(JobId("c")), 1);
  const auto ids = [](const std::vector<const JobRecord*>& records) {
    std::vector<std::string> texts;
    for (const JobRecord* record : records) texts.push_back(record->id.value);
    return texts;
  };
  EXPECT_THAT(ids(jobs_.List(3, {}, nullptr)), ElementsAre("d", "c", "b"));
  EXPECT_THAT(ids(jobs_.List(3, {JobState::kQueued}, nullptr)), ElementsAre("d", "b", "a"));
  EXPECT_THAT(ids(jobs_.List(3, {JobState::kSucceeded}, nullptr)), ElementsAre("c"));
  EXPECT_THAT(ids(jobs_.List(9, {}, &jobs_.At(JobId("c")).record)), ElementsAre("b", "a"));
}

}  // namespace
}  // namespace lynx::server
