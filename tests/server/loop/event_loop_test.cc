#include "server/loop/event_loop.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/clock.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobSpec MakeSpec() {
  JobSpec spec;
  spec.name = "gpt";
  spec.model = {.layers = 2, .hidden = 32, .heads = 2, .seq = 16};
  spec.data.path = "/data/text";
  spec.train.steps = 10;
  spec.train.global_batch = 4;
  Normalize(spec);
  return spec;
}

// A clock that calls a function each time the owner thread asks for the time.
class HookedClock : public RealClock {
 public:
  Nanos Monotonic() const override {
    if (on_call) on_call(++calls);
    return RealClock::Monotonic();
  }
  mutable int calls = 0;             // calls by the owner thread
  std::function<void(int)> on_call;  // set before the owner thread starts
};

class LoopTest : public ::testing::Test {
 protected:
  LoopTest()
      : controller_({.wanted_shapes = [](const JobSpec&, const ClusterTopology&) { return std::vector<LayerShape>(); }}),
        loop_(
            {.queue_limit = 4, .tick = Nanos(5'000'000), .retry = Nanos(1)}, controller_, clock_,
            [this](const std::vector<Effect>& effects) { return Commit(effects); }, [this](Effect& effect) { Carry(effect); }) {
  }

  absl::Status Commit(const std::vector<Effect>& effects) {
    std::lock_guard lock(mutex_);
    ++commits_;
    if (!store_status_.ok()) return store_status_;
    committed_.insert(committed_.end(), effects.begin(), effects.end());
    batches_.push_back(effects);
    return absl::OkStatus();
  }
  void Carry(Effect& effect) {
    std::lock_guard lock(mutex_);
    // At this point the decision for this reply is in the store.
    if (auto* reply = std::get_if<Reply>(&effect)) {
      replies_.push_back(*reply);
      if (on_reply_) on_reply_();
    }
    committed_when_carried_.push_back(committed_.size());
    changed_.notify_all();
  }
  void SetStore(absl::Status status) {
    std::lock_guard lock(mutex_);
    store_status_ = std::move(status);
  }
  Reply Submit(const std::string& id) {
    std::unique_lock lock(mutex_);
    const size_t before = replies_.size();
    lock.unlock();
    EXPECT_TRUE(loop_.Post(JobSubmitted{++requests_, JobId(id), id, MakeSpec(), "digest"}));
    lock.lock();
    changed_.wait(lock, [&] { return replies_.size() > before; });
    return replies_.back();
  }
  size_t Inserted() {
    std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const Effect& effect : committed_) count += std::holds_alternative<InsertJob>(effect) ? 1 : 0;
    return count;
  }
  // Runs a task on the owner thread, and waits for it.
  void OnLoop(const std::function<void()>& task) {
    std::mutex mutex;
    std::condition_variable done;
    bool ran = false;
    loop_.RunAlways([&] {
      task();
      std::lock_guard lock(mutex);
      ran = true;
      done.notify_all();
    });
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return ran; });
  }

  HookedClock clock_;
  Controller controller_;
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status store_status_;
  std::vector<Effect> committed_;
  std::vector<std::vector<Effect>> batches_;  // the effects of committed_, one batch per commit
  std::vector<size_t> committed_when_carried_;
  std::vector<Reply> replies_;
  std::function<void()> on_reply_;
  int64_t commits_ = 0;
  int64_t requests_ = 0;
  EventLoop loop_;
};

TEST_F(LoopTest, WhatPeopleAskForComesBeforeReports) {
  std::atomic<int> handled{0};
  int before_the_answer = -1;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(loop_.PostReport(AgentReported{i + 1, "10.0.0.1", {.node = NodeId("n"), .boot = "b"}}, [&] { ++handled; }));
  }
  loop_.PostAlways(JobSubmitted{++requests_, JobId("a"), "a", MakeSpec(), "digest"}, AuditRecord{.who = "alice"});
  on_reply_ = [&] { before_the_answer = handled; };
  loop_.Start({}, nullptr);
  OnLoop([] {});  // runs after all tasks above
  EXPECT_EQ(handled, 2000);
  EXPECT_EQ(before_the_answer, 0);
}

TEST_F(LoopTest, WhatPeopleAskForMeanwhileDoesNotWaitForAllReports) {
  constexpr int kReports = 20'000;
  std::atomic<int> handled{0};
  int before_the_answer = -1, answers = 0;
  for (int i = 0; i < kReports; ++i) {
    ASSERT_TRUE(loop_.PostReport(AgentReported{i + 1, "10.0.0.1", {.node = NodeId("n"), .boot = "b"}}, [&] { ++handled; }));
  }
  // The submission arrives in the middle of the reports: when the owner thread asks for the time for the 100th time.
  clock_.calls = 0;
  clock_.on_call = [&](int call) {
    if (call == 100) loop_.PostAlways(JobSubmitted{1000, JobId("a"), "a", MakeSpec(), "digest"}, AuditRecord{.who = "alice"});
  };
  on_reply_ = [&] {
    before_the_answer = handled;
    ++answers;
  };
  loop_.Start({}, nullptr);
  while (handled < kReports) OnLoop([] {});
  EXPECT_EQ(answers, 1);
  EXPECT_GE(before_the_answer, 99);
  EXPECT_LE(before_the_answer, 1000) << "of 20,000";
}

TEST_F(LoopTest, WhatIsQueuedIsDoneBeforeItStops) {
  int handled = 0;
  for (int i = 0; i < 2000; ++i) loop_.RunAlways([&] { ++handled; });
  loop_.Start({}, nullptr);
  loop_.Stop();
  EXPECT_EQ(handled, 2000);
}

TEST_F(LoopTest, RepliesFollowTheCommit) {
  loop_.Start({}, nullptr);
  const Reply reply = Submit("a");
  EXPECT_TRUE(reply.status.ok());
  EXPECT_EQ(reply.job, JobId("a"));
  EXPECT_EQ(Inserted(), 1u);
  std::lock_guard lock(mutex_);
  EXPECT_GE(committed_when_carried_.front(), 1u);
}

TEST_F(LoopTest, AStoreThatFailsRefusesNewJobsUntilItWrites) {
  loop_.Start({}, nullptr);
  EXPECT_TRUE(Submit("a").status.ok());
  SetStore(absl::ResourceExhaustedError("database or disk is full"));
  const Reply refused = Submit("b");
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("disk is full; nothing was changed"));
  OnLoop([&] { EXPECT_EQ(controller_.Find(JobId("b")), nullptr) << "it never was"; });
  SetStore(absl::OkStatus());
  EXPECT_TRUE(Submit("b2").status.ok());
  EXPECT_EQ(Inserted(), 2u);
}

TEST_F(LoopTest, WhatWasDecidedWhileTheStoreFailedIsWrittenLater) {
  loop_.Start({}, nullptr);
  EXPECT_TRUE(Submit("a").status.ok());
  SetStore(absl::UnavailableError("disk I/O error"));
  EXPECT_TRUE(loop_.Post(CancelRequested{++requests_, JobId("a"), ""}));
  OnLoop([&] { EXPECT_EQ(controller_.Find(JobId("a"))->state, JobState::kCancelled); });
  {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(replies_.back().status.code(), absl::StatusCode::kUnavailable) << "not promised";
    const std::string said(replies_.back().status.message());
    EXPECT_THAT(said, HasSubstr("the change of job a is decided and takes effect when the server can write"));
    EXPECT_THAT(said, Not(HasSubstr("nothing was changed")));
    for (const Effect& effect : committed_) {
      const auto* update = std::get_if<UpdateJob>(&effect);
      EXPECT_FALSE(update != nullptr && update->job.state == JobState::kCancelled);
    }
  }
  // Another cancellation is refused and changes nothing. Then the store works again.
  EXPECT_TRUE(loop_.Post(CancelRequested{++requests_, JobId("a"), ""}));
  OnLoop([] {});
  {
    std::lock_guard lock(mutex_);
    EXPECT_THAT(std::string(replies_.back().status.message()), HasSubstr("nothing was changed"));
  }
  SetStore(absl::OkStatus());
  std::unique_lock lock(mutex_);
  const auto cancelled_written = [&] {
    for (const Effect& effect : committed_) {
      const auto* update = std::get_if<UpdateJob>(&effect);
      if (update != nullptr && update->job.state == JobState::kCancelled) return true;
    }
    return false;
  };
  while (!cancelled_written()) {
    lock.unlock();
    OnLoop([] {});
    lock.lock();
  }
}

// A write fails in a round of the loop. Answers of this round that do not depend on this write must stay as they are.
TEST_F(LoopTest, AnswersThatRestOnNoWriteStand) {
  loop_.Start({}, nullptr);
  EXPECT_TRUE(Submit("a").status.ok());
  const int64_t known = ++requests_, fresh = ++requests_, cancelled = ++requests_;
  OnLoop([&] {
    // While this task runs, the loop handles nothing else. So the next three events are in one round.
    SetStore(absl::UnavailableError("disk I/O error"));
    loop_.PostAlways(JobSubmitted{known, JobId("x"), "a", MakeSpec(), "digest"});
    loop_.PostAlways(JobSubmitted{fresh, JobId("b"), "b", MakeSpec(), "digest"});
    loop_.PostAlways(CancelRequested{cancelled, JobId("b"), ""});
  });
  OnLoop([] {});
  std::lock_guard lock(mutex_);
  const auto status_of = [&](int64_t request) {
    for (const Reply& reply : replies_) {
      if (reply.request == request) return reply.status;
    }
    return absl::InternalError("no reply");
  };
  EXPECT_TRUE(status_of(known).ok()) << status_of(known) << ": the job is long written";
  EXPECT_THAT(std::string(status_of(fresh).message()), HasSubstr("nothing was changed"));
  EXPECT_THAT(std::string(status_of(cancelled).message()), HasSubstr("nothing was changed"));
}

template <class Kind>
std::vector<Kind> OfKind(const std::vector<Effect>& effects) {
  std::vector<Kind> found;
  for (const Effect& effect : effects) {
    if (const auto* kind = std::get_if<Kind>(&effect)) found.push_back(*kind);
  }
  return found;
}

// The connection to the store is lost during the commit of a new job. The test decides whether the commit was written.
TEST_F(LoopTest, ACommitInDoubtIsRepeatedAsItWasAndAnsweredOnce) {
  loop_.Start({}, nullptr);
  const int64_t doubtful = ++requests_, refused = ++requests_;
  OnLoop([&] {
    SetStore(absl::AbortedError("the connection was lost during a commit"));
    loop_.PostAlways(JobSubmitted{doubtful, JobId("a"), "a", MakeSpec(), "digest"});
  });
  OnLoop([] {});
  const int64_t queue = ++requests_;
  loop_.PostAlways(QueueRequested{queue, {.name = "night"}});
  loop_.PostAlways(JobSubmitted{refused, JobId("b"), "b", MakeSpec(), "digest"});
  OnLoop([] {});
  {
    std::lock_guard lock(mutex_);
    ASSERT_EQ(replies_.size(), 1u) << "nobody knows what to answer to the first";
    EXPECT_EQ(replies_[0].request, refused);
    EXPECT_EQ(replies_[0].status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(replies_[0].status.message()), HasSubstr("nothing was changed"));
  }
  OnLoop([&] { EXPECT_NE(controller_.Find(JobId("a")), nullptr) << "perhaps it is stored"; });
  SetStore(absl::OkStatus());
  while (Inserted() == 0) OnLoop([] {});
  OnLoop([] {});
  std::lock_guard lock(mutex_);
  ASSERT_EQ(replies_.size(), 3u);
  EXPECT_EQ(replies_[1].request, doubtful);
  EXPECT_EQ(replies_[2].request, queue);
  EXPECT_TRUE(replies_[1].status.ok()) << replies_[1].status;
  ASSERT_GE(batches_.size(), 2u);
  EXPECT_EQ(OfKind<InsertJob>(batches_[0]).size(), 1u);
  EXPECT_TRUE(OfKind<PutQueue>(batches_[0]).empty()) << "the store may ignore what is repeated";
  EXPECT_EQ(OfKind<PutQueue>(batches_[1]).size(), 1u);
}

TEST_F(LoopTest, ACommitInDoubtThatWasNotWrittenIsAFailure) {
  loop_.Start({}, nullptr);
  EXPECT_TRUE(Submit("old").status.ok());
  const int64_t doubtful = ++requests_, cancelled = ++requests_;
  OnLoop([&] {
    SetStore(absl::AbortedError("the connection was lost during a commit"));
    loop_.PostAlways(JobSubmitted{doubtful, JobId("a"), "a", MakeSpec(), "digest"});
    loop_.PostAlways(CancelRequested{cancelled, JobId("old"), ""});
  });
  OnLoop([] {});
  SetStore(absl::ResourceExhaustedError("the disk is full"));
  const auto replies = [&] {
    std::lock_guard lock(mutex_);
    return replies_.size();
  };
  while (replies() < 3) OnLoop([] {});
  OnLoop([&] {
    EXPECT_EQ(controller_.Find(JobId("a")), nullptr);
    std::lock_guard lock(mutex_);
    for (const Reply& reply : replies_) {
      if (reply.request == doubtful) {
        EXPECT_THAT(std::string(reply.status.message()), HasSubstr("disk is full; nothing was changed"));
      } else if (reply.request == cancelled) {
        EXPECT_THAT(std::string(reply.status.message()), HasSubstr("is decided and takes effect when the server can write"));
      }
    }
  });
  SetStore(absl::OkStatus());
  while (!Submit("c").status.ok()) continue;
  EXPECT_EQ(Inserted(), 2u);
  std::lock_guard lock(mutex_);
  const std::vector<UpdateJob> updates = OfKind<UpdateJob>(committed_);
  EXPECT_TRUE(std::any_of(updates.begin(), updates.end(),
                          [](const UpdateJob& update) { return update.job.state == JobState::kCancelled; }));
}

TEST_F(LoopTest, WhoAskedIsWrittenInTheTransactionOfWhatWasDecided) {
  loop_.Start({}, nullptr);
  EXPECT_TRUE(loop_.Post(JobSubmitted{++requests_, JobId("a"), "a", MakeSpec(), "digest"}, AuditRecord{.who = "alice"}));
  EXPECT_TRUE(loop_.Post(JobSubmitted{++requests_, JobId("b"), "a", MakeSpec(), "other"}, AuditRecord{.who = "bob"}));
  OnLoop([] {});
  std::lock_guard lock(mutex_);
  std::vector<AuditRecord> records;
  for (const std::vector<Effect>& batch : batches_) {
    for (const InsertAudit& audit : OfKind<InsertAudit>(batch)) records.push_back(audit.record);
    EXPECT_GE(OfKind<InsertAudit>(batch).size(), OfKind<InsertJob>(batch).size());
  }
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].who, "alice");
  EXPECT_EQ(records[0].target, "a");
  EXPECT_EQ(records[0].outcome, "OK");
  EXPECT_GT(records[0].time, Nanos(0));
  EXPECT_EQ(records[1].who, "bob");
  EXPECT_EQ(records[1].outcome, "ALREADY_EXISTS");
}

// If a change was not made, no record must say that it was made. If a change is made and written later, there must be a record.
TEST_F(LoopTest, WhoAskedIsRecordedIfItIsDone) {
  loop_.Start({}, nullptr);
  EXPECT_TRUE(Submit("a").status.ok());
  OnLoop([&] {
    SetStore(absl::UnavailableError("disk I/O error"));
    loop_.PostAlways(JobSubmitted{++requests_, JobId("b"), "b", MakeSpec(), "digest"}, AuditRecord{.who = "alice"});
    loop_.PostAlways(CancelRequested{++requests_, JobId("a"), ""}, AuditRecord{.who = "bob"});
  });
  OnLoop([] {});
  loop_.Record(AuditRecord{.who = "a refusal that is dropped"});
  OnLoop([&] { SetStore(absl::OkStatus()); });
  while (!Submit("c").status.ok()) continue;
  std::lock_guard lock(mutex_);
  const std::vector<InsertAudit> audits = OfKind<InsertAudit>(committed_);
  ASSERT_EQ(audits.size(), 1u);
  EXPECT_EQ(audits[0].record.who, "bob");
}

TEST_F(LoopTest, TheQueueIsBoundedButNotForWhatMustNotBeLost) {
  // The loop has not started yet, so nothing leaves the queue.
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(loop_.Run([] {}));
  EXPECT_FALSE(loop_.Run([] {}));
  EXPECT_FALSE(loop_.Post(AgentGone{1}));
  loop_.PostAlways(AgentGone{1});
  bool handled = false;
  EXPECT_TRUE(loop_.PostReport(AgentGone{2}, [&] { handled = true; }));
  EXPECT_EQ(loop_.QueueLength(), 6u);
  loop_.Start({}, nullptr);
  OnLoop([] {});
  EXPECT_TRUE(handled);
  EXPECT_TRUE(loop_.Run([] {}));
  loop_.Stop();
  EXPECT_FALSE(loop_.PostReport(AgentGone{2}, nullptr));
}

TEST_F(LoopTest, StopHandlesWhatIsQueuedAndRefusesTheRest) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(loop_.Run([&] { ++ran; }));
  loop_.Start({}, nullptr);
  loop_.Stop();
  EXPECT_EQ(ran, 3);
  EXPECT_FALSE(loop_.Run([&] { ++ran; }));
  loop_.Stop();
}

TEST_F(LoopTest, Ticks) {
  std::atomic<int> ticks{0};
  loop_.Start({}, [&] { ++ticks; });
  while (ticks < 3) OnLoop([] {});
}

}  // namespace
}  // namespace lynx::server
