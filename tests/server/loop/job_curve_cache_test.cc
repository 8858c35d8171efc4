#include "server/loop/job_curve_cache.h"

#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/server/store/full_disk.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

constexpr Nanos kBegin{1'000'000'000};

class JobCurveCacheTest : public ::testing::Test {
 protected:
  JobCurveCacheTest() {
    std::string pattern = ::testing::TempDir() + "lynx_curves_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    absl::StatusOr<std::unique_ptr<Store>> store = OpenStore("", directory_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    book_ = std::make_unique<JobCurveCache>(*store_);
    job_.state = JobState::kRunning;
    job_.generation = Generation(1);
    EXPECT_TRUE(store_->Commit({InsertJob{job_}}).ok());
  }
  ~JobCurveCacheTest() override { std::filesystem::remove_all(directory_); }

  void Step(int64_t step) {
    book_->Step(job_, {.job = job_.id, .step = {.step = step, .loss = 1, .tokens = 1, .duration = Nanos(1)}}, Nanos(step));
  }
  void Write(Nanos now) {
    book_->Write(now, [&](const JobId& id) { return known_ && id == job_.id ? &job_ : nullptr; });
  }
  size_t Stored() { return store_->LoadCurves(job_.id)->steps().size(); }

  std::string directory_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<JobCurveCache> book_;
  JobRecord job_ = MakeJob(1);
  bool known_ = true;
};

TEST_F(JobCurveCacheTest, OfAJobThatTrainsTheyAreWrittenNowAndThen) {
  Step(0);
  Write(kBegin);
  Write(kBegin + JobCurveCache::kWriteEvery - Nanos(1));
  EXPECT_EQ(Stored(), 0u);
  EXPECT_EQ(book_->Of(job_.id)->steps().size(), 1u) << "but told at once";
  Write(kBegin + JobCurveCache::kWriteEvery);
  EXPECT_EQ(Stored(), 1u);
}

TEST_F(JobCurveCacheTest, OfAJobThatHasEndedAtOnceAndThenNotHeldAnyMore) {
  Step(0);
  job_.state = JobState::kSucceeded;
  Write(kBegin);
  EXPECT_EQ(Stored(), 1u);
  ASSERT_TRUE(store_->Commit({DeleteJob{job_.id}}).ok());
  EXPECT_TRUE(book_->Of(job_.id)->empty()) << "told from the store";
}

TEST_F(JobCurveCacheTest, AnotherServerGoesOnWithThem) {
  Step(0);
  book_->WriteAll();
  book_ = std::make_unique<JobCurveCache>(*store_);
  Step(1);
  book_->Evaluated(job_, {.job = job_.id, .loss = 2});
  const absl::StatusOr<JobCurves> curves = book_->Of(job_.id);
  EXPECT_EQ(curves->steps().size(), 2u);
  EXPECT_EQ(curves->evaluations().size(), 0u) << "no evaluation without steps done";
  job_.progress.validation_step = 2;
  book_->Evaluated(job_, {.job = job_.id, .loss = 2});
  EXPECT_EQ(book_->Of(job_.id)->evaluations().size(), 1u);
}

TEST_F(JobCurveCacheTest, WhatCannotBeWrittenStaysDue) {
  Step(0);
  job_.state = JobState::kFailed;
  for (int64_t i = 0; i < 400; ++i) book_->Step(job_, {.job = job_.id, .step = {.step = 2 * i + 2}}, Nanos(1));
  StoreForTests::LimitPages(*store_, 1);
  Write(kBegin);
  EXPECT_EQ(Stored(), 0u);
  StoreForTests::LimitPages(*store_, 1 << 20);
  Write(kBegin);
  EXPECT_GT(Stored(), 300u);
}

TEST_F(JobCurveCacheTest, OfAJobThatNobodyKnowsNothingIsKept) {
  Step(0);
  known_ = false;
  ASSERT_TRUE(store_->Commit({DeleteJob{job_.id}}).ok());
  Write(kBegin);
  EXPECT_EQ(Stored(), 0u);
  EXPECT_TRUE(book_->Of(job_.id)->empty());
}

}  // namespace
}  // namespace lynx::server
