#include "studio/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/fd.h"

namespace lynx {
namespace {

// Answers questions when the test says so, or when they are cancelled.
class SlowAnswerer {
 public:
  StudioAnswerer answerer() {
    return [this](const std::string& question, const WakeEvent& cancel) -> absl::StatusOr<std::string> {
      {
        const std::lock_guard lock(mutex_);
        begun_.push_back(question);
        changed_.notify_all();
      }
      pollfd fds[] = {{.fd = cancel.fd(), .events = POLLIN, .revents = 0}, {.fd = go_.fd(), .events = POLLIN, .revents = 0}};
      ::poll(fds, 2, -1);
      if ((fds[0].revents & POLLIN) != 0) return absl::CancelledError("stopped");
      return absl::StrCat("{\"layout\":\"of ", question, "\"}\nanswer to ", question);
    };
  }
  void Go() { go_.Raise(); }
  void WaitFor(size_t begun) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_.size() >= begun; });
  }
  std::vector<std::string> begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }

 private:
  WakeEvent go_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> begun_;
};

MakeQuestion Text(const std::string& text) {
  return [text](const std::string&) { return text; };
}

using Answer = absl::StatusOr<std::string>;

TEST(StudioQuestions, AQuestionWithoutWaitingNeedsNoPlace) {
  SlowAnswerer slow;
  StudioQuestions questions(slow.answerer(), {.at_once = 1});
  std::future<Answer> first = std::async(std::launch::async, [&] { return questions.AskAlone(Text("a plan")); });
  slow.WaitFor(1);
  std::future<Answer> second = std::async(std::launch::async, [&] { return questions.AskWithoutWaiting("choices"); });
  slow.WaitFor(2);
  slow.Go();
  EXPECT_EQ(*first.get(), "answer to a plan");
  EXPECT_EQ(*second.get(), "answer to choices");
}

TEST(StudioQuestions, StopEndsAQuestionWithoutWaiting) {
  SlowAnswerer slow;
  StudioQuestions questions(slow.answerer());
  std::future<Answer> answer = std::async(std::launch::async, [&] { return questions.AskWithoutWaiting("choices"); });
  slow.WaitFor(1);
  questions.Stop();
  EXPECT_EQ(answer.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(questions.AskWithoutWaiting("choices").status().code(), absl::StatusCode::kCancelled);
}

TEST(StudioQuestions, AnswersAndKeepsThePlansLayoutOfEachClient) {
  SlowAnswerer slow;
  slow.Go();
  StudioQuestions questions(slow.answerer());
  const auto with_kept = [](const std::string& kept) -> Answer { return absl::StrCat("kept ", kept); };
  EXPECT_EQ(*questions.Ask("a", StudioAsk::kPlan, 0, with_kept), "answer to kept {}");
  EXPECT_EQ(*questions.Ask("a", StudioAsk::kPlan, 1, with_kept), "answer to kept {\"layout\":\"of kept {}\"}");
  EXPECT_EQ(*questions.Ask("b", StudioAsk::kPlan, 1, with_kept), "answer to kept {}");
  // What was kept is of the plan, whatever other questions brought.
  EXPECT_EQ(*questions.Ask("b", StudioAsk::kMore, 1, Text("more")), "answer to more");
  EXPECT_EQ(*questions.Ask("b", StudioAsk::kPlan, 2, with_kept), "answer to kept {\"layout\":\"of kept {}\"}");
}

// A connection; `far` is the client's end.
struct Connection {
  Connection() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    near = UniqueFd(ends[0]);
    far = UniqueFd(ends[1]);
  }
  UniqueFd near, far;
};

TEST(StudioQuestions, EndsAQuestionWhoseConnectionIsClosed) {
  SlowAnswerer slow;
  StudioQuestions questions(slow.answerer(), {.at_once = 1});
  Connection runs, waits;
  auto running =
      std::async(std::launch::async, [&] { return questions.Ask("a", StudioAsk::kPlan, 0, Text("runs"), runs.near.get()); });
  slow.WaitFor(1);
  auto waiting = std::async(std::launch::async, [&] { return questions.AskAlone(Text("waits"), waits.near.get()); });
  waits.far = UniqueFd();
  EXPECT_EQ(waiting.get().status().code(), absl::StatusCode::kCancelled);
  runs.far = UniqueFd();
  EXPECT_EQ(running.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(slow.begun(), std::vector<std::string>({"runs"}));

  slow.Go();
  Connection open;
  EXPECT_EQ(*questions.Ask("a", StudioAsk::kPlan, 1, Text("next"), open.near.get()), "answer to next");
  Connection closed;
  closed.far = UniqueFd();
  SlowAnswerer never;
  StudioQuestions others(never.answerer());
  EXPECT_EQ(others.Ask("a", StudioAsk::kPlan, 0, Text("late"), closed.near.get()).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(StudioQuestions, AnErrorForgetsNoLayout) {
  std::string next = "{\"tp\":\"2\"}\nplan";
  StudioQuestions questions(
      [&](const std::string& question, const WakeEvent&) -> Answer { return next.empty() ? question : next; });
  EXPECT_EQ(*questions.Ask("a", StudioAsk::kPlan, 0, Text("")), "plan");
  next = "{}\nerror";
  EXPECT_EQ(*questions.Ask("a", StudioAsk::kPlan, 1, Text("")), "error");
  next = "";
  EXPECT_EQ(*questions.Ask("a", StudioAsk::kPlan, 2, [](const std::string& kept) -> Answer { return "{}\n" + kept; }),
            "{\"tp\":\"2\"}");
}

TEST(StudioQuestions, AnOlderOneIsStaleAtOnce) {
  SlowAnswerer slow;
  slow.Go();
  StudioQuestions questions(slow.answerer());
  ASSERT_TRUE(questions.Ask("a", StudioAsk::kPlan, 5, Text("five")).ok());
  EXPECT_TRUE(absl::IsCancelled(questions.Ask("a", StudioAsk::kPlan, 4, Text("four")).status()));
  EXPECT_TRUE(absl::IsCancelled(questions.Ask("a", StudioAsk::kPlan, 5, Text("five again")).status()));
  EXPECT_TRUE(questions.Ask("a", StudioAsk::kMore, 4, Text("more")).ok());  // each kind has its own numbers
  EXPECT_TRUE(questions.Ask("b", StudioAsk::kPlan, 4, Text("of b")).ok());
  EXPECT_THAT(slow.begun(), ::testing::ElementsAre("five", "more", "of b"));
}

TEST(StudioQuestions, TheNewestStopsTheOneThatRuns) {
  SlowAnswerer slow;
  StudioQuestions questions(slow.answerer());
  std::future<Answer> first =
      std::async(std::launch::async, [&] { return questions.Ask("a", StudioAsk::kPlan, 1, Text("first")); });
  slow.WaitFor(1);
  std::future<Answer> second =
      std::async(std::launch::async, [&] { return questions.Ask("a", StudioAsk::kPlan, 2, Text("second")); });
  EXPECT_TRUE(absl::IsCancelled(first.get().status()));
  slow.WaitFor(2);
  slow.Go();
  EXPECT_EQ(*second.get(), "answer to second");
}

TEST(StudioQuestions, ANewPlanStopsTheQuestionForMore) {
  SlowAnswerer slow;
  StudioQuestions questions(slow.answerer());
  std::future<Answer> more =
      std::async(std::launch::async, [&] { return questions.Ask("a", StudioAsk::kMore, 1, Text("more")); });
  std::future<Answer> other =
      std::async(std::launch::async, [&] { return questions.Ask("b", StudioAsk::kMore, 1, Text("of b")); });
  slow.WaitFor(2);
  std::future<Answer> plan =
      std::async(std::launch::async, [&] { return questions.Ask("a", StudioAsk::kPlan, 1, Text("plan")); });
  EXPECT_TRUE(absl::IsCancelled(more.get().status()));
  slow.WaitFor(3);
  slow.Go();
  EXPECT_TRUE(plan.get().ok());
  EXPECT_EQ(*other.get(), "answer to of b");
}

TEST(StudioQuestions, OneThatWaitsIsStaleWithoutHavingBegun) {
  SlowAnswerer slow;
  StudioQuestions questions(slow.answerer(), {.at_once = 1});
  std::future<Answer> running =
      std::async(std::launch::async, [&] { return questions.Ask("x", StudioAsk::kPlan, 1, Text("x")); });
  slow.WaitFor(1);
  std::vector<std::future<Answer>> waiting;
  for (int64_t i = 0; i < 5; ++i) {
    waiting.push_back(
        std::async(std::launch::async, [&questions, i] { return questions.Ask("a", StudioAsk::kPlan, i, Text("a")); }));
  }
  // All but the newest are answered while the running one still runs. They may begin to wait in any order.
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(absl::IsCancelled(waiting[i].get().status()));
  EXPECT_THAT(slow.begun(), ::testing::ElementsAre("x"));
  slow.Go();
  EXPECT_EQ(*running.get(), "answer to x");
  EXPECT_EQ(*waiting[4].get(), "answer to a");
}

TEST(StudioQuestions, TooManyAreRefused) {
  SlowAnswerer slow;
  StudioQuestions questions(slow.answerer(), {.at_once = 1, .waiting = 0});
  std::future<Answer> running =
      std::async(std::launch::async, [&] { return questions.Ask("x", StudioAsk::kPlan, 1, Text("x")); });
  slow.WaitFor(1);
  EXPECT_TRUE(absl::IsUnavailable(questions.Ask("a", StudioAsk::kPlan, 1, Text("a")).status()));
  slow.Go();
  EXPECT_TRUE(running.get().ok());
  EXPECT_TRUE(questions.Ask("a", StudioAsk::kPlan, 2, Text("a")).ok());
}

TEST(StudioQuestions, StopEndsThoseThatRunAndAllLaterOnes) {
  SlowAnswerer slow;
  StudioQuestions questions(slow.answerer(), {.at_once = 1});
  std::future<Answer> running =
      std::async(std::launch::async, [&] { return questions.Ask("x", StudioAsk::kPlan, 1, Text("x")); });
  slow.WaitFor(1);
  questions.Stop();
  EXPECT_TRUE(absl::IsCancelled(running.get().status()));
  EXPECT_TRUE(absl::IsCancelled(questions.AskAlone(Text("late")).status()));
}

TEST(StudioQuestions, OldClientsAreForgotten) {
  StudioQuestions questions(
      [](const std::string& question, const WakeEvent&) -> Answer { return "{\"tp\":\"2\"}\n" + question; });
  const auto kept = [](const std::string& text) -> Answer { return text; };
  EXPECT_EQ(*questions.Ask("old", StudioAsk::kPlan, 7, kept), "{}");
  for (size_t i = 0; i < StudioQuestions::kMaxClients; ++i)
    ASSERT_TRUE(questions.Ask(absl::StrCat(i), StudioAsk::kPlan, 1, kept).ok());
  EXPECT_EQ(*questions.Ask("old", StudioAsk::kPlan, 1, kept), "{}");  // its number and its layout are gone
  EXPECT_EQ(*questions.Ask("63", StudioAsk::kPlan, 2, kept), "{\"tp\":\"2\"}");
}

TEST(StudioQuestions, ErrorsOfTheQuestionAndOfItsAnswererAreGivenOn) {
  StudioQuestions questions([](const std::string& question, const WakeEvent&) -> Answer {
    if (question == "broken") return absl::InternalError("ended with signal 9");
    return question;
  });
  EXPECT_EQ(questions.AskAlone([](const std::string&) -> Answer { return absl::UnavailableError("no machines"); }).status(),
            absl::UnavailableError("no machines"));
  EXPECT_EQ(questions.AskAlone(Text("broken")).status(), absl::InternalError("ended with signal 9"));
  EXPECT_TRUE(absl::IsInternal(questions.AskAlone(Text("one line")).status()));
}

}  // namespace
}  // namespace lynx
