#include "worker/daemon/worker_metrics.h"

#include "common/check.h"
#include "common/metric_names.h"

namespace lynx {
namespace {

// 1 ms to about 17 minutes, in steps of a factor of two.
prometheus::Histogram::BucketBoundaries StepBuckets() {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double seconds = 1e-3; seconds < 1100; seconds *= 2) bounds.push_back(seconds);
  return bounds;
}

template <class Builder>
auto& Register(Builder builder, const metric::Metric& metric, prometheus::Registry& registry) {
  return builder.Name(metric.name).Help(metric.help).Register(registry);
}

struct PhaseTime {
  const char* phase;
  Nanos StepReport::*time;
};
constexpr PhaseTime kPhases[] = {{"forward", &StepReport::forward},
                                 {"backward", &StepReport::backward},
                                 {"weight", &StepReport::weight},
                                 {"recompute_hidden", &StepReport::recompute_hidden},
                                 {"recompute_exposed", &StepReport::recompute_exposed},
                                 {"tensor_wait", &StepReport::tensor_wait},
                                 {"stall", &StepReport::stall},
                                 {"data_parallel_wait", &StepReport::data_parallel_wait},
                                 {"norm_wait", &StepReport::norm_wait},
                                 {"optimizer", &StepReport::optimizer},
                                 {"checkpoint", &StepReport::checkpoint}};

constexpr RankOutcome kOutcomes[] = {RankOutcome::kDone, RankOutcome::kFailed, RankOutcome::kPeerLost,
                                     RankOutcome::kStopped, RankOutcome::kKilled};

}  // namespace

WorkerMetrics::WorkerMetrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      attached_(Register(prometheus::BuildGauge(), metric::kWorkerAttached, *registry_).Add({})),
      ranks_running_(Register(prometheus::BuildGauge(), metric::kRanksRunning, *registry_).Add({})),
      exits_(Register(prometheus::BuildCounter(), metric::kRankExits, *registry_)),
      steps_(Register(prometheus::BuildCounter(), metric::kRankSteps, *registry_)),
      tokens_(Register(prometheus::BuildCounter(), metric::kRankTokens, *registry_)),
      bytes_sent_(Register(prometheus::BuildCounter(), metric::kRankBytesSent, *registry_)),
      phase_seconds_(Register(prometheus::BuildCounter(), metric::kRankPhaseSeconds, *registry_)),
      loss_(Register(prometheus::BuildGauge(), metric::kRankLoss, *registry_)),
      arena_peak_(Register(prometheus::BuildGauge(), metric::kRankArenaPeak, *registry_)),
      step_seconds_(Register(prometheus::BuildHistogram(), metric::kRankStepSeconds, *registry_)) {
  // A series that exists from the start can be watched for its first increase.
  for (const RankOutcome outcome : kOutcomes) exits_.Add({{"outcome", RankOutcomeName(outcome)}});
}

void WorkerMetrics::SetAttached(bool attached) { attached_.Set(attached ? 1 : 0); }
void WorkerMetrics::SetRanksRunning(int count) { ranks_running_.Set(count); }
void WorkerMetrics::CountExit(RankOutcome outcome) {
  exits_.Add({{"outcome", RankOutcomeName(outcome)}}).Increment();
}

void WorkerMetrics::AddRank(const RankKey& key) {
  RankSeries& series = ranks_[{key.job, key.rank}];
  if (series.users++ > 0) return;
  const std::map<std::string, std::string> labels = {{"job", key.job.value}, {"rank", absl::StrCat(key.rank)}};
  series.steps = &steps_.Add(labels);
  series.tokens = &tokens_.Add(labels);
  series.bytes_sent = &bytes_sent_.Add(labels);
  series.loss = &loss_.Add(labels);
  series.arena_peak = &arena_peak_.Add(labels);
  series.step_seconds = &step_seconds_.Add(labels, StepBuckets());
  for (const PhaseTime& phase : kPhases) {
    std::map<std::string, std::string> with_phase = labels;
    with_phase["phase"] = phase.phase;
    series.phases[phase.phase] = &phase_seconds_.Add(with_phase);
  }
}

void WorkerMetrics::RemoveRank(const RankKey& key) {
  const auto found = ranks_.find({key.job, key.rank});
  LYNX_CHECK(found != ranks_.end());
  RankSeries& series = found->second;
  if (--series.users > 0) return;
  steps_.Remove(series.steps);
  tokens_.Remove(series.tokens);
  bytes_sent_.Remove(series.bytes_sent);
  loss_.Remove(series.loss);
  arena_peak_.Remove(series.arena_peak);
  step_seconds_.Remove(series.step_seconds);
  for (const auto& [phase, counter] : series.phases) phase_seconds_.Remove(counter);
  ranks_.erase(found);
}

void WorkerMetrics::Observe(const RankKey& key, const StepReport& step) {
  const auto found = ranks_.find({key.job, key.rank});
  LYNX_CHECK(found != ranks_.end());
  RankSeries& series = found->second;
  series.steps->Increment();
  series.tokens->Increment(static_cast<double>(step.tokens));
  series.bytes_sent->Increment(static_cast<double>(step.bytes_sent));
  series.loss->Set(step.loss);
  series.arena_peak->Set(static_cast<double>(step.arena_peak.value));
  series.step_seconds->Observe(Seconds(step.duration));
  for (const PhaseTime& phase : kPhases) series.phases[phase.phase]->Increment(Seconds(step.*phase.time));
}

}  // namespace lynx
