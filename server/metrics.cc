// See metrics.h.
#include "server/metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/metric_names.h"

namespace lynx {
namespace {

constexpr Nanos kKeepEnded{900'000'000'000};

const prometheus::Histogram::BucketBoundaries kSecondsBuckets = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};

}  // namespace

ServerMetrics::ServerMetrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      jobs_(Gauges(*registry_, metric::kJobs)),
      plan_seconds_(Histograms(*registry_, metric::kPlanSeconds)),
      restarts_(Counters(*registry_, metric::kJobRestarts)),
      replans_(Counters(*registry_, metric::kJobReplans)),
      resumes_from_copies_(Counters(*registry_, metric::kJobResumesFromCopies)),
      steps_(Counters(*registry_, metric::kJobSteps)),
      tokens_(Counters(*registry_, metric::kJobTokens)),
      loss_(Gauges(*registry_, metric::kJobLoss)),
      validation_loss_(Gauges(*registry_, metric::kJobValidationLoss)),
      gradient_norm_(Gauges(*registry_, metric::kJobGradientNorm)),
      step_seconds_(Histograms(*registry_, metric::kJobStepSeconds)),
      phase_seconds_(Counters(*registry_, metric::kJobPhaseSeconds)),
      memory_planned_(Gauges(*registry_, metric::kJobMemoryPlanned)),
      memory_measured_(Gauges(*registry_, metric::kJobMemoryMeasured)) {
  agents_ = &Gauges(*registry_, metric::kAgentsAttached).Add({});
  workers_ = &Gauges(*registry_, metric::kWorkersAttached).Add({});
  queue_ = &Gauges(*registry_, metric::kEventQueue).Add({});
  commit_seconds_ =
      &Histograms(*registry_, metric::kStoreCommitSeconds).Add({}, kSecondsBuckets);
  commit_failures_ = &Counters(*registry_, metric::kStoreCommitFailures).Add({});
  AddBuildInfo(*registry_);
  SetJobs({});
}

void ServerMetrics::SetJobs(const std::array<int64_t, kJobStateCount>& counts) {
  for (int i = 0; i < kJobStateCount; ++i) {
    jobs_.Add({{"state", JobStateName(static_cast<JobState>(i))}}).Set(static_cast<double>(counts[static_cast<size_t>(i)]));
  }
}

void ServerMetrics::SetAttached(int64_t agents, int64_t workers) {
  agents_->Set(static_cast<double>(agents));
  workers_->Set(static_cast<double>(workers));
}

void ServerMetrics::PlanMade(const PlanReady& ready, Nanos took) {
  static constexpr const char* kResults[] = {"plan", "infeasible", "error"};
  plan_seconds_.Add({{"result", kResults[ready.result.index()]}}, kSecondsBuckets).Observe(Seconds(took));
}

void ServerMetrics::Committed(Nanos took, bool ok) {
  commit_seconds_->Observe(Seconds(took));
  if (!ok) commit_failures_->Increment();
}

ServerMetrics::JobSeries& ServerMetrics::SeriesOf(const JobId& job, const std::string& name) {
  JobSeries& series = series_[job];
  series.labels = {{"job_id", job.value}, {"job_name", name}};
  return series;
}

prometheus::Counter& ServerMetrics::CounterOf(JobSeries& series, CounterFamily& family, const prometheus::Labels& more) {
  prometheus::Labels labels = series.labels;
  labels.insert(more.begin(), more.end());
  prometheus::Counter& counter = family.Add(labels);
  series.counters[&counter] = &family;
  return counter;
}

prometheus::Gauge& ServerMetrics::GaugeOf(JobSeries& series, GaugeFamily& family, const prometheus::Labels& more) {
  prometheus::Labels labels = series.labels;
  labels.insert(more.begin(), more.end());
  prometheus::Gauge& gauge = family.Add(labels);
  series.gauges[&gauge] = &family;
  return gauge;
}

void ServerMetrics::Step(const StepRecorded& recorded, const std::string& name) {
  const RankStep& step = recorded.step;
  std::lock_guard lock(mutex_);
  JobSeries& series = SeriesOf(recorded.job, name);
  if (recorded.new_step) {
    CounterOf(series, steps_).Increment();
    CounterOf(series, tokens_).Increment(static_cast<double>(step.tokens));
  }
  if (recorded.rank == 0) {
    GaugeOf(series, loss_).Set(step.loss);
    GaugeOf(series, gradient_norm_).Set(step.gradient_norm);
    prometheus::Histogram& seconds = step_seconds_.Add(series.labels, kSecondsBuckets);
    series.histograms[&seconds] = &step_seconds_;
    seconds.Observe(Seconds(step.duration));
  }
  const std::pair<const char*, Nanos> phases[] = {
      {"forward", step.forward}, {"backward", step.backward}, {"weight", step.weight},
      {"recompute_hidden", step.recompute_hidden}, {"recompute_exposed", step.recompute_exposed},
      {"tensor_wait", step.tensor_wait}, {"stall", step.stall}, {"data_parallel_wait", step.data_parallel_wait},
      {"norm_wait", step.norm_wait}, {"optimizer", step.optimizer}, {"checkpoint", step.checkpoint}};
  for (const auto& [phase, time] : phases) CounterOf(series, phase_seconds_, {{"phase", phase}}).Increment(Seconds(time));
  prometheus::Gauge& peak = GaugeOf(series, memory_measured_, {{"stage", std::to_string(recorded.stage)}});
  peak.Set(std::max(peak.Value(), static_cast<double>(step.arena_peak.value)));
}

void ServerMetrics::Evaluated(const EvaluationRecorded& recorded, const std::string& name) {
  std::lock_guard lock(mutex_);
  GaugeOf(SeriesOf(recorded.job, name), validation_loss_).Set(recorded.loss);
}

void ServerMetrics::Restarted(const JobId& job, const std::string& name, int32_t restarts) {
  std::lock_guard lock(mutex_);
  prometheus::Counter& counter = CounterOf(SeriesOf(job, name), restarts_);
  if (counter.Value() < restarts) counter.Increment(restarts - counter.Value());
}

void ServerMetrics::Replanned(const JobId& job, const std::string& name, const std::string& decision) {
  std::lock_guard lock(mutex_);
  CounterOf(SeriesOf(job, name), replans_, {{"decision", decision}}).Increment();
}

void ServerMetrics::ResumedFromCopies(const JobId& job, const std::string& name) {
  std::lock_guard lock(mutex_);
  CounterOf(SeriesOf(job, name), resumes_from_copies_).Increment();
}

void ServerMetrics::Planned(const JobId& job, const std::string& name, const Plan& plan) {
  std::lock_guard lock(mutex_);
  JobSeries& series = SeriesOf(job, name);
  // Of an earlier plan, which may have had more stages.
  std::erase_if(series.gauges, [&](const auto& entry) {
    const auto& [gauge, family] = entry;
    if (family != &memory_planned_ && family != &memory_measured_) return false;
    family->Remove(gauge);
    return true;
  });
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    GaugeOf(series, memory_planned_, {{"stage", std::to_string(stage)}})
        .Set(static_cast<double>(plan.stages[stage].arena.value));
  }
}

void ServerMetrics::Ended(const JobId& job, Nanos now) {
  std::lock_guard lock(mutex_);
  if (const auto found = series_.find(job); found != series_.end()) found->second.ended = now;
}

void ServerMetrics::Prune(Nanos now) {
  std::lock_guard lock(mutex_);
  for (auto it = series_.begin(); it != series_.end();) {
    JobSeries& series = it->second;
    if (series.ended == Nanos(0) || now - series.ended < kKeepEnded) {
      ++it;
      continue;
    }
    for (const auto& [counter, family] : series.counters) family->Remove(counter);
    for (const auto& [gauge, family] : series.gauges) family->Remove(gauge);
    for (const auto& [histogram, family] : series.histograms) family->Remove(histogram);
    it = series_.erase(it);
  }
}

}  // namespace lynx
