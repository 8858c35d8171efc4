#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "planner/problem/flops.h"
#include "prometheus/text_serializer.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Page(const ServerMetrics& metrics) {
  return "\n" + prometheus::TextSerializer().Serialize(metrics.page()->Collect());
}

// Returns the value of a series. `series`: its name and labels, in the order of the page. Returns NaN if the page does not have
// the series.
double Value(const std::string& page, const std::string& series) {
  const size_t at = page.find("\n" + series + " ");
  return at == std::string::npos ? std::nan("") : std::strtod(page.c_str() + at + series.size() + 2, nullptr);
}

std::string OfJob(const std::string& name, const std::string& before = "", const std::string& after = "") {
  return "lynx_job_" + name + "{" + before + "job_id=\"j1\",job_name=\"gpt\"" + after + "}";
}

JobRecord MakeJob(JobState state = JobState::kRunning) {
  auto spec = std::make_shared<JobSpec>();
  spec->name = "gpt";
  spec->train.steps = 100;
  return {.id = JobId("j1"), .spec = spec, .state = state, .device_kind = DeviceKind::kCpu};
}

JobEvent Event(JobState state, const std::string& kind, int64_t seconds) {
  return {.time = Nanos(seconds * 1'000'000'000), .state = state, .kind = kind};
}

Plan MakeTwoStages() {
  Plan plan;
  plan.model = {.layers = 4, .hidden = 64, .heads = 4, .seq = 32};
  plan.layout = {.tp = 1, .pp = 2, .dp = 1};
  plan.step = Nanos(100'000'000);
  plan.stages.resize(2);
  plan.stages[1].arena = Bytes(2000);
  plan.stages[1].states = {.weights = Bytes(4), .gradients = Bytes(5), .optimizer = Bytes(6)};
  plan.stages[1].recompute_hidden = Nanos(250'000'000);
  return plan;
}

TEST(ServerMetricsTest, CountsStepsOnceAndTimesOfAllRanks) {
  ServerMetrics metrics;
  const JobRecord job = MakeJob();
  for (int32_t rank = 0; rank < 2; ++rank) {
    StepRecorded step{.job = job.id, .rank = rank, .stage = rank, .new_step = rank == 0};
    step.step = {.step = 6,
                 .loss = 2.5,
                 .gradient_norm = 1.5,
                 .lr = 0.25,
                 .tokens = 512,
                 .duration = Nanos(200'000'000),
                 .forward = Nanos(50'000'000),
                 .data_wait = Nanos(20'000'000),
                 .arena_peak = Bytes(1000 + rank),
                 .copied_steps = 4,
                 .copies_skipped = 2};
    metrics.Step(step, job, 2, Nanos(0));
  }
  metrics.jobs().Evaluated({.job = job.id, .loss = 3.5}, job);
  const std::string page = Page(metrics);
  EXPECT_EQ(Value(page, OfJob("validation_loss")), 3.5);
  EXPECT_EQ(Value(page, OfJob("steps_total")), 1);
  EXPECT_EQ(Value(page, OfJob("tokens_total")), 512);
  EXPECT_EQ(Value(page, OfJob("loss")), 2.5);
  EXPECT_EQ(Value(page, OfJob("gradient_norm")), 1.5);
  EXPECT_EQ(Value(page, OfJob("learning_rate")), 0.25);
  EXPECT_EQ(Value(page, OfJob("done_steps")), 7);
  EXPECT_EQ(Value(page, OfJob("copied_steps")), 4);
  EXPECT_EQ(Value(page, OfJob("copies_skipped_total")), 2);
  EXPECT_EQ(Value(page, OfJob("step_seconds_count")), 1);
  for (const std::string stage : {"0", "1"}) {
    EXPECT_DOUBLE_EQ(Value(page, OfJob("phase_seconds_total", "", ",phase=\"forward\",stage=\"" + stage + "\"")), 0.05);
    EXPECT_DOUBLE_EQ(Value(page, OfJob("phase_seconds_total", "", ",phase=\"data_wait\",stage=\"" + stage + "\"")), 0.02);
    EXPECT_DOUBLE_EQ(Value(page, OfJob("stage_step_seconds", "", ",stage=\"" + stage + "\"")), 0.2);
  }
  EXPECT_EQ(Value(page, OfJob("memory_peak_measured_bytes", "", ",kind=\"activations\",stage=\"1\"")), 1001);
  EXPECT_THAT(page, Not(HasSubstr("prediction_error"))) << "nothing was predicted";
}

TEST(ServerMetricsTest, SharesAreOfWholeSteps) {
  ServerMetrics metrics;
  const JobRecord job = MakeJob();
  const auto report = [&](int64_t step, int32_t rank, StepReport times) {
    times.step = step;
    times.duration = Nanos(100);
    metrics.Step({.job = job.id, .rank = rank, .stage = rank, .step = times}, job, 2, Nanos(0));
  };
  report(1, 0, {.recompute_hidden = Nanos(30), .recompute_exposed = Nanos(0), .stall = Nanos(10), .core_wait = Nanos(70)});
  EXPECT_THAT(Page(metrics), Not(HasSubstr("lynx_job_bubble_ratio"))) << "rank 1 has not reported";
  report(1, 1,
         {.recompute_hidden = Nanos(0),
          .recompute_exposed = Nanos(10),
          .tensor_wait = Nanos(20),
          .stall = Nanos(40),
          .data_parallel_wait = Nanos(6),
          .norm_wait = Nanos(4)});
  report(2, 0, {});
  const std::string page = Page(metrics);
  EXPECT_DOUBLE_EQ(Value(page, OfJob("recompute_hidden_ratio")), 0.75);
  EXPECT_DOUBLE_EQ(Value(page, OfJob("bubble_ratio")), 0.25);
  EXPECT_DOUBLE_EQ(Value(page, OfJob("communication_exposed_ratio")), 0.15);
  EXPECT_DOUBLE_EQ(Value(page, OfJob("core_wait_ratio")), 0.35);
}

// Each rank reports the rows of the whole job. The fullest expert is the maximum over all ranks, so it is known when all ranks
// have reported the step.
TEST(ServerMetricsTest, ShowsTheLoadOfExperts) {
  ServerMetrics metrics;
  const JobRecord job = MakeJob();
  const auto report = [&](int64_t step, int32_t rank, double skew, double fullest_expert) {
    const ExpertLoad load{.rows_routed = 1000,
                          .rows_dropped = 30,
                          .rows_in_rounds = 20,
                          .rounds = 7,
                          .skew = skew,
                          .rows = 400,
                          .fullest_dispatch = fullest_expert / 2,
                          .fullest_expert = fullest_expert};
    metrics.Step(
        {.job = job.id, .rank = rank, .new_step = rank == 0, .step = {.step = step, .duration = Nanos(1), .experts = load}},
        job, 2, Nanos(0));
  };
  report(1, 0, 1.5, 2);
  report(2, 0, 1.75, 2);
  EXPECT_THAT(Page(metrics), Not(HasSubstr("lynx_job_expert_load_fullest"))) << "rank 1 has not reported";
  report(1, 1, 1.5, 3.5);
  const std::string page = Page(metrics);
  EXPECT_EQ(Value(page, OfJob("expert_load_skew")), 1.75);
  EXPECT_EQ(Value(page, OfJob("expert_load_fullest")), 3.5);
  EXPECT_EQ(Value(page, OfJob("expert_load_peak")), 1.75);
  EXPECT_EQ(Value(page, OfJob("expert_rows_routed_total")), 2000) << "each step counts once";
  EXPECT_EQ(Value(page, OfJob("expert_rows_dropped_total")), 60);
  EXPECT_EQ(Value(page, OfJob("expert_rows_in_rounds_total")), 40);
  EXPECT_EQ(Value(page, OfJob("expert_rounds_total")), 14);
}

TEST(ServerMetricsTest, ShowsNoLoadOfExpertsWithoutExperts) {
  ServerMetrics metrics;
  const JobRecord job = MakeJob();
  metrics.jobs().Planned(job, MakeTwoStages(), nullptr);
  metrics.jobs().Updated(job, 2);
  for (int64_t step = 0; step < 2; ++step) {
    metrics.Step({.job = job.id, .new_step = true, .step = {.step = step, .duration = Nanos(1)}}, job, 2, Nanos(0));
  }
  EXPECT_THAT(Page(metrics), Not(HasSubstr("lynx_job_expert")));
}

TEST(ServerMetricsTest, ShowsThePlannedLoadOfExperts) {
  ServerMetrics metrics;
  JobRecord job = MakeJob();
  JobSpec spec = *job.spec;
  spec.model.moe = {.experts = 8, .top_k = 2, .capacity = 2, .skew = 1.25};
  job.spec = std::make_shared<const JobSpec>(spec);
  Plan plan = MakeTwoStages();
  plan.model.family = ModelFamily::kLlama;
  plan.model.moe = spec.model.moe;
  metrics.jobs().Planned(job, plan, nullptr);
  metrics.jobs().Updated(job, 2);
  const std::string page = Page(metrics);
  EXPECT_EQ(Value(page, OfJob("expert_load_skew_planned")), 1.25);
  EXPECT_EQ(Value(page, OfJob("expert_rows_dropped_total")), 0) << "a rate needs a beginning";
  EXPECT_EQ(Value(page, OfJob("expert_rounds_total")), 0) << "likewise";
}

TEST(ServerMetricsTest, SetsWhatIsMeasuredBesideWhatWasPlanned) {
  ServerMetrics metrics;
  JobRecord job = MakeJob();
  const Plan plan = MakeTwoStages();
  ClusterTopology cluster;
  cluster.groups.resize(1);
  cluster.groups[0].profile.flops_per_second = 1'000'000'000;
  metrics.jobs().Planned(job, plan, &cluster);
  job.progress.step = Nanos(110'000'000);
  const StepReport step{.tokens = 64, .duration = Nanos(200'000'000), .arena_peak = Bytes(1500)};
  metrics.Step({.job = job.id, .rank = 0, .stage = 1, .new_step = true, .step = step}, job, 2, Nanos(0));
  const std::string page = Page(metrics);
  EXPECT_DOUBLE_EQ(Value(page, OfJob("predicted_step_seconds")), 0.1);
  EXPECT_NEAR(Value(page, OfJob("step_prediction_error_ratio")), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(Value(page, OfJob("memory_prediction_error_ratio", "", ",stage=\"1\"")), -0.25);
  EXPECT_DOUBLE_EQ(Value(page, OfJob("predicted_phase_seconds", "", ",phase=\"recompute_hidden\",stage=\"1\"")), 0.25);
  EXPECT_EQ(Value(page, OfJob("memory_peak_planned_bytes", "", ",kind=\"activations\",stage=\"1\"")), 2000);
  EXPECT_EQ(Value(page, OfJob("memory_peak_planned_bytes", "", ",kind=\"optimizer\",stage=\"1\"")), 6);
  EXPECT_EQ(Value(page, OfJob("info", "device=\"cpu\",", ",layout=\"tp1 pp2 dp1\",queue=\"default\"")), 1);
  const double flops = StepFlops(plan.model, 2, FlopCount::kModel);  // 64 tokens, 32 for each sample
  EXPECT_DOUBLE_EQ(Value(page, OfJob("model_flops_total")), flops);
  EXPECT_DOUBLE_EQ(Value(page, OfJob("mfu_ratio")), FlopsUtilization(flops, 0.2, 2, 1'000'000'000));
  metrics.jobs().Planned(job, plan, nullptr);
  EXPECT_THAT(Page(metrics), Not(HasSubstr("lynx_job_mfu_ratio"))) << "what devices can do is not known";
}

TEST(ServerMetricsTest, ANewPlanReplacesWhatTheOldOneSaid) {
  ServerMetrics metrics;
  const JobRecord job = MakeJob();
  Plan plan = MakeTwoStages();
  metrics.jobs().Planned(job, plan, nullptr);
  metrics.Step({.job = job.id, .rank = 1, .stage = 1, .step = {.forward = Nanos(1)}}, job, 2, Nanos(0));
  EXPECT_THAT(Page(metrics), HasSubstr("stage=\"1\""));
  plan.stages.resize(1);
  metrics.Happened(job, {Event(JobState::kPlanning, "replan-forced", 1)}, 2);
  metrics.jobs().Planned(job, plan, nullptr);
  const std::string page = Page(metrics);
  for (const char* name :
       {"memory_peak_planned_bytes", "memory_peak_measured_bytes", "predicted_phase_seconds", "stage_step_seconds"}) {
    const size_t first = page.find("# TYPE lynx_job_" + std::string(name));
    ASSERT_NE(first, std::string::npos) << name;
    EXPECT_THAT(page.substr(first, page.find("# HELP", first) - first), Not(HasSubstr("stage=\"1\""))) << name;
  }
  metrics.Step({.job = job.id, .rank = 0, .stage = 0, .step = {.forward = Nanos(1)}}, job, 1, Nanos(0));
  EXPECT_EQ(Value(Page(metrics), OfJob("replans_total", "decision=\"forced\",")), 1);
}

TEST(ServerMetricsTest, CountsWhatHappensToAJob) {
  ServerMetrics metrics;
  JobRecord job = MakeJob();
  job.restarts = 0;
  metrics.Happened(job, {Event(JobState::kQueued, "submitted", 1), Event(JobState::kQueued, "held", 2)}, 0);
  EXPECT_THAT(Page(metrics), Not(HasSubstr("job_id="))) << "it waits, and may be one of thousands";
  metrics.Happened(job, {Event(JobState::kStarting, "placed", 2)}, 4);
  EXPECT_EQ(Value(Page(metrics), OfJob("restarts_total")), 0);
  for (const char* counter :
       {"checkpoints_total", "checkpoint_failures_total", "steps_skipped_total", "resumes_from_copies_total"}) {
    EXPECT_EQ(Value(Page(metrics), OfJob(counter)), 0) << counter << ": so that the first one is an increase";
  }
  job.restarts = 2;
  metrics.Happened(job,
                   {Event(JobState::kRunning, "replan-kept", 2), Event(JobState::kStarting, "replanned", 3),
                    Event(JobState::kRunning, "resumed", 4), Event(JobState::kRunning, "step-skipped", 5),
                    Event(JobState::kRunning, "checkpoint-failed", 6)},
                   4);
  metrics.jobs().CheckpointWritten({.job = job.id, .step = 30, .bytes = Bytes(77), .time = Nanos(9'000'000'000)}, job);
  const std::string page = Page(metrics);
  EXPECT_EQ(Value(page, OfJob("restarts_total")), 2);
  EXPECT_EQ(Value(page, OfJob("replans_total", "decision=\"kept\",")), 1);
  EXPECT_EQ(Value(page, OfJob("replans_total", "decision=\"adopted\",")), 1);
  EXPECT_EQ(Value(page, OfJob("resumes_from_copies_total")), 1);
  EXPECT_EQ(Value(page, OfJob("steps_skipped_total")), 1);
  EXPECT_EQ(Value(page, OfJob("checkpoint_failures_total")), 1);
  EXPECT_EQ(Value(page, OfJob("checkpoints_total")), 1);
  EXPECT_EQ(Value(page, OfJob("checkpoint_bytes")), 77);
  EXPECT_EQ(Value(page, OfJob("checkpoint_steps")), 30);
  EXPECT_EQ(Value(page, OfJob("checkpoint_timestamp_seconds")), 9);
  EXPECT_EQ(Value(page, OfJob("ranks")), 4);
  EXPECT_EQ(Value(page, OfJob("target_steps")), 100);
  EXPECT_EQ(Value(page, "lynx_jobs_submitted_total"), 1);
}

TEST(ServerMetricsTest, ShowsTheNewestCheckpointWhoeverHeardOfIt) {
  ServerMetrics metrics;
  JobRecord job = MakeJob();
  job.checkpoint_step = 30;
  EXPECT_FALSE(metrics.jobs().LacksCheckpoint(job)) << "it has no series yet";
  metrics.Happened(job, {Event(JobState::kRunning, "server-restarted", 1)}, 4);
  EXPECT_TRUE(metrics.jobs().LacksCheckpoint(job));
  metrics.jobs().CheckpointRestored({.job = job.id, .step = 30, .bytes = Bytes(77), .time = Nanos(9'000'000'000)}, job);
  EXPECT_FALSE(metrics.jobs().LacksCheckpoint(job));
  EXPECT_EQ(Value(Page(metrics), OfJob("checkpoint_timestamp_seconds")), 9);
  EXPECT_EQ(Value(Page(metrics), OfJob("checkpoints_total")), 0) << "this server has heard of none";
  metrics.jobs().CheckpointWritten({.job = job.id, .step = 40, .bytes = Bytes(78), .time = Nanos(10'000'000'000)}, job);
  const std::string page = Page(metrics);
  EXPECT_EQ(Value(page, OfJob("checkpoint_bytes")), 78);
  EXPECT_EQ(Value(page, OfJob("checkpoint_steps")), 40);
  EXPECT_EQ(Value(page, OfJob("checkpoint_timestamp_seconds")), 10);
  EXPECT_EQ(Value(page, OfJob("checkpoints_total")), 1);
  JobRecord none = MakeJob();
  none.id = JobId("j2");
  metrics.Happened(none, {Event(JobState::kRunning, "running", 1)}, 4);
  EXPECT_FALSE(metrics.jobs().LacksCheckpoint(none)) << "it has written none";
}

// A query estimates a quantile as if the steps were spread evenly over their bucket. So wide buckets would give wrong
// quantiles.
TEST(ServerMetricsTest, BucketsOfStepsAreNarrow) {
  ServerMetrics metrics;
  const JobRecord job = MakeJob();
  metrics.Step({.job = job.id, .rank = 0, .step = {.duration = Nanos(1'050'000'000)}}, job, 2, Nanos(0));
  const std::string page = Page(metrics);
  std::vector<double> bounds;
  const std::string before = "\nlynx_job_step_seconds_bucket{job_id=\"j1\",job_name=\"gpt\",le=\"";
  for (size_t at = page.find(before); at != std::string::npos; at = page.find(before, at + 1)) {
    bounds.push_back(std::strtod(page.c_str() + at + before.size(), nullptr));
  }
  ASSERT_GT(bounds.size(), 30u);
  EXPECT_EQ(bounds.front(), 0.001);
  EXPECT_EQ(bounds[bounds.size() - 2], 1000);
  EXPECT_TRUE(std::isinf(bounds.back()));
  for (size_t i = 1; i + 1 < bounds.size(); ++i) EXPECT_LE(bounds[i], bounds[i - 1] * 1.7);
  const auto in_bucket = [&](const std::string& le) {
    return Value(page, "lynx_job_step_seconds_bucket{job_id=\"j1\",job_name=\"gpt\",le=\"" + le + "\"}");
  };
  EXPECT_EQ(in_bucket("1"), 0);
  EXPECT_EQ(in_bucket("1.5"), 1);
}

TEST(ServerMetricsTest, AddsUpWhatDevicesDo) {
  ServerMetrics metrics;
  const JobRecord job = MakeJob();
  const auto happens = [&](JobState state, const char* kind, int64_t seconds, int32_t devices) {
    metrics.Happened(job, {Event(state, kind, seconds)}, devices);
  };
  const auto step = [&](int64_t number, bool is_new, int64_t seconds) {
    metrics.Step({.job = job.id, .new_step = is_new, .step = {.step = number}}, job, 2, Nanos(seconds * 1'000'000'000));
  };
  happens(JobState::kQueued, "submitted", 100, 0);
  happens(JobState::kPlanning, "planning", 105, 2);
  happens(JobState::kStarting, "placed", 106, 2);
  happens(JobState::kRunning, "running", 109, 2);
  step(0, true, 110);
  step(1, true, 111);
  happens(JobState::kRunning, "rank-lost", 113, 2);
  happens(JobState::kStarting, "restarting", 114, 2);
  happens(JobState::kRunning, "running", 116, 2);
  step(1, false, 117);
  step(2, true, 118);
  const std::string page = Page(metrics);
  EXPECT_EQ(Value(page, "lynx_queue_wait_seconds_sum"), 5);
  EXPECT_EQ(Value(page, "lynx_time_to_first_step_seconds_sum"), 5);
  EXPECT_EQ(Value(page, "lynx_device_seconds_total{use=\"training\"}"), 6);
  EXPECT_EQ(Value(page, "lynx_device_seconds_total{use=\"planning\"}"), 2);
  EXPECT_EQ(Value(page, "lynx_device_seconds_lost_total{cause=\"start\"}"), 8);
  EXPECT_EQ(Value(page, "lynx_device_seconds_lost_total{cause=\"rank\"}"), 12);
  EXPECT_EQ(Value(page, "lynx_recovery_seconds_sum{phase=\"detect\"}"), 2);
  EXPECT_EQ(Value(page, "lynx_recovery_seconds_sum{phase=\"total\"}"), 6);
  EXPECT_EQ(Value(page, "lynx_recovery_seconds_count{phase=\"total\"}"), 1);
  EXPECT_EQ(Value(page, OfJob("device_seconds_total", "", ",use=\"redoing\"")), 2);
  EXPECT_DOUBLE_EQ(Value(page, OfJob("goodput_ratio")), 6.0 / 26);
}

TEST(ServerMetricsTest, SeriesOfEndedJobsAreDropped) {
  ServerMetrics metrics;
  JobRecord job = MakeJob();
  metrics.jobs().Planned(job, MakeTwoStages(), nullptr);
  metrics.Step({.job = job.id}, job, 2, Nanos(0));
  metrics.Happened(job, {Event(JobState::kSucceeded, "succeeded", 2)}, 0);
  job.state = JobState::kSucceeded;
  metrics.Ended(job.id, Nanos(1));
  metrics.Prune(Nanos(600'000'000'000));
  EXPECT_THAT(Page(metrics), HasSubstr("job_id=\"j1\""));
  EXPECT_EQ(Value(Page(metrics), OfJob("ranks")), 0);
  metrics.Prune(Nanos(1'000'000'000'000));
  EXPECT_THAT(Page(metrics), Not(HasSubstr("job_id=\"j1\"")));
  EXPECT_EQ(Value(Page(metrics), "lynx_jobs_ended_total{state=\"succeeded\"}"), 1);
}

TEST(ServerMetricsTest, SeriesOfThousandsOfShortJobsAreNotKept) {
  ServerMetrics metrics;
  const auto ends = [&](const std::string& id) {
    JobRecord job = MakeJob();
    job.id = JobId(id);
    metrics.Step({.job = job.id}, job, 2, Nanos(0));
    job.state = JobState::kSucceeded;
    metrics.Ended(job.id, Nanos(1));
    metrics.Ended(job.id, Nanos(1));  // the second call has no effect
  };
  ends("first");
  for (size_t i = 1; i < JobMetrics::kMaxEnded; ++i) ends(absl::StrCat("j", i));
  metrics.Prune(Nanos(2));
  EXPECT_THAT(Page(metrics), HasSubstr("job_id=\"first\""));
  ends("last");
  metrics.Prune(Nanos(2));
  EXPECT_THAT(Page(metrics), Not(HasSubstr("job_id=\"first\"")));
  EXPECT_THAT(Page(metrics), HasSubstr("job_id=\"j1\""));
  EXPECT_THAT(Page(metrics), HasSubstr("job_id=\"last\""));
}

TEST(ServerMetricsTest, ShowsWhatWasCountedAndZeroBefore) {
  ServerMetrics metrics;
  std::vector<std::string> from_the_start = {"lynx_store_commit_failures_total", "lynx_calls_refused_total",
                                             "lynx_devices{kind=\"cpu\"}", "lynx_devices{kind=\"cuda\"}"};
  const auto each = [&](const std::string& name, const std::string& label, const std::vector<std::string>& values) {
    for (const std::string& value : values) from_the_start.push_back(name + "{" + label + "=\"" + value + "\"}");
  };
  each("lynx_jobs", "state", {"queued", "planning", "starting", "running", "succeeded", "failed", "cancelled"});
  each("lynx_jobs_pending", "reason", {"held", "dependency", "structural", "quota", "ahead", "capacity", "near-miss"});
  each("lynx_jobs_ended_total", "state", {"succeeded", "failed", "cancelled"});
  each("lynx_nodes", "state", {"attached", "partial", "absent", "lost"});
  for (const std::string& series : from_the_start) EXPECT_EQ(Value(Page(metrics), series), 0) << series;
  ClusterStats stats{.pending = {{"quota", 3}}, .cordoned = 1, .agents = 3, .workers = 4, .fenced_reports = 5};
  stats.jobs[static_cast<size_t>(JobState::kRunning)] = 2;
  stats.nodes[static_cast<size_t>(NodePresence::kPartial)] = 6;
  stats.cuda = {.all = 8, .used = 7};
  metrics.Counted(stats);
  stats.fenced_reports = 9;
  metrics.Counted(stats);
  metrics.PlanMade({.result = Infeasible{}}, PlanTrigger::kGrowth, Nanos(5'000'000));
  metrics.Committed(Nanos(4'000'000), false);
  metrics.LeaseRenewed();
  metrics.Refused();
  const std::string page = Page(metrics);
  EXPECT_EQ(Value(page, "lynx_jobs{state=\"running\"}"), 2);
  EXPECT_EQ(Value(page, "lynx_jobs_pending{reason=\"quota\"}"), 3);
  EXPECT_EQ(Value(page, "lynx_nodes{state=\"partial\"}"), 6);
  EXPECT_EQ(Value(page, "lynx_nodes_cordoned"), 1);
  EXPECT_EQ(Value(page, "lynx_agents_attached"), 3);
  EXPECT_EQ(Value(page, "lynx_workers_attached"), 4);
  EXPECT_EQ(Value(page, "lynx_devices{kind=\"cuda\"}"), 8);
  EXPECT_EQ(Value(page, "lynx_devices_used{kind=\"cuda\"}"), 7);
  EXPECT_EQ(Value(page, "lynx_fenced_reports_total"), 9);
  EXPECT_EQ(Value(page, "lynx_plan_duration_seconds_count{result=\"infeasible\",trigger=\"growth\"}"), 1);
  EXPECT_EQ(Value(page, "lynx_plan_duration_seconds_count{result=\"error\",trigger=\"drift\"}"), 0)
      << "so that the first one is an increase";
  EXPECT_EQ(Value(page, "lynx_store_commit_failures_total"), 1);
  EXPECT_EQ(Value(page, "lynx_leases_renewed_total"), 1);
  EXPECT_EQ(Value(page, "lynx_calls_refused_total"), 1);
}

}  // namespace
}  // namespace lynx::server
