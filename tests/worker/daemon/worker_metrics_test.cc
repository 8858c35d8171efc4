#include "worker/daemon/worker_metrics.h"

#include <gtest/gtest.h>

#include <sstream>

#include "prometheus/text_serializer.h"

namespace lynx::worker {
namespace {

std::string Page(const WorkerMetrics& metrics) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, metrics.registry()->Collect());
  return out.str();
}

bool Has(const std::string& page, const std::string& line) { return page.find(line + "\n") != std::string::npos; }

TEST(WorkerMetrics, ServesWhatARankReports) {
  WorkerMetrics metrics(true);
  const RankKey key{JobId("j1"), Generation(1), 3};
  metrics.SetAttached(true);
  metrics.SetRanksRunning(1);
  metrics.AddRank(key);
  for (int i = 0; i < 2; ++i) {
    metrics.Observe(key, {.loss = 2.5,
                          .tokens = 100,
                          .duration = Nanos(500'000'000),
                          .forward = Nanos(250'000'000),
                          .recompute_hidden = Nanos(125'000'000),
                          .arena_peak = Bytes(4096),
                          .bytes_sent = 10,
                          .resident = Bytes(8192)});
  }
  const std::string page = Page(metrics);
  EXPECT_TRUE(Has(page, "lynx_worker_attached 1")) << page;
  EXPECT_TRUE(Has(page, "lynx_worker_ranks_running 1"));
  EXPECT_TRUE(Has(page, "lynx_rank_steps_total{job_id=\"j1\",rank=\"3\"} 2"));
  EXPECT_TRUE(Has(page, "lynx_rank_tokens_total{job_id=\"j1\",rank=\"3\"} 200"));
  EXPECT_TRUE(Has(page, "lynx_rank_bytes_sent_total{job_id=\"j1\",rank=\"3\"} 20"));
  EXPECT_TRUE(Has(page, "lynx_rank_loss{job_id=\"j1\",rank=\"3\"} 2.5"));
  EXPECT_TRUE(Has(page, "lynx_rank_arena_peak_bytes{job_id=\"j1\",rank=\"3\"} 4096"));
  EXPECT_TRUE(Has(page, "lynx_rank_resident_bytes{job_id=\"j1\",rank=\"3\"} 8192"));
  EXPECT_TRUE(Has(page, "lynx_rank_phase_seconds_total{job_id=\"j1\",phase=\"forward\",rank=\"3\"} 0.5"));
  EXPECT_TRUE(Has(page, "lynx_rank_phase_seconds_total{job_id=\"j1\",phase=\"recompute_hidden\",rank=\"3\"} 0.25"));
  EXPECT_TRUE(Has(page, "lynx_rank_phase_seconds_total{job_id=\"j1\",phase=\"checkpoint\",rank=\"3\"} 0"));
  EXPECT_TRUE(Has(page, "lynx_rank_step_seconds_count{job_id=\"j1\",rank=\"3\"} 2"));
  EXPECT_TRUE(Has(page, "lynx_rank_step_seconds_sum{job_id=\"j1\",rank=\"3\"} 1"));
}

TEST(WorkerMetrics, ServesSeriesOfRanksOnlyWhereAskedFor) {
  WorkerMetrics metrics(false);
  const RankKey key{JobId("j1"), Generation(1), 3};
  metrics.AddRank(key);
  metrics.Observe(key, {.bytes_sent = 10, .core_wait = Nanos(250'000'000)});
  metrics.Observe(key, {.bytes_sent = 10, .core_wait = Nanos(500'000'000)});
  const std::string page = Page(metrics);
  EXPECT_EQ(page.find("lynx_rank_"), std::string::npos) << page;
  EXPECT_TRUE(Has(page, "lynx_worker_steps_total 2"));
  EXPECT_TRUE(Has(page, "lynx_worker_bytes_sent_total 20"));
  EXPECT_TRUE(Has(page, "lynx_worker_core_wait_seconds_total 0.75"));
  metrics.RemoveRank(key);
}

TEST(WorkerMetrics, ARanksSeriesGoWithItsLastGeneration) {
  WorkerMetrics metrics(true);
  const RankKey first{JobId("j1"), Generation(1), 0};
  const RankKey second{JobId("j1"), Generation(2), 0};
  metrics.AddRank(first);
  metrics.AddRank(second);
  metrics.RemoveRank(first);
  metrics.Observe(second, {.tokens = 1});
  EXPECT_TRUE(Has(Page(metrics), "lynx_rank_steps_total{job_id=\"j1\",rank=\"0\"} 1"));
  metrics.RemoveRank(second);
  EXPECT_EQ(Page(metrics).find("lynx_rank_steps_total{"), std::string::npos);
  // A removed rank may be added again.
  metrics.AddRank(first);
  EXPECT_TRUE(Has(Page(metrics), "lynx_rank_steps_total{job_id=\"j1\",rank=\"0\"} 0"));
}

TEST(WorkerMetrics, CountsExitsByOutcomeFromZero) {
  WorkerMetrics metrics(true);
  EXPECT_TRUE(Has(Page(metrics), "lynx_worker_rank_exits_total{outcome=\"killed\"} 0"));
  metrics.CountExit(RankOutcome::kKilled);
  EXPECT_TRUE(Has(Page(metrics), "lynx_worker_rank_exits_total{outcome=\"killed\"} 1"));
}

}  // namespace
}  // namespace lynx::worker
