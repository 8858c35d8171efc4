#include "cli/connect/waiting_reason.h"

#include <gtest/gtest.h>

namespace lynx::cli {
namespace {

constexpr Nanos kSecond{1'000'000'000};

v1::Job Waiting(const std::string& kind, const std::string& text) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_reason(text);
  v1::PendingReason& reason = *job.add_pending();
  reason.set_kind(kind);
  reason.set_text(text);
  return job;
}

TEST(WaitingReason, IsSaidAfterSomeSecondsAndOnce) {
  WaitingReason why;
  const v1::Job job = Waiting("capacity", "waits for 2 devices; of 2 devices 0 are free");
  why.Said("waits for its turn");
  EXPECT_EQ(why.Due(job, kSecond * 100), "");
  EXPECT_EQ(why.Due(job, kSecond * 102), "") << "most begin before that";
  EXPECT_EQ(why.Due(job, kSecond * 103), job.reason());
  EXPECT_EQ(why.Due(job, kSecond * 1000), "") << "nothing has changed";
}

TEST(WaitingReason, WhatTheEventSaidIsNotRepeated) {
  WaitingReason why;
  const v1::Job job = Waiting("held", "is held");
  why.Said(job.reason());
  EXPECT_EQ(why.Due(job, kSecond), "");
  EXPECT_EQ(why.Due(job, kSecond * 100), "");
}

TEST(WaitingReason, AnotherKindIsSaidSoonerThanOtherNumbers) {
  WaitingReason why;
  const v1::Job four = Waiting("ahead", "4 jobs are ahead"), three = Waiting("ahead", "3 jobs are ahead"),
                first = Waiting("capacity", "waits for 2 devices");
  EXPECT_EQ(why.Due(four, kSecond), "");
  EXPECT_EQ(why.Due(four, kSecond * 10), four.reason());
  EXPECT_EQ(why.Due(three, kSecond * 21), "");
  EXPECT_EQ(why.Due(first, kSecond * 21), first.reason());
  EXPECT_EQ(why.Due(four, kSecond * 30), "") << "at most every ten seconds";
  EXPECT_EQ(why.Due(four, kSecond * 31), four.reason());
  EXPECT_EQ(why.Due(three, kSecond * 90), "");
  EXPECT_EQ(why.Due(three, kSecond * 91), three.reason()) << "numbers once a minute";
}

TEST(WaitingReason, AJobThatWaitsAgainIsNew) {
  WaitingReason why;
  v1::Job job = Waiting("capacity", "waits for 2 devices");
  EXPECT_EQ(why.Due(job, kSecond), "");
  job.set_state(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(why.Due(job, kSecond * 10), "") << "it waits no more";
  job.set_state(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(why.Due(job, kSecond * 20), "");
  EXPECT_EQ(why.Due(job, kSecond * 23), job.reason());
}

}  // namespace
}  // namespace lynx::cli
