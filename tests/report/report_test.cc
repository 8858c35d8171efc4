#include "report/job_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "planner/report/plot.h"
#include "proto/convert.h"
#include "tests/planner/report/report_fixtures.h"

namespace lynx {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSecond = 1'000'000'000;

v1::JobEvent Event(int64_t second, v1::JobState state, const std::string& kind, const std::string& reason = "") {
  v1::JobEvent event;
  event.set_time_unix_ns(second * kSecond);
  event.set_state(state);
  event.set_kind(kind);
  event.set_reason(reason.empty() ? "reason of " + kind : reason);
  return event;
}

v1::StepPoint Point(int64_t generation, int64_t first_step, int64_t second, double loss = 2, double rate = 100) {
  v1::StepPoint point;
  point.set_generation(generation);
  point.set_first_step(first_step);
  point.set_steps(1);
  point.set_time_unix_ns(second * kSecond);
  point.set_loss(loss);
  point.set_tokens_per_second(rate);
  point.set_step_ns(kSecond);
  return point;
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// A job that lost a rank after step 5 and continued from step 3.
struct RestartedJob {
  v1::Job job;
  v1::JobCurves curves;

  RestartedJob() {
    job.set_id("j1");
    job.mutable_spec()->set_name("a <b> & c");
    job.mutable_spec()->mutable_train()->set_steps(10);
    job.set_state(v1::JOB_STATE_SUCCEEDED);
    job.set_submitted_unix_ns(100 * kSecond);
    job.set_started_unix_ns(110 * kSecond);
    job.set_ended_unix_ns(140 * kSecond);
    job.set_generation(2);
    job.set_restarts(1);
    job.mutable_progress()->set_steps_done(10);
    job.mutable_progress()->set_tokens_per_second(123456);
    const v1::JobState running = v1::JOB_STATE_RUNNING, starting = v1::JOB_STATE_STARTING;
    for (const v1::JobEvent& event :
         {Event(100, v1::JOB_STATE_QUEUED, "submitted"), Event(101, v1::JOB_STATE_PLANNING, "planning"),
          Event(105, starting, "placed"), Event(110, running, "running"), Event(115, running, "checkpoint"),
          Event(120, running, "rank-lost", "rank 2 <was> killed"), Event(122, running, "fault", "attributed to node n1"),
          Event(123, starting, "restarting"), Event(127, running, "running", "all ranks run, from step 3"),
          Event(140, v1::JOB_STATE_SUCCEEDED, "succeeded")}) {
      *job.add_events() = event;
    }
    for (int64_t step = 0; step < 5; ++step)
      *curves.add_steps() = Point(1, step, 111 + step, 5 - 0.1 * static_cast<double>(step));
    for (int64_t step = 3; step < 10; ++step) *curves.add_steps() = Point(2, step, 125 + step, 4);
    curves.add_evaluations()->set_steps_done(10);
    curves.mutable_evaluations(0)->set_loss(4.5);
  }
};

// Returns the fixture's job with a trace in which each time is exactly the predicted one.
std::unique_ptr<TracedJob> Traced(const ReportFixture& fixture) {
  auto traced = std::make_unique<TracedJob>();
  traced->request = fixture.request;
  traced->plan = fixture.plan;
  std::vector<std::vector<ActionSpan>> stages;
  for (const StageTimes& stage : fixture.step.simulation.stages) stages.push_back(stage.spans);
  traced->measured = AlignStages(traced->plan, 3, std::move(stages));
  traced->predicted = PredictedStep{&traced->request, &traced->plan, fixture.step.simulation};
  return traced;
}

std::string Page(const JobReport& report) {
  const absl::StatusOr<std::string> page = JobReportPage(report);
  EXPECT_TRUE(page.ok()) << page.status();
  return page.value_or("");
}

TEST(Plot, TicksAreRoundAndInside) {
  EXPECT_THAT(Ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(Ticks(0.13, 0.29, 3), ElementsAre(testing::DoubleNear(0.2, 1e-12)));
  EXPECT_THAT(Ticks(-1, 1, 2), ElementsAre(-1, 0, 1));
  EXPECT_THAT(Ticks(0, 7e9, 7).size(), 8u);
  for (const double high : {1e-9, 3e-4, 0.7, 12345.0, 9.9e12}) EXPECT_LE(Ticks(0, high, 8).size(), 12u) << high;
}

TEST(Plot, AnAxisWithoutLengthHasNoTicks) {
  EXPECT_TRUE(Ticks(0, 0, 8).empty());
  EXPECT_TRUE(Ticks(2, 1, 8).empty());
  EXPECT_TRUE(Ticks(0, std::nan(""), 8).empty());
  EXPECT_TRUE(Ticks(-1e308, 1e308, 8).empty()) << "its length is no number";
}

TEST(Plot, TextIsEscapedAndNumbersAreShort) {
  EXPECT_EQ(Coordinate(12.04), "12");
  EXPECT_EQ(Coordinate(-0.01), "0");
  EXPECT_EQ(Coordinate(0.26), "0.3");
  EXPECT_EQ(SvgText("end", 1, 2, "<&>"), "<text class=\"end\" x=\"1\" y=\"2\">&lt;&amp;&gt;</text>\n");
  EXPECT_EQ(SvgPath("line", {}), "");
  EXPECT_EQ(SvgPath("line", {{1, 2}, {3, 4}}), "<path class=\"line\" d=\"M1 2L3 4\"/>\n");
}

TEST(Recoveries, HaveTheirTimeTheirStepsAndTheirReasons) {
  const RestartedJob run;
  const std::vector<Recovery> recoveries = RecoveriesOf(run.job, run.curves);
  ASSERT_EQ(recoveries.size(), 1u);
  EXPECT_EQ(recoveries[0].kind, "rank-lost");
  EXPECT_EQ(recoveries[0].fault, "attributed to node n1");
  EXPECT_TRUE(recoveries[0].goes_on);
  EXPECT_EQ(recoveries[0].away_ns, 7 * kSecond);
  EXPECT_EQ(recoveries[0].from_step, 3);
  EXPECT_EQ(recoveries[0].done_again, 2);
  EXPECT_EQ(recoveries[0].resumed, "all ranks run, from step 3");
}

TEST(Recoveries, OneThatWasTakenBackIsNone) {
  RestartedJob run;
  *run.job.mutable_events(6) = Event(122, v1::JOB_STATE_RUNNING, "goes-on");
  EXPECT_TRUE(RecoveriesOf(run.job, run.curves).empty());
}

TEST(Recoveries, OneThatNeverWentOnSaysSo) {
  RestartedJob run;
  run.job.mutable_events()->DeleteSubrange(7, 3);
  const std::vector<Recovery> recoveries = RecoveriesOf(run.job, run.curves);
  ASSERT_EQ(recoveries.size(), 1u);
  EXPECT_FALSE(recoveries[0].goes_on);
  EXPECT_EQ(recoveries[0].from_step, -1);
  const auto page = [&] { return Page({.job = &run.job, .curves = &run.curves, .now = Nanos(150 * kSecond)}); };
  EXPECT_THAT(page(), HasSubstr("it did not go on"));
  run.job.clear_ended_unix_ns();
  EXPECT_THAT(page(), HasSubstr("not training again yet"));
  EXPECT_THAT(page(), HasSubstr(">no plan<"));
  v1::StageMeasurement& measured = *run.job.add_measured();
  measured.set_steps(3);
  measured.set_step_ns(5'000'000);
  EXPECT_THAT(page(), HasSubstr("mean of 3 steps; no plan<"));
  measured.set_core_wait_ns(2'000'000);
  EXPECT_THAT(page(), HasSubstr("mean of 3 steps; no plan; 40% of it waiting for a core that others had, "));
  run.job.mutable_plan()->add_stages()->set_core_wait_ns(1'000'000);
  EXPECT_THAT(page(), HasSubstr("40% of it waiting for a core that ranks of the job share, which the prediction counts"));
  run.job.clear_plan();
  EXPECT_THAT(page(), Not(HasSubstr("no time lost to them")));
}

TEST(JobReport, StandsAloneAndSaysAll) {
  const RestartedJob run;
  const std::unique_ptr<ReportFixture> fixture = SmallStep();
  const std::unique_ptr<TracedJob> traced = Traced(*fixture);
  const absl::StatusOr<PolicyComparison> comparison = ComparePolicies(fixture->request);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  const std::string page = Page({.job = &run.job,
                                 .curves = &run.curves,
                                 .plan = &traced->plan,
                                 .traced = traced.get(),
                                 .comparison = &*comparison,
                                 .version = "1.0",
                                 .now = Nanos(150 * kSecond)});
  EXPECT_THAT(page, HasSubstr("<h1>a &lt;b&gt; &amp; c</h1>"));
  for (const char* other : {"<script", "http:", "https:", "{{", "<b> &", "nan", "inf\"", "src="}) {
    EXPECT_EQ(page.find(other), std::string::npos) << other;
  }
  for (const char* section : {"run", "recoveries", "step", "recomputation", "memory", "loss", "plan", "events"}) {
    EXPECT_EQ(CountOf(page, absl::StrCat("<section class=\"panel\" id=\"", section, "\"")), 1u) << section;
  }
  EXPECT_EQ(CountOf(page, "<svg class=\"plot\" role=\"img\""), 4u) << "the run, the step, memory over the step, the loss";
  EXPECT_EQ(CountOf(page, "<desc>"), 4u);
  EXPECT_EQ(CountOf(page, "<div class=\"fall\">"), 1u) << "memory at its peak, kind by kind";
  EXPECT_EQ(CountOf(page, "style=\""), 0u) << "the live page's policy forbids it";
  EXPECT_GE(CountOf(page, "<summary>As a table</summary>"), 3u);
  EXPECT_THAT(page, HasSubstr("over its last steps; 10 of 10 steps done"));
  EXPECT_THAT(page, HasSubstr("store everything"));
  EXPECT_THAT(page, HasSubstr("What it saved is memory: "));
  EXPECT_THAT(page, HasSubstr("7.00 s without training, 2 steps done again"));
  EXPECT_THAT(page, HasSubstr("rank 2 &lt;was&gt; killed; attributed to node n1 → all ranks run, from step 3"));
  EXPECT_THAT(page, HasSubstr("step 4 took "));
  EXPECT_THAT(page, HasSubstr("validation after step 10: 4.5000"));
  EXPECT_EQ(page, Page({.job = &run.job,
                        .curves = &run.curves,
                        .plan = &traced->plan,
                        .traced = traced.get(),
                        .comparison = &*comparison,
                        .version = "1.0",
                        .now = Nanos(150 * kSecond)}))
      << "the same bytes";
}

TEST(JobReport, PredictedAndMeasuredLanesStandAboveEachOther) {
  const std::unique_ptr<ReportFixture> fixture = SmallStep();
  const std::unique_ptr<TracedJob> traced = Traced(*fixture);
  const std::string both = StepPlot(*traced);
  EXPECT_EQ(CountOf(both, ">predicted</text>"), 2u) << "of two stages";
  EXPECT_EQ(CountOf(both, ">measured</text>"), 2u);
  EXPECT_THAT(both, HasSubstr("class=\"k-hidden\""));
  EXPECT_THAT(both, HasSubstr("class=\"k-forward\""));
  traced->predicted.reset();
  EXPECT_THAT(StepPlot(*traced), Not(HasSubstr(">predicted</text>")));
}

TEST(JobReport, PartsAreThePage) {
  const RestartedJob run;
  const std::unique_ptr<ReportFixture> fixture = SmallStep();
  const JobReport report{.job = &run.job, .curves = &run.curves, .plan = &fixture->plan, .now = Nanos(150 * kSecond)};
  const absl::StatusOr<std::vector<PagePart>> parts = JobReportParts(report);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const std::string page = Page(report);
  EXPECT_EQ(parts->front().id, "head");
  for (const PagePart& part : *parts) {
    EXPECT_EQ(CountOf(page, part.html), 1u) << part.id;
    EXPECT_FALSE(part.html.empty()) << part.id;
  }
}

TEST(JobReport, MemoryOfEachStageIsPlannedAboveMeasured) {
  RestartedJob run;
  const std::unique_ptr<ReportFixture> fixture = SmallStep();
  const std::string planned = StagesMemory(fixture->plan, run.job);
  EXPECT_EQ(CountOf(planned, ", planned</b>"), 2u);
  EXPECT_EQ(CountOf(planned, "<b>measured</b>"), 0u);
  v1::StageMeasurement& measured = *run.job.add_measured();
  measured.set_stage(1);
  measured.set_steps(3);
  measured.set_state_bytes(3 << 20);
  measured.set_arena_peak_bytes(5 << 20);
  const std::string both = StagesMemory(fixture->plan, run.job);
  EXPECT_EQ(CountOf(both, "<b>measured</b>"), 1u);
  EXPECT_THAT(both, HasSubstr(">8.0 MiB</span>"));
  EXPECT_THAT(both, HasSubstr("<title>activations: 5.0 MiB</title>"));
  run.job.mutable_measured(0)->set_stage(7);  // the plan does not have this stage
  EXPECT_EQ(CountOf(StagesMemory(fixture->plan, run.job), "<b>measured</b>"), 0u);
}

TEST(JobReport, ManyPointsAreAlsoDrawnAsTheirMeans) {
  v1::JobCurves curves;
  for (int64_t step = 0; step < 64; ++step) *curves.add_steps() = Point(1, step, 111 + step, step % 2 == 0 ? 1 : 3);
  const std::string many = LossPlot(curves);
  EXPECT_EQ(CountOf(many, "class=\"each\""), 1u);
  EXPECT_EQ(CountOf(many, "class=\"line\""), 1u);
  curves.mutable_steps()->DeleteSubrange(10, 54);
  EXPECT_EQ(CountOf(LossPlot(curves), "class=\"each\""), 0u);
}

// Ranks may report any figures. So strange figures must be drawn too.
TEST(JobReport, StrangeFiguresAreDrawnToo) {
  v1::JobCurves curves;
  *curves.add_steps() = Point(1, 0, 1, 1e15);
  EXPECT_THAT(LossPlot(curves), HasSubstr("<svg")) << "one loss, and so large that a thousandth of a nat is nothing beside it";
  curves.clear_steps();
  curves.add_evaluations()->set_steps_done(7);
  curves.mutable_evaluations(0)->set_loss(2);
  EXPECT_THAT(LossPlot(curves), AllOf(HasSubstr("validation after step 7"), HasSubstr(">7</text>"))) << "without a step";
  const std::unique_ptr<ReportFixture> fixture = SmallStep();
  const std::unique_ptr<TracedJob> traced = Traced(*fixture);
  for (std::vector<ActionSpan>& stage : traced->measured.stages) {
    for (ActionSpan& span : stage) span.begin = span.end = Nanos(0);
  }
  traced->measured.end = Nanos(0);
  const RestartedJob run;
  EXPECT_THAT(
      Page(
          {.job = &run.job, .curves = &run.curves, .plan = &traced->plan, .traced = traced.get(), .now = Nanos(150 * kSecond)}),
      HasSubstr("</html>"))
      << "a step in which no time went by";
}

TEST(JobReport, BeforeAStepIsTracedThePlanIsShown) {
  const RestartedJob run;
  const std::unique_ptr<ReportFixture> fixture = SmallStep();
  const std::string page = Page({.job = &run.job, .curves = &run.curves, .plan = &fixture->plan, .now = Nanos(150 * kSecond)});
  EXPECT_THAT(page, HasSubstr("No step of the present plan has been traced"));
  EXPECT_THAT(page, HasSubstr("as planned"));
  EXPECT_EQ(CountOf(page, "<svg class=\"plot\""), 2u) << "the run, the loss";
  EXPECT_EQ(CountOf(page, "<div class=\"fall\">"), 1u) << "what is planned of memory";
}

TEST(JobReport, OfAJobThatWaitsThereIsLittle) {
  v1::Job job;
  job.set_id("j1");
  job.mutable_spec()->set_name("tiny");
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_submitted_unix_ns(100 * kSecond);
  *job.add_events() = Event(100, v1::JOB_STATE_QUEUED, "submitted");
  const v1::JobCurves curves;
  const std::string page = Page({.job = &job, .curves = &curves, .now = Nanos(100 * kSecond)});
  EXPECT_THAT(page, HasSubstr("not measured"));
  for (const char* section : {"recoveries", "recomputation", "memory", "loss", "plan"}) {
    EXPECT_THAT(page, Not(HasSubstr(absl::StrCat("id=\"", section, "\""))));
  }
}

TEST(JobReport, LossesThatAreNoNumbersAreLeftOut) {
  v1::JobCurves curves;
  *curves.add_steps() = Point(1, 0, 1, std::nan(""));
  EXPECT_EQ(LossPlot(curves), "");
  *curves.add_steps() = Point(1, 1, 2, 3);
  const std::string plot = LossPlot(curves);
  EXPECT_THAT(plot, HasSubstr("class=\"line\""));
  EXPECT_THAT(plot, Not(HasSubstr("d=\"Mnan")));
}

TEST(JobReport, ShowsTheLoadOfExperts) {
  RestartedJob run;
  const auto page = [&] { return Page({.job = &run.job, .curves = &run.curves, .now = Nanos(150 * kSecond)}); };
  EXPECT_THAT(page(), AllOf(Not(HasSubstr("Rows of the fullest rank")), Not(HasSubstr("id=\"experts\""))));
  run.job.mutable_progress()->set_expert_skew(1.5);
  run.job.mutable_progress()->set_expert_dropped_ratio(0.031);
  for (v1::StepPoint& point : *run.curves.mutable_steps()) {
    point.set_expert_skew(1.25);
    point.set_expert_dropped_ratio(0.02);
  }
  EXPECT_THAT(page(), AllOf(HasSubstr("Rows of the fullest rank"), HasSubstr("1.50x"),
                            HasSubstr("3.1% of the rows of experts dropped in the newest step"), HasSubstr("id=\"experts\""),
                            HasSubstr("At the last step the fullest rank received 1.25 times the even share of rows; at most "
                                      "2.0% of the rows of a step were dropped.")));
  EXPECT_EQ(CountOf(ExpertLoadPlot(run.curves), "class=\"line\""), 2u) << "each attempt is a line";
  run.job.mutable_progress()->set_expert_dropped_ratio(0);
  run.job.mutable_progress()->set_expert_in_rounds_ratio(0.042);
  run.job.mutable_progress()->set_expert_rounds(17);
  for (v1::StepPoint& point : *run.curves.mutable_steps()) {
    point.set_expert_dropped_ratio(0);
    point.set_expert_in_rounds_ratio(0.03);
  }
  EXPECT_THAT(page(), AllOf(HasSubstr("4.2% of the rows of experts in 17 rounds in the newest step"),
                            HasSubstr("at most 3.0% of the rows of a step went through rounds.")));
  EXPECT_EQ(ExpertLoadPlot({}), "");
}

}  // namespace
}  // namespace lynx
