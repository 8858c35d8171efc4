#include "server/metrics/job_series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prometheus/text_serializer.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string PageOf(const JobSeries& series) {
  JobSeries::Families families;
  series.CollectTo(families);
  std::vector<prometheus::MetricFamily> all;
  for (auto& [metric, family] : families) all.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(all);
}

TEST(JobSeries, ValuesKeepTheirPlacesAndTheirTypes) {
  JobSeries series("j1", "gpt");
  double& steps = series.Of(metric::kJobSteps);
  for (const char* stage : {"0", "1", "2"}) series.Of(metric::kJobPhaseSeconds, {{"stage", stage}, {"phase", "forward"}}) = 0.5;
  steps += 2;
  series.Of(metric::kJobSteps) += 1;
  series.Of(metric::kJobLoss) = 2.5;
  const std::string page = PageOf(series);
  EXPECT_THAT(page, HasSubstr("# TYPE lynx_job_steps_total counter\nlynx_job_steps_total{job_id=\"j1\",job_name=\"gpt\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE lynx_job_loss gauge\nlynx_job_loss{job_id=\"j1\",job_name=\"gpt\"} 2.5\n"));
  EXPECT_THAT(page,
              HasSubstr("lynx_job_phase_seconds_total{job_id=\"j1\",job_name=\"gpt\",phase=\"forward\",stage=\"2\"} 0.5\n"));
  EXPECT_THAT(page, HasSubstr(std::string("# HELP lynx_job_loss ") + metric::kJobLoss.help));
}

TEST(JobSeries, WhatIsOfAPlanGoesWithIt) {
  JobSeries series("j1", "gpt");
  series.OfPlan(metric::kJobPredictedStep) = 1;
  series.Of(metric::kJobSteps) = 7;
  series.EndPlan();
  EXPECT_THAT(PageOf(series), Not(HasSubstr("predicted")));
  EXPECT_THAT(PageOf(series), HasSubstr("lynx_job_steps_total"));
  EXPECT_EQ(series.OfPlan(metric::kJobPredictedStep), 0);
}

TEST(JobSeries, AHistogramCountsUpToEachBound) {
  JobSeries series("j1", "gpt");
  for (const double value : {0.5, 1.0, 1.5, 9.0}) series.Observe(metric::kJobStepSeconds, {1, 2}, value);
  const std::string page = PageOf(series);
  for (const char* line :
       {"bucket{job_id=\"j1\",job_name=\"gpt\",le=\"1\"} 2\n", "bucket{job_id=\"j1\",job_name=\"gpt\",le=\"2\"} 3\n",
        "bucket{job_id=\"j1\",job_name=\"gpt\",le=\"+Inf\"} 4\n", "sum{job_id=\"j1\",job_name=\"gpt\"} 12\n",
        "count{job_id=\"j1\",job_name=\"gpt\"} 4\n"}) {
    EXPECT_THAT(page, HasSubstr(std::string("lynx_job_step_seconds_") + line));
  }
}

TEST(JobSeriesDeathTest, OnlyListedMetricsOfTheRightType) {
  constexpr metric::Metric kUnlisted{"lynx_unlisted", metric::Type::kGauge, "1", "", metric::Daemon::kServer, "None."};
  JobSeries series("j1", "gpt");
  EXPECT_DEATH(series.Of(kUnlisted), "IsListed");
  EXPECT_DEATH(series.OfPlan(metric::kJobStepSeconds), "kHistogram");
  EXPECT_DEATH(series.Observe(metric::kJobLoss, {1}, 1), "kHistogram");
}

}  // namespace
}  // namespace lynx::server
