#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prometheus/text_serializer.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Page(const ServerMetrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.registry()->Collect());
}

TEST(ServerMetricsTest, CountsStepsOnceAndTimesOfAllRanks) {
  ServerMetrics metrics;
  for (int32_t rank = 0; rank < 2; ++rank) {
    StepRecorded step{.job = JobId("j1"), .rank = rank, .stage = rank, .new_step = rank == 0};
    step.step = {.loss = 2.5, .tokens = 512, .duration = Nanos(200'000'000), .forward = Nanos(50'000'000),
                 .arena_peak = Bytes(1000 + rank)};
    metrics.Step(step, "gpt");
  }
  metrics.Evaluated({.job = JobId("j1"), .loss = 3.5}, "gpt");
  const std::string page = Page(metrics);
  EXPECT_THAT(page, HasSubstr("lynx_job_validation_loss{job_id=\"j1\",job_name=\"gpt\"} 3.5\n"));
  EXPECT_THAT(page, HasSubstr("lynx_job_steps_total{job_id=\"j1\",job_name=\"gpt\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("lynx_job_tokens_total{job_id=\"j1\",job_name=\"gpt\"} 512\n"));
  EXPECT_THAT(page, HasSubstr("lynx_job_loss{job_id=\"j1\",job_name=\"gpt\"} 2.5\n"));
  EXPECT_THAT(page, HasSubstr("lynx_job_phase_seconds_total{job_id=\"j1\",job_name=\"gpt\",phase=\"forward\"} 0.1"));
  EXPECT_THAT(page, HasSubstr("lynx_job_memory_peak_measured_bytes{job_id=\"j1\",job_name=\"gpt\",stage=\"1\"} 1001\n"));
  EXPECT_THAT(page, HasSubstr("lynx_job_step_seconds_count{job_id=\"j1\",job_name=\"gpt\"} 1\n"));
}

TEST(ServerMetricsTest, ANewPlanReplacesWhatTheOldOneSaid) {
  ServerMetrics metrics;
  Plan plan;
  plan.stages.resize(2);
  plan.stages[1].arena = Bytes(7);
  metrics.Planned(JobId("j1"), "gpt", plan);
  EXPECT_THAT(Page(metrics), HasSubstr("lynx_job_memory_peak_planned_bytes{job_id=\"j1\",job_name=\"gpt\",stage=\"1\"} 7\n"));
  plan.stages.resize(1);
  metrics.Replanned(JobId("j1"), "gpt", "forced");
  metrics.Planned(JobId("j1"), "gpt", plan);
  EXPECT_THAT(Page(metrics), Not(HasSubstr("stage=\"1\"")));
  EXPECT_THAT(Page(metrics), HasSubstr("stage=\"0\""));
  metrics.ResumedFromCopies(JobId("j1"), "gpt");
  EXPECT_THAT(Page(metrics), HasSubstr("lynx_job_resumes_from_copies_total{job_id=\"j1\",job_name=\"gpt\"} 1\n"));
  EXPECT_THAT(Page(metrics), HasSubstr("lynx_job_replans_total{decision=\"forced\",job_id=\"j1\",job_name=\"gpt\"} 1\n"));
}

TEST(ServerMetricsTest, SeriesOfEndedJobsAreDropped) {
  ServerMetrics metrics;
  metrics.Step({.job = JobId("j1")}, "gpt");
  metrics.Restarted(JobId("j1"), "gpt", 0);
  EXPECT_THAT(Page(metrics), HasSubstr("lynx_job_restarts_total{job_id=\"j1\",job_name=\"gpt\"} 0\n"));
  metrics.Restarted(JobId("j1"), "gpt", 2);
  EXPECT_THAT(Page(metrics), HasSubstr("lynx_job_restarts_total{job_id=\"j1\",job_name=\"gpt\"} 2\n"));
  metrics.Ended(JobId("j1"), Nanos(1));
  metrics.Prune(Nanos(600'000'000'000));
  EXPECT_THAT(Page(metrics), HasSubstr("job_id=\"j1\""));
  metrics.Prune(Nanos(1'000'000'000'000));
  EXPECT_THAT(Page(metrics), Not(HasSubstr("job_id=\"j1\"")));
}

TEST(ServerMetricsTest, ShowsJobsByStateFromTheStart) {
  ServerMetrics metrics;
  EXPECT_THAT(Page(metrics), HasSubstr("lynx_jobs{state=\"queued\"} 0\n"));
  metrics.SetJobs({1, 0, 0, 2, 0, 0, 0});
  metrics.SetAttached(3, 4);
  metrics.PlanMade({.result = Infeasible{}}, Nanos(5'000'000));
  metrics.Committed(Nanos(4'000'000), false);
  const std::string page = Page(metrics);
  EXPECT_THAT(page, HasSubstr("lynx_jobs{state=\"running\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("lynx_agents_attached 3\n"));
  EXPECT_THAT(page, HasSubstr("lynx_workers_attached 4\n"));
  EXPECT_THAT(page, HasSubstr("lynx_plan_duration_seconds_count{result=\"infeasible\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("lynx_store_commit_failures_total 1\n"));
}

}  // namespace
}  // namespace lynx
