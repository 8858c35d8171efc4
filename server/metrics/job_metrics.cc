// See job_metrics.h.
#include "server/metrics/job_metrics.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "planner/problem/flops.h"
#include "planner/problem/layout.h"
#include "proto/event_kind.h"
#include "server/metrics/job_series.h"
#include "server/scheduling/slowest_profile.h"

namespace lynx::server {
namespace {

constexpr Nanos kKeepEnded{900'000'000'000};
constexpr size_t kOpenSteps = 64;

// Six buckets per factor of ten, from 1 ms to 1000 s. The bounds of a bucket differ by a factor of at most 1.7, so a quantile
// is known to within this factor.
const std::vector<double> kStepBuckets = {0.001, 0.0015, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1,
                                          0.15,  0.2,    0.3,   0.5,   0.7,   1,     1.5,  2,     3,    5,    7,    10,   15,
                                          20,    30,     50,    70,    100,   150,   200,  300,   500,  700,  1000};

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
constexpr size_t kPhaseCount = std::size(kPhases);

struct PredictedTime {
  const char* phase;
  Nanos StagePlan::*time;
};
constexpr PredictedTime kPredicted[] = {{"forward", &StagePlan::forward},
                                        {"backward", &StagePlan::backward},
                                        {"weight", &StagePlan::weight},
                                        {"recompute_hidden", &StagePlan::recompute_hidden},
                                        {"recompute_exposed", &StagePlan::recompute_exposed},
                                        {"communication_exposed", &StagePlan::communication_exposed},
                                        {"stall", &StagePlan::stall},
                                        {"optimizer", &StagePlan::optimizer}};

double Number(Bytes bytes) { return static_cast<double>(bytes.value); }

// Relative error of the prediction.
double ErrorOf(double measured, double predicted) { return measured / predicted - 1; }

// The lowest peak FLOP/s of a device of the cluster for this data type; 0: unknown.
int64_t PeakOf(const ClusterTopology* cluster, DataType type) {
  if (cluster == nullptr) return 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const NodeGroup& group : cluster->groups) least = std::min(least, group.profile.FlopsPerSecond(type));
  return cluster->groups.empty() ? 0 : least;
}

}  // namespace

struct JobMetrics::Series {
  // Pointers to the values that every report of a rank updates.
  struct Stage {
    std::array<double*, kPhaseCount> phases;
    double* step;
    double* arena;
    double planned_arena = 0;  // 0: unknown
  };
  // Sums over the ranks that have reported a step.
  struct StepSums {
    std::set<int32_t> ranks;
    Nanos hidden, recompute_exposed, communication, stall, core_wait, all;
    double fullest_dispatch = 0, fullest_expert = 0;  // the largest of all ranks
  };

  explicit Series(const JobRecord& job) : values(job.id.value, job.spec->name) {}

  Stage& StageOf(int32_t stage);
  // The sums of a step that not all ranks have reported. A rank that reports a step again is of a new generation of ranks, so
  // the sums begin again.
  StepSums& SumsOf(int64_t step, int32_t rank);
  void Shares(const StepSums& sums);
  void FirstRank(const StepReport& step, const JobRecord& job);
  void CountTo(const metric::Metric& metric, double value);
  void NewestCheckpoint(const InsertCheckpoint& checkpoint);

  std::mutex mutex;  // held by a scrape or by the owner thread
  JobSeries values;
  // Only for the owner thread.
  std::map<int32_t, Stage> stages;
  std::map<int64_t, StepSums> open_steps;  // at most kOpenSteps
  double flops_per_token = 0;
  double peak_flops = 0;         // peak of all the job's devices together; 0: unknown
  Nanos predicted;               // 0: unknown
  int64_t copies_skipped = 0;    // the newest value that rank 0 has reported
  double trained = 0, held = 0;  // both in device seconds
  bool has_ended = false;
  bool shows_checkpoint = false;
};

JobMetrics::Series::Stage& JobMetrics::Series::StageOf(int32_t stage) {
  const auto [found, is_new] = stages.try_emplace(stage);
  if (!is_new) return found->second;
  const std::string name = std::to_string(stage);
  for (size_t i = 0; i < kPhaseCount; ++i) {
    found->second.phases[i] = &values.Of(metric::kJobPhaseSeconds, {{"stage", name}, {"phase", kPhases[i].phase}});
  }
  found->second.step = &values.OfPlan(metric::kJobStageStepSeconds, {{"stage", name}});
  found->second.arena = &values.OfPlan(metric::kJobMemoryMeasured, {{"stage", name}, {"kind", "activations"}});
  return found->second;
}

JobMetrics::Series::StepSums& JobMetrics::Series::SumsOf(int64_t step, int32_t rank) {
  StepSums& sums = open_steps[step];
  if (sums.ranks.contains(rank)) sums = {};
  sums.ranks.insert(rank);
  // A step stays open for ever if a rank ends without reporting it. So only the newest kOpenSteps steps are kept.
  if (const auto oldest = open_steps.begin(); open_steps.size() > kOpenSteps && oldest->first != step) open_steps.erase(oldest);
  return sums;
}

void JobMetrics::Series::Shares(const StepSums& step) {
  if (step.all <= Nanos(0)) return;
  const auto share = [](Nanos part, Nanos whole) { return std::clamp(Seconds(part) / Seconds(whole), 0.0, 1.0); };
  values.Of(metric::kJobBubbleRatio) = share(step.stall, step.all);
  values.Of(metric::kJobCommunicationRatio) = share(step.communication, step.all);
  values.Of(metric::kJobCoreWaitRatio) = share(step.core_wait, step.all);
  const Nanos recompute = step.hidden + step.recompute_exposed;
  if (recompute > Nanos(0)) values.Of(metric::kJobHiddenRatio) = share(step.hidden, recompute);
  if (step.fullest_expert > 0) {
    values.Of(metric::kJobExpertPeak) = step.fullest_dispatch;
    values.Of(metric::kJobExpertFullest) = step.fullest_expert;
  }
}

void JobMetrics::Series::FirstRank(const StepReport& step, const JobRecord& job) {
  values.Of(metric::kJobLoss) = step.loss;
  values.Of(metric::kJobGradientNorm) = step.gradient_norm;
  values.Of(metric::kJobLearningRate) = step.lr;
  values.Of(metric::kJobDoneSteps) = static_cast<double>(step.step + 1);
  values.Of(metric::kJobCopiedSteps) = static_cast<double>(step.copied_steps);
  if (step.experts.any()) values.Of(metric::kJobExpertSkew) = step.experts.skew;
  // Each generation counts copies_skipped from 0, so only the difference is added.
  const int64_t before = std::exchange(copies_skipped, step.copies_skipped);
  values.Of(metric::kJobCopiesSkipped) +=
      static_cast<double>(step.copies_skipped - (step.copies_skipped < before ? 0 : before));
  values.Observe(metric::kJobStepSeconds, kStepBuckets, Seconds(step.duration));
  if (predicted > Nanos(0) && job.progress.step > Nanos(0)) {
    values.OfPlan(metric::kJobStepError) = ErrorOf(Seconds(job.progress.step), Seconds(predicted));
  }
  if (peak_flops > 0 && step.duration > Nanos(0)) {
    const double rate = flops_per_token * static_cast<double>(step.tokens) / Seconds(step.duration);
    values.OfPlan(metric::kJobMfu) = rate / peak_flops;
  }
}

// Sets a counter to `value`, a count that other code keeps. The counter never falls.
void JobMetrics::Series::CountTo(const metric::Metric& metric, double value) {
  double& counter = values.Of(metric);
  counter = std::max(counter, value);
}

void JobMetrics::Series::NewestCheckpoint(const InsertCheckpoint& checkpoint) {
  shows_checkpoint = true;
  values.Of(metric::kJobCheckpointBytes) = Number(checkpoint.bytes);
  values.Of(metric::kJobCheckpointSteps) = static_cast<double>(checkpoint.step);
  values.Of(metric::kJobCheckpointTime) = Seconds(checkpoint.time);
}

// The series of all jobs, for scrapes. A scrape delays the owner thread at most for the time that the series of one job take.
class JobMetrics::Book : public prometheus::Collectable {
 public:
  Series& Of(const JobRecord& job) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Series>& series = jobs_[job.id];
    if (series == nullptr) series = std::make_shared<Series>(job);
    return *series;
  }
  // Returns the series of the job; nullptr: the job has no series.
  std::shared_ptr<Series> Find(const JobId& job) const {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(job);
    return found == jobs_.end() ? nullptr : found->second;
  }
  void Remove(const JobId& job) {
    const std::lock_guard lock(mutex_);
    jobs_.erase(job);
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<std::shared_ptr<Series>> all;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, series] : jobs_) all.push_back(series);
    }
    JobSeries::Families families;
    for (const std::shared_ptr<Series>& series : all) {
      const std::lock_guard lock(series->mutex);
      series->values.CollectTo(families);
    }
    std::vector<prometheus::MetricFamily> listed;
    for (auto& [metric, family] : families) listed.push_back(std::move(family));
    return listed;
  }

 private:
  mutable std::mutex mutex_;
  std::map<JobId, std::shared_ptr<Series>> jobs_;  // guarded by mutex_
};

JobMetrics::JobMetrics() : book_(std::make_shared<Book>()) {}
JobMetrics::~JobMetrics() = default;

std::shared_ptr<prometheus::Collectable> JobMetrics::page() const { return book_; }
bool JobMetrics::Shows(const JobId& job) const { return book_->Find(job) != nullptr; }

void JobMetrics::Step(const StepRecorded& recorded, const JobRecord& job, int32_t ranks) {
  const StepReport& step = recorded.step;
  Series& series = book_->Of(job);
  const std::lock_guard lock(series.mutex);
  JobSeries& values = series.values;
  Series::Stage& stage = series.StageOf(recorded.stage);
  for (size_t i = 0; i < kPhaseCount; ++i) *stage.phases[i] += Seconds(step.*kPhases[i].time);
  *stage.step = Seconds(step.duration);
  *stage.arena = std::max(*stage.arena, Number(step.arena_peak));
  if (stage.planned_arena > 0) {
    values.OfPlan(metric::kJobMemoryError, {{"stage", std::to_string(recorded.stage)}}) =
        ErrorOf(*stage.arena, stage.planned_arena);
  }
  Series::StepSums& sums = series.SumsOf(step.step, recorded.rank);
  sums.hidden += step.recompute_hidden;
  sums.recompute_exposed += step.recompute_exposed;
  sums.communication += step.tensor_wait + step.data_parallel_wait + step.norm_wait;
  sums.stall += step.stall;
  sums.core_wait += step.core_wait;
  sums.all += step.duration;
  sums.fullest_dispatch = std::max(sums.fullest_dispatch, step.experts.fullest_dispatch);
  sums.fullest_expert = std::max(sums.fullest_expert, step.experts.fullest_expert);
  if (static_cast<int64_t>(sums.ranks.size()) >= ranks) {
    series.Shares(sums);
    // Earlier steps are older than what the series show now.
    series.open_steps.erase(series.open_steps.begin(), series.open_steps.upper_bound(step.step));
  }
  if (recorded.new_step) {
    values.Of(metric::kJobSteps) += 1;
    values.Of(metric::kJobTokens) += static_cast<double>(step.tokens);
    values.Of(metric::kJobModelFlops) += series.flops_per_token * static_cast<double>(step.tokens);
    if (step.experts.any()) {  // the reports of all ranks have the same values
      values.Of(metric::kJobExpertRows) += static_cast<double>(step.experts.rows_routed);
      values.Of(metric::kJobExpertRowsDropped) += static_cast<double>(step.experts.rows_dropped);
      values.Of(metric::kJobExpertRowsInRounds) += static_cast<double>(step.experts.rows_in_rounds);
      values.Of(metric::kJobExpertRounds) += static_cast<double>(step.experts.rounds);
    }
  }
  if (recorded.rank == 0) series.FirstRank(step, job);
}

void JobMetrics::Evaluated(const EvaluationRecorded& recorded, const JobRecord& job) {
  Series& series = book_->Of(job);
  const std::lock_guard lock(series.mutex);
  series.values.Of(metric::kJobValidationLoss) = recorded.loss;
}

void JobMetrics::CheckpointWritten(const InsertCheckpoint& checkpoint, const JobRecord& job) {
  Series& series = book_->Of(job);
  const std::lock_guard lock(series.mutex);
  series.values.Of(metric::kJobCheckpoints) += 1;
  series.NewestCheckpoint(checkpoint);
}

bool JobMetrics::LacksCheckpoint(const JobRecord& job) const {
  if (job.checkpoint_step < 0) return false;
  const std::shared_ptr<Series> series = book_->Find(job.id);
  return series != nullptr && !series->shows_checkpoint;
}

void JobMetrics::CheckpointRestored(const InsertCheckpoint& checkpoint, const JobRecord& job) {
  Series& series = book_->Of(job);
  const std::lock_guard lock(series.mutex);
  series.NewestCheckpoint(checkpoint);
}

void JobMetrics::Planned(const JobRecord& job, const Plan& plan, const ClusterTopology* cluster) {
  Series& series = book_->Of(job);
  const std::lock_guard lock(series.mutex);
  JobSeries& values = series.values;
  // Drops the series of the earlier plan, which may have had more stages.
  values.EndPlan();
  series.stages.clear();
  series.open_steps.clear();
  series.predicted = plan.step;
  series.flops_per_token = StepFlops(plan.model, 1, FlopCount::kModel) / static_cast<double>(std::max(1, plan.model.seq));
  series.peak_flops = static_cast<double>(PeakOf(cluster, plan.model.dtype)) * plan.layout.ranks();
  values.OfPlan(metric::kJobInfo, {{"queue", job.spec->scheduling.queue},
                                   {"layout", LayoutText(plan.layout)},
                                   {"device", job.device_kind == DeviceKind::kCuda ? "cuda" : "cpu"}}) = 1;
  values.OfPlan(metric::kJobPredictedStep) = Seconds(plan.step);
  if (plan.model.moe.any()) values.OfPlan(metric::kJobExpertSkewPlanned) = plan.model.moe.skew;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& planned = plan.stages[i];
    const std::string name = std::to_string(i);
    for (const PredictedTime& time : kPredicted) {
      values.OfPlan(metric::kJobPredictedPhase, {{"stage", name}, {"phase", time.phase}}) = Seconds(planned.*time.time);
    }
    const std::pair<const char*, Bytes> kinds[] = {{"activations", planned.arena},
                                                   {"weights", planned.states.weights},
                                                   {"gradients", planned.states.gradients},
                                                   {"optimizer", planned.states.optimizer},
                                                   {"offloaded", planned.host}};
    for (const auto& [kind, bytes] : kinds) {
      values.OfPlan(metric::kJobMemoryPlanned, {{"stage", name}, {"kind", kind}}) = Number(bytes);
    }
    series.StageOf(static_cast<int32_t>(i)).planned_arena = Number(planned.arena);
  }
}

void JobMetrics::Happened(const JobRecord& job, const JobEvent& event) {
  Series& series = book_->Of(job);
  const std::lock_guard lock(series.mutex);
  const auto replanned = [&](const char* decision) { series.values.Of(metric::kJobReplans, {{"decision", decision}}) += 1; };
  const std::optional<EventKind> kind = ParseEventKind(event.kind);
  if (!kind) return;
  switch (*kind) {
    case EventKind::kReplanKept: return replanned("kept");
    case EventKind::kReplanned: return replanned("adopted");
    case EventKind::kReplanForced: return replanned("forced");
    case EventKind::kResumed: series.values.Of(metric::kJobResumesFromCopies) += 1; return;
    case EventKind::kStepSkipped: series.values.Of(metric::kJobStepsSkipped) += 1; return;
    case EventKind::kCheckpointFailed: series.values.Of(metric::kJobCheckpointFailures) += 1; return;
    default: return;
  }
}

void JobMetrics::Updated(const JobRecord& job, int32_t devices) {
  Series& series = book_->Of(job);
  const std::lock_guard lock(series.mutex);
  JobSeries& values = series.values;
  values.Of(metric::kJobRanks) = devices;
  values.Of(metric::kJobTargetSteps) = static_cast<double>(job.spec->train.steps);
  // These series exist from the start with the value 0, because a rate cannot show an increase if the series begins with it.
  series.CountTo(metric::kJobRestarts, job.restarts);
  for (const auto* counter :
       {&metric::kJobCheckpoints, &metric::kJobCheckpointFailures, &metric::kJobResumesFromCopies, &metric::kJobStepsSkipped}) {
    values.Of(*counter);
  }
  if (job.spec->model.moe.any()) {
    for (const auto* counter : {&metric::kJobExpertRows, &metric::kJobExpertRowsDropped, &metric::kJobExpertRowsInRounds,
                                &metric::kJobExpertRounds}) {
      values.Of(*counter);
    }
  }
  for (const char* decision : {"kept", "adopted", "forced"}) values.Of(metric::kJobReplans, {{"decision", decision}});
  for (size_t stage = 0; stage < job.measured.size(); ++stage) {
    if (job.measured[stage].states == Bytes(0) || !series.stages.contains(static_cast<int32_t>(stage))) continue;
    values.OfPlan(metric::kJobMemoryMeasured, {{"stage", std::to_string(stage)}, {"kind", "states"}}) =
        Number(job.measured[stage].states);
  }
}

void JobMetrics::Spent(const JobRecord& job, const std::vector<JobTimeline::Spent>& spent) {
  if (spent.empty()) return;
  Series& series = book_->Of(job);
  const std::lock_guard lock(series.mutex);
  for (const JobTimeline::Spent& part : spent) {
    series.values.Of(metric::kJobDeviceSeconds, {{"use", DeviceUseName(part.use)}}) += part.device_seconds;
    series.held += part.device_seconds;
    if (part.use == DeviceUse::kTraining) series.trained += part.device_seconds;
  }
  if (series.held > 0) series.values.Of(metric::kJobGoodput) = series.trained / series.held;
}

void JobMetrics::Ended(const JobId& job, Nanos now) {
  const std::shared_ptr<Series> series = book_->Find(job);
  if (series == nullptr || std::exchange(series->has_ended, true)) return;
  ended_.emplace_back(now, job);
}

std::optional<double> JobMetrics::GoodputOf(const JobId& job) const {
  const std::shared_ptr<Series> series = book_->Find(job);
  if (series == nullptr || series->held <= 0) return std::nullopt;
  return series->trained / series->held;
}

void JobMetrics::Prune(Nanos now) {
  while (!ended_.empty() && (ended_.size() > kMaxEnded || now - ended_.front().first >= kKeepEnded)) {
    book_->Remove(ended_.front().second);
    ended_.pop_front();
  }
}

}  // namespace lynx::server
