#include "worker/daemon/worker_metrics.h"

#include "common/check.h"
#include "common/metric_names.h"

namespace lynx::worker {
namespace {

// Returns buckets from 1 ms to about 17 minutes. Each bucket's bound is twice the one before.
prometheus::Histogram::BucketBoundaries StepBuckets() {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double seconds = 1e-3; seconds < 1100; seconds *= 2) bounds.push_back(seconds);
  return bounds;
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
                                 {"data_wait", &StepReport::data_wait},
                                 {"checkpoint", &StepReport::checkpoint}};

constexpr RankOutcome kOutcomes[] = {RankOutcome::kDone, RankOutcome::kFailed, RankOutcome::kPeerLost, RankOutcome::kStopped,
                                     RankOutcome::kKilled};

}  // namespace

WorkerMetrics::WorkerMetrics(bool of_ranks)
    : of_ranks_(of_ranks), registry_(std::make_shared<prometheus::Registry>()),
      attached_(Gauges(*registry_, metric::kWorkerAttached).Add({})),
      ranks_running_(Gauges(*registry_, metric::kRanksRunning).Add({})), exits_(Counters(*registry_, metric::kRankExits)),
      node_steps_(Counters(*registry_, metric::kWorkerSteps).Add({})),
      node_bytes_sent_(Counters(*registry_, metric::kWorkerBytesSent).Add({})),
      node_core_wait_(Counters(*registry_, metric::kWorkerCoreWait).Add({})), steps_(Counters(*registry_, metric::kRankSteps)),
      tokens_(Counters(*registry_, metric::kRankTokens)), bytes_sent_(Counters(*registry_, metric::kRankBytesSent)),
      phase_seconds_(Counters(*registry_, metric::kRankPhaseSeconds)), loss_(Gauges(*registry_, metric::kRankLoss)),
      arena_peak_(Gauges(*registry_, metric::kRankArenaPeak)), resident_(Gauges(*registry_, metric::kRankResident)),
      step_seconds_(Histograms(*registry_, metric::kRankStepSeconds)) {
  AddBuildInfo(*registry_);
  // The series exist from the start, so that a query can notice their first increase.
  for (const RankOutcome outcome : kOutcomes) exits_.Add({{"outcome", RankOutcomeName(outcome)}});
}

void WorkerMetrics::SetAttached(bool attached) { attached_.Set(attached ? 1 : 0); }
void WorkerMetrics::SetRanksRunning(int count) { ranks_running_.Set(count); }
void WorkerMetrics::CountExit(RankOutcome outcome) { exits_.Add({{"outcome", RankOutcomeName(outcome)}}).Increment(); }

void WorkerMetrics::AddRank(const RankKey& key) {
  if (!of_ranks_) return;
  RankSeries& series = ranks_[{key.job, key.rank}];
  if (series.users++ > 0) return;
  const std::map<std::string, std::string> labels = {{"job_id", key.job.value}, {"rank", absl::StrCat(key.rank)}};
  series.steps = &steps_.Add(labels);
  series.tokens = &tokens_.Add(labels);
  series.bytes_sent = &bytes_sent_.Add(labels);
  series.loss = &loss_.Add(labels);
  series.arena_peak = &arena_peak_.Add(labels);
  series.resident = &resident_.Add(labels);
  series.step_seconds = &step_seconds_.Add(labels, StepBuckets());
  for (const PhaseTime& phase : kPhases) {
    std::map<std::string, std::string> with_phase = labels;
    with_phase["phase"] = phase.phase;
    series.phases[phase.phase] = &phase_seconds_.Add(with_phase);
  }
}

void WorkerMetrics::RemoveRank(const RankKey& key) {
  if (!of_ranks_) return;
  const auto found = ranks_.find({key.job, key.rank});
  LYNX_CHECK(found != ranks_.end());
  RankSeries& series = found->second;
  if (--series.users > 0) return;
  steps_.Remove(series.steps);
  tokens_.Remove(series.tokens);
  bytes_sent_.Remove(series.bytes_sent);
  loss_.Remove(series.loss);
  arena_peak_.Remove(series.arena_peak);
  resident_.Remove(series.resident);
  step_seconds_.Remove(series.step_seconds);
  for (const auto& [phase, counter] : series.phases) phase_seconds_.Remove(counter);
  ranks_.erase(found);
}

void WorkerMetrics::Observe(const RankKey& key, const StepReport& step) {
  node_steps_.Increment();
  node_bytes_sent_.Increment(static_cast<double>(step.bytes_sent));
  node_core_wait_.Increment(Seconds(step.core_wait));
  if (!of_ranks_) return;
  const auto found = ranks_.find({key.job, key.rank});
  LYNX_CHECK(found != ranks_.end());
  RankSeries& series = found->second;
  series.steps->Increment();
  series.tokens->Increment(static_cast<double>(step.tokens));
  series.bytes_sent->Increment(static_cast<double>(step.bytes_sent));
  series.loss->Set(step.loss);
  series.arena_peak->Set(static_cast<double>(step.arena_peak.value));
  series.resident->Set(static_cast<double>(step.resident.value));
  series.step_seconds->Observe(Seconds(step.duration));
  for (const PhaseTime& phase : kPhases) series.phases[phase.phase]->Increment(Seconds(step.*phase.time));
}

}  // namespace lynx::worker
