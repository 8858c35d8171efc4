#include "cli/output/render.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cli/connect/log_printer.h"
#include "cli/output/exit_code.h"
#include "cli/verbs/commands.h"
#include "common/fd.h"

namespace lynx::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::Job RunningJob() {
  v1::Job job;
  job.set_id("j1");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_spec()->set_name("tiny");
  job.mutable_spec()->mutable_train()->set_steps(400);
  v1::Progress* p = job.mutable_progress();
  p->set_steps_done(120);
  p->set_loss(2.31);
  p->set_first_loss(5.54);
  p->set_tokens_per_second(12345);
  p->set_eta_ns(70'000'000'000);
  return job;
}

TEST(Table, PadsColumnsWithoutTrailingSpaces) {
  EXPECT_EQ(TableText({{"A", "LONG"}, {"value", "x"}, {"b"}}), "A      LONG\nvalue  x\nb\n");
}

TEST(ProgressLine, ShowsStepLossRateAndEta) {
  EXPECT_EQ(ProgressLine(RunningJob(), 90),
            "step 120/400 [==========>                       ]  30%  loss 2.310  12.3k tok/s  ETA 1m10s");
}

TEST(ProgressLine, NeverExceedsTheWidth) {
  for (int width = 0; width < 120; ++width) EXPECT_LE(ProgressLine(RunningJob(), width).size(), std::max(width, 96)) << width;
  for (int width = 0; width < 60; ++width) EXPECT_LE(ProgressLine(RunningJob(), width).size(), static_cast<size_t>(width));
}

TEST(ProgressLine, LeavesOutWholeValuesWhereThereIsNoRoom) {
  v1::Job job = RunningJob();
  job.mutable_progress()->set_validation_step(100);
  job.mutable_progress()->set_validation_loss(2.5);
  EXPECT_EQ(ProgressLine(job, 61), "step 120/400 [==>  ]  30%  loss 2.310  12.3k tok/s  ETA 1m10s");
  EXPECT_EQ(ProgressLine(job, 59), "step 120/400   30%  loss 2.310  12.3k tok/s  ETA 1m10s");
  EXPECT_EQ(ProgressLine(job, 45), "step 120/400   30%  loss 2.310  ETA 1m10s");
  EXPECT_EQ(ProgressLine(job, 39), "step 120/400 [==>    ]  30%  loss 2.310");
  EXPECT_EQ(ProgressLine(job, 20), "step 120/400   30%");
  EXPECT_EQ(ProgressLine(job, 10), "30%");
  EXPECT_EQ(ProgressLine(job, 2), "");
}

TEST(ProgressLine, HasTheValidationLossOnceThereIsOne) {
  v1::Job job = RunningJob();
  EXPECT_THAT(ProgressLine(job, 100), Not(HasSubstr("validation")));
  job.mutable_progress()->set_validation_step(100);
  job.mutable_progress()->set_validation_loss(2.5);
  EXPECT_THAT(ProgressLine(job, 100), HasSubstr("loss 2.310  validation 2.500"));
}

TEST(ProgressLine, FullAtTheEnd) {
  v1::Job job = RunningJob();
  job.mutable_progress()->set_steps_done(400);
  EXPECT_THAT(ProgressLine(job, 100), HasSubstr("100%"));
  EXPECT_THAT(ProgressLine(job, 100), Not(HasSubstr("ETA")));
}

TEST(Style, NoColorAndFilesHaveNone) {
  EXPECT_EQ(Colored(v1::JOB_STATE_FAILED, "x", Style{false}), "x");
  EXPECT_EQ(Colored(v1::JOB_STATE_FAILED, "x", Style{true}), "\033[31mx\033[0m");
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(StyleOf(1).color);
  unsetenv("NO_COLOR");
}

TEST(Style, ATerminalThatTakesTextAloneHasNone) {
  const UniqueFd outer(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(outer.valid() && ::grantpt(outer.get()) == 0 && ::unlockpt(outer.get()) == 0);
  const UniqueFd inner(::open(::ptsname(outer.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(inner.valid());
  const char* const before = std::getenv("TERM");
  const std::string term = before == nullptr ? "" : before;
  setenv("TERM", "xterm", 1);
  EXPECT_TRUE(IsTerminal(inner.get()));
  EXPECT_TRUE(StyleOf(inner.get()).color);
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(IsTerminal(inner.get()));
  EXPECT_FALSE(StyleOf(inner.get()).color);
  before == nullptr ? unsetenv("TERM") : setenv("TERM", term.c_str(), 1);
}

TEST(JobPage, WorksWithoutAPlan) {
  v1::Job job = RunningJob();
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_reason("rank 2 on node n1 was killed by signal 9");
  const std::string page = JobPage(job, Style{}, Nanos(0));
  EXPECT_THAT(page, HasSubstr("job j1  tiny  FAILED\nrank 2 on node n1 was killed by signal 9\n"));
  EXPECT_THAT(page, Not(HasSubstr("PLAN")));
}

TEST(JobPage, ControlsInWhatOthersWroteAreWrittenOut) {
  v1::Job job = RunningJob();
  job.set_reason("held: \x1b]0;title\x07\nsecond line");
  v1::JobEvent& event = *job.add_events();
  event.set_kind("held");
  event.set_reason("held: \x1b[2J\rnothing\nelse");
  const std::string page = JobPage(job, Style{true}, Nanos(0));
  EXPECT_THAT(page, HasSubstr("tiny  \033[36mRUNNING\033[0m\nheld: \\x1b]0;title\\x07\nsecond line\n"))
      << "lynxctl's own colours stay";
  EXPECT_THAT(page, HasSubstr("held   held: \\x1b[2J\\rnothing\\nelse\n"));
}

TEST(EventLine, AReasonWithoutRoomStandsBelow) {
  v1::JobEvent event;
  event.set_state(v1::JOB_STATE_RUNNING);
  event.set_kind("restarting");
  event.set_reason("rank 2 was\nkilled");
  const std::string time = "2026-01-02 03:04:05";
  const std::string whole = time + "  RUNNING    restarting        rank 2 was\\nkilled\n";
  EXPECT_EQ(EventLine(event, time, whole.size() - 1, Style{}), whole);
  EXPECT_EQ(EventLine(event, time, whole.size() - 2, Style{}), time + "  RUNNING    restarting\n    rank 2 was\\nkilled\n");
  EXPECT_EQ(EventLine(event, time, 42, Style{}), time + "  RUNNING    restarting\n    rank 2 was\\nkilled\n")
      << "the first line has 42 columns";
  EXPECT_EQ(EventLine(event, time, 41, Style{}), "03:04:05  RUNNING    restarting\n    rank 2 was\\nkilled\n");
  EXPECT_EQ(EventLine(event, time, 20, Style{}), "03:04:05  RUNNING    restarting\n    rank 2\n    was\\nkilled\n");
}

TEST(EventLine, WithoutAReasonThereIsOneLine) {
  v1::JobEvent event;
  event.set_state(v1::JOB_STATE_RUNNING);
  event.set_kind("running");
  const std::string time = "2026-01-02 03:04:05";
  EXPECT_EQ(EventLine(event, time, 100, Style{}), time + "  RUNNING    running\n");
  EXPECT_EQ(EventLine(event, time, 39, Style{}), time + "  RUNNING    running\n") << "all 39 columns";
  EXPECT_EQ(EventLine(event, time, 38, Style{}), "03:04:05  RUNNING    running\n");
}

TEST(LogLine, ControlsThatARankWroteAreWrittenOut) {
  v1::LogLine line;
  line.set_rank(2);
  line.set_generation(1);
  line.set_text("50%\r\x1b[31m100%");
  testing::internal::CaptureStdout();
  PrintLogLine(line);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "[rank 2 g1] 50%\\r\\x1b[31m100%\n");
}

TEST(Failures, ControlsInMessagesAreWrittenOut) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Fail(absl::NotFoundError("no job \x1b[2J\nsecond line")), kExitNotFound);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "lynxctl: no job \\x1b[2J\nsecond line\n");
}

TEST(JobPage, SaysHowLongRanksWaitedForACoreWhereItMatters) {
  v1::Job job = RunningJob();
  job.mutable_plan()->set_step_ns(38'000'000);
  job.mutable_plan()->add_stages();
  v1::StageMeasurement& stage = *job.add_measured();
  stage.set_steps(98);
  stage.set_step_ns(250'000'000);
  stage.set_core_wait_ns(12'000'000);
  EXPECT_THAT(JobPage(job, Style{}, Nanos(0)), Not(HasSubstr("waiting for a core"))) << "less than 5%";
  stage.set_core_wait_ns(110'000'000);
  EXPECT_THAT(JobPage(job, Style{}, Nanos(0)),
              HasSubstr("waiting for a core      none       110.0 ms  44% of a step\nwaiting for a core: other processes, "));
  job.mutable_plan()->mutable_stages(0)->set_core_wait_ns(100'000'000);
  EXPECT_THAT(JobPage(job, Style{}, Nanos(0)),
              HasSubstr("waiting for a core      100.0 ms   110.0 ms  44% of a step\nwaiting for a core: ranks of "
                        "this job share cores, "));
  job.clear_measured();
  EXPECT_THAT(JobPage(job, Style{}, Nanos(0)), HasSubstr("waiting for a core      100.0 ms   -\n"));
}

TEST(JobPage, ShowsTheLoadOfExpertsBesideThePlanned) {
  v1::Job job = RunningJob();
  job.mutable_plan()->add_stages();
  EXPECT_THAT(JobPage(job, Style{}, Nanos(0)), Not(HasSubstr("rows of the fullest rank")));
  job.mutable_plan()->mutable_model()->mutable_moe()->set_experts(8);
  job.mutable_plan()->mutable_model()->mutable_moe()->set_skew(1.25);
  EXPECT_THAT(JobPage(job, Style{}, Nanos(0)), HasSubstr("rows of the fullest rank  1.25x      -\n")) << "no step yet";
  job.mutable_progress()->set_expert_skew(1.5);
  job.mutable_progress()->set_expert_dropped_ratio(0.03);
  EXPECT_THAT(JobPage(job, Style{}, Nanos(0)),
              HasSubstr("rows of the fullest rank  1.25x      1.50x     of the even share; 3.0% of all rows dropped\n"));
  job.mutable_progress()->set_expert_dropped_ratio(0);
  job.mutable_progress()->set_expert_in_rounds_ratio(0.03);
  job.mutable_progress()->set_expert_rounds(12);
  EXPECT_THAT(JobPage(job, Style{}, Nanos(0)), HasSubstr("of the even share; 3.0% of all rows in 12 rounds\n"));
}

}  // namespace
}  // namespace lynx::cli
