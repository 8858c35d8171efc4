// See job_metrics.h.
#include "server/job_metrics.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/flops.h"
#include "planner/layout.h"
#include "server/slowest_profile.h"

namespace lynx {
namespace {

constexpr Nanos kKeepEnded{900'000'000'000};

const prometheus::Histogram::BucketBoundaries kStepBuckets = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};

struct PhaseTime {
  const char* phase;
  Nanos RankStep::*time;
};
constexpr PhaseTime kPhases[] = {{"forward", &RankStep::forward},
                                 {"backward", &RankStep::backward},
                                 {"weight", &RankStep::weight},
                                 {"recompute_hidden", &RankStep::recompute_hidden},
                                 {"recompute_exposed", &RankStep::recompute_exposed},
                                 {"tensor_wait", &RankStep::tensor_wait},
                                 {"stall", &RankStep::stall},
                                 {"data_parallel_wait", &RankStep::data_parallel_wait},
                                 {"norm_wait", &RankStep::norm_wait},
                                 {"optimizer", &RankStep::optimizer},
                                 {"checkpoint", &RankStep::checkpoint}};
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

// Of what is measured beside what was predicted.
double ErrorOf(double measured, double predicted) { return measured / predicted - 1; }

// 0: not known.
int64_t PeakOf(const ClusterTopology* cluster, DataType type) {
  if (cluster == nullptr) return 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const NodeGroup& group : cluster->groups) least = std::min(least, group.profile.FlopsPerSecond(type));
  return cluster->groups.empty() ? 0 : least;
}

// Series of one kind that go together.
template <class Kind>
class Owned {
 public:
  ~Owned() { Clear(); }
  template <class... More>
  Kind& Add(prometheus::Family<Kind>& family, const prometheus::Labels& labels, const More&... more) {
    Kind& one = family.Add(labels, more...);
    all_.try_emplace(&one, &family);
    return one;
  }
  void Clear() {
    for (const auto& [one, family] : all_) family->Remove(one);
    all_.clear();
  }

 private:
  std::map<Kind*, prometheus::Family<Kind>*> all_;
};

}  // namespace

struct JobMetrics::Families {
  explicit Families(prometheus::Registry& r)
      : info(Gauges(r, metric::kJobInfo)), ranks(Gauges(r, metric::kJobRanks)), target_steps(Gauges(r, metric::kJobTargetSteps)),
        done_steps(Gauges(r, metric::kJobDoneSteps)), steps(Counters(r, metric::kJobSteps)), tokens(Counters(r, metric::kJobTokens)),
        flops(Counters(r, metric::kJobModelFlops)), skipped(Counters(r, metric::kJobStepsSkipped)), loss(Gauges(r, metric::kJobLoss)),
        validation_loss(Gauges(r, metric::kJobValidationLoss)), gradient_norm(Gauges(r, metric::kJobGradientNorm)),
        learning_rate(Gauges(r, metric::kJobLearningRate)), step_seconds(Histograms(r, metric::kJobStepSeconds)),
        stage_step(Gauges(r, metric::kJobStageStepSeconds)), predicted_step(Gauges(r, metric::kJobPredictedStep)),
        step_error(Gauges(r, metric::kJobStepError)), phase_seconds(Counters(r, metric::kJobPhaseSeconds)),
        predicted_phase(Gauges(r, metric::kJobPredictedPhase)), hidden(Gauges(r, metric::kJobHiddenRatio)),
        bubble(Gauges(r, metric::kJobBubbleRatio)), exposed(Gauges(r, metric::kJobCommunicationRatio)), mfu(Gauges(r, metric::kJobMfu)),
        memory_planned(Gauges(r, metric::kJobMemoryPlanned)), memory_measured(Gauges(r, metric::kJobMemoryMeasured)),
        memory_error(Gauges(r, metric::kJobMemoryError)), checkpoints(Counters(r, metric::kJobCheckpoints)),
        checkpoint_failures(Counters(r, metric::kJobCheckpointFailures)), checkpoint_bytes(Gauges(r, metric::kJobCheckpointBytes)),
        checkpoint_steps(Gauges(r, metric::kJobCheckpointSteps)), checkpoint_time(Gauges(r, metric::kJobCheckpointTime)),
        copied_steps(Gauges(r, metric::kJobCopiedSteps)), copies_skipped(Counters(r, metric::kJobCopiesSkipped)),
        restarts(Counters(r, metric::kJobRestarts)), replans(Counters(r, metric::kJobReplans)),
        resumes(Counters(r, metric::kJobResumesFromCopies)), device_seconds(Counters(r, metric::kJobDeviceSeconds)),
        goodput(Gauges(r, metric::kJobGoodput)) {}

  GaugeFamily &info, &ranks, &target_steps, &done_steps;
  CounterFamily &steps, &tokens, &flops, &skipped;
  GaugeFamily &loss, &validation_loss, &gradient_norm, &learning_rate;
  HistogramFamily& step_seconds;
  GaugeFamily &stage_step, &predicted_step, &step_error;
  CounterFamily& phase_seconds;
  GaugeFamily &predicted_phase, &hidden, &bubble, &exposed, &mfu, &memory_planned, &memory_measured, &memory_error;
  CounterFamily &checkpoints, &checkpoint_failures;
  GaugeFamily &checkpoint_bytes, &checkpoint_steps, &checkpoint_time, &copied_steps;
  CounterFamily &copies_skipped, &restarts, &replans, &resumes, &device_seconds;
  GaugeFamily& goodput;
};

struct JobMetrics::Series {
  // Pointers to what is written with every report of a rank.
  struct Stage {
    std::array<prometheus::Counter*, kPhaseCount> phases;
    prometheus::Gauge* step;
    prometheus::Gauge* arena;
    prometheus::Gauge* error = nullptr;  // set when something was measured beside something planned
    double planned_arena = 0;  // 0: not known
  };
  // Of all ranks that have reported one step.
  struct StepSums {
    int64_t step = -1;
    Nanos hidden, recompute_exposed, communication, stall, all;
  };

  Series(const JobRecord& job, Families& families) : labels({{"job_id", job.id.value}, {"job_name", job.spec->name}}), all(families) {}

  prometheus::Labels With(const prometheus::Labels& more) const {
    prometheus::Labels both = labels;
    both.insert(more.begin(), more.end());
    return both;
  }
  prometheus::Gauge& Of(GaugeFamily& family) { return gauges.Add(family, labels); }
  prometheus::Counter& Of(CounterFamily& family) { return counters.Add(family, labels); }
  Stage& StageOf(int32_t stage);
  void Shares(const StepSums& sums);
  void CountTo(CounterFamily& family, double value);

  const prometheus::Labels labels;
  Families& all;
  Owned<prometheus::Counter> counters;
  Owned<prometheus::Gauge> gauges, of_plan;  // those of a plan go with it
  Owned<prometheus::Histogram> histograms;
  std::map<int32_t, Stage> stages;
  StepSums sums;
  double flops_per_token = 0;
  double peak_flops = 0;       // of all its devices; 0: not known
  Nanos predicted;             // 0: not known
  int64_t copies_skipped = 0;  // as rank 0 said last
  double trained = 0, held = 0;  // device seconds
  Nanos ended;                 // 0 = not yet
};

JobMetrics::Series::Stage& JobMetrics::Series::StageOf(int32_t stage) {
  const auto [found, is_new] = stages.try_emplace(stage);
  if (!is_new) return found->second;
  const std::string name = std::to_string(stage);
  for (size_t i = 0; i < kPhaseCount; ++i) {
    found->second.phases[i] = &counters.Add(all.phase_seconds, With({{"stage", name}, {"phase", kPhases[i].phase}}));
  }
  found->second.step = &of_plan.Add(all.stage_step, With({{"stage", name}}));
  found->second.arena = &of_plan.Add(all.memory_measured, With({{"stage", name}, {"kind", "activations"}}));
  return found->second;
}

void JobMetrics::Series::Shares(const StepSums& step) {
  if (step.all <= Nanos(0)) return;
  const auto share = [](Nanos part, Nanos whole) { return std::clamp(Seconds(part) / Seconds(whole), 0.0, 1.0); };
  Of(all.bubble).Set(share(step.stall, step.all));
  Of(all.exposed).Set(share(step.communication, step.all));
  const Nanos recompute = step.hidden + step.recompute_exposed;
  if (recompute > Nanos(0)) Of(all.hidden).Set(share(step.hidden, recompute));
}

// What something else has counted.
void JobMetrics::Series::CountTo(CounterFamily& family, double value) {
  prometheus::Counter& counter = Of(family);
  if (counter.Value() < value) counter.Increment(value - counter.Value());
}

JobMetrics::JobMetrics(prometheus::Registry& registry) : families_(std::make_unique<Families>(registry)) {}
JobMetrics::~JobMetrics() = default;

JobMetrics::Series& JobMetrics::SeriesOf(const JobRecord& job) {
  std::unique_ptr<Series>& series = series_[job.id];
  if (series == nullptr) series = std::make_unique<Series>(job, *families_);
  return *series;
}

void JobMetrics::Step(const StepRecorded& recorded, const JobRecord& job) {
  const RankStep& step = recorded.step;
  Series& series = SeriesOf(job);
  Families& all = *families_;
  Series::Stage& stage = series.StageOf(recorded.stage);
  for (size_t i = 0; i < kPhaseCount; ++i) stage.phases[i]->Increment(Seconds(step.*kPhases[i].time));
  stage.step->Set(Seconds(step.duration));
  stage.arena->Set(std::max(stage.arena->Value(), Number(step.arena_peak)));
  if (stage.planned_arena > 0) {
    if (stage.error == nullptr) {
      stage.error = &series.of_plan.Add(all.memory_error, series.With({{"stage", std::to_string(recorded.stage)}}));
    }
    stage.error->Set(ErrorOf(stage.arena->Value(), stage.planned_arena));
  }
  Series::StepSums& sums = series.sums;
  if (step.step != sums.step) series.Shares(std::exchange(sums, {.step = step.step}));
  sums.hidden += step.recompute_hidden;
  sums.recompute_exposed += step.recompute_exposed;
  sums.communication += step.tensor_wait + step.data_parallel_wait + step.norm_wait;
  sums.stall += step.stall;
  sums.all += step.duration;
  if (recorded.new_step) {
    series.Of(all.steps).Increment();
    series.Of(all.tokens).Increment(static_cast<double>(step.tokens));
    series.Of(all.flops).Increment(series.flops_per_token * static_cast<double>(step.tokens));
  }
  if (recorded.rank != 0) return;
  series.Of(all.loss).Set(step.loss);
  series.Of(all.gradient_norm).Set(step.gradient_norm);
  series.Of(all.learning_rate).Set(step.lr);
  series.Of(all.done_steps).Set(static_cast<double>(step.step + 1));
  series.Of(all.copied_steps).Set(static_cast<double>(step.copied_steps));
  // Counted by each generation from 0.
  const int64_t before = std::exchange(series.copies_skipped, step.copies_skipped);
  series.Of(all.copies_skipped).Increment(static_cast<double>(step.copies_skipped - (step.copies_skipped < before ? 0 : before)));
  series.histograms.Add(all.step_seconds, series.labels, kStepBuckets).Observe(Seconds(step.duration));
  if (series.predicted > Nanos(0) && job.progress.step > Nanos(0)) {
    series.of_plan.Add(all.step_error, series.labels).Set(ErrorOf(Seconds(job.progress.step), Seconds(series.predicted)));
  }
  if (series.peak_flops > 0 && step.duration > Nanos(0)) {
    const double rate = series.flops_per_token * static_cast<double>(step.tokens) / Seconds(step.duration);
    series.of_plan.Add(all.mfu, series.labels).Set(rate / series.peak_flops);
  }
}

void JobMetrics::Evaluated(const EvaluationRecorded& recorded, const JobRecord& job) {
  SeriesOf(job).Of(families_->validation_loss).Set(recorded.loss);
}

void JobMetrics::CheckpointWritten(const InsertCheckpoint& checkpoint, const JobRecord& job) {
  Series& series = SeriesOf(job);
  series.Of(families_->checkpoints).Increment();
  series.Of(families_->checkpoint_bytes).Set(Number(checkpoint.bytes));
  series.Of(families_->checkpoint_steps).Set(static_cast<double>(checkpoint.step));
  series.Of(families_->checkpoint_time).Set(Seconds(checkpoint.time));
}

void JobMetrics::Planned(const JobRecord& job, const Plan& plan, const ClusterTopology* cluster) {
  Series& series = SeriesOf(job);
  Families& all = *families_;
  // An earlier plan may have had more stages.
  series.of_plan.Clear();
  series.stages.clear();
  series.sums = {};
  series.predicted = plan.step;
  series.flops_per_token = StepFlops(plan.model, 1, FlopCount::kModel) / static_cast<double>(std::max(1, plan.model.seq));
  series.peak_flops = static_cast<double>(PeakOf(cluster, plan.model.dtype)) * plan.layout.ranks();
  series.of_plan
      .Add(all.info, series.With({{"queue", job.spec->scheduling.queue},
                                  {"layout", LayoutText(plan.layout)},
                                  {"device", job.device_kind == DeviceKind::kCuda ? "cuda" : "cpu"}}))
      .Set(1);
  series.of_plan.Add(all.predicted_step, series.labels).Set(Seconds(plan.step));
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& planned = plan.stages[i];
    const std::string name = std::to_string(i);
    for (const PredictedTime& time : kPredicted) {
      series.of_plan.Add(all.predicted_phase, series.With({{"stage", name}, {"phase", time.phase}})).Set(Seconds(planned.*time.time));
    }
    const std::pair<const char*, Bytes> kinds[] = {{"activations", planned.arena}, {"weights", planned.states.weights},
                                                   {"gradients", planned.states.gradients}, {"optimizer", planned.states.optimizer},
                                                   {"offloaded", planned.host}};
    for (const auto& [kind, bytes] : kinds) {
      series.of_plan.Add(all.memory_planned, series.With({{"stage", name}, {"kind", kind}})).Set(Number(bytes));
    }
    series.StageOf(static_cast<int32_t>(i)).planned_arena = Number(planned.arena);
  }
}

void JobMetrics::Happened(const JobRecord& job, const JobEvent& event) {
  Series& series = SeriesOf(job);
  const auto replanned = [&](const char* decision) {
    series.counters.Add(families_->replans, series.With({{"decision", decision}})).Increment();
  };
  if (event.kind == "replan-kept") replanned("kept");
  if (event.kind == "replanned") replanned("adopted");
  if (event.kind == "replan-forced") replanned("forced");
  if (event.kind == "resumed") series.Of(families_->resumes).Increment();
  if (event.kind == "step-skipped") series.Of(families_->skipped).Increment();
  if (event.kind == "checkpoint-failed") series.Of(families_->checkpoint_failures).Increment();
}

void JobMetrics::Updated(const JobRecord& job, int32_t devices) {
  Series& series = SeriesOf(job);
  series.Of(families_->ranks).Set(devices);
  series.Of(families_->target_steps).Set(static_cast<double>(job.spec->train.steps));
  // There from the start, so that the first increase is seen.
  series.CountTo(families_->restarts, job.restarts);
  for (CounterFamily* family : {&families_->checkpoint_failures, &families_->resumes, &families_->skipped}) series.Of(*family);
  for (const char* decision : {"kept", "adopted", "forced"}) series.counters.Add(families_->replans, series.With({{"decision", decision}}));
  for (size_t stage = 0; stage < job.measured.size(); ++stage) {
    if (job.measured[stage].states == Bytes(0) || !series.stages.contains(static_cast<int32_t>(stage))) continue;
    series.of_plan.Add(families_->memory_measured, series.With({{"stage", std::to_string(stage)}, {"kind", "states"}}))
        .Set(Number(job.measured[stage].states));
  }
}

void JobMetrics::Spent(const JobRecord& job, const std::vector<JobTimeline::Spent>& spent) {
  if (spent.empty()) return;
  Series& series = SeriesOf(job);
  for (const JobTimeline::Spent& part : spent) {
    series.counters.Add(families_->device_seconds, series.With({{"use", DeviceUseName(part.use)}})).Increment(part.device_seconds);
    series.held += part.device_seconds;
    if (part.use == DeviceUse::kTraining) series.trained += part.device_seconds;
  }
  if (series.held > 0) series.Of(families_->goodput).Set(series.trained / series.held);
}

void JobMetrics::Ended(const JobId& job, Nanos now) {
  if (const auto found = series_.find(job); found != series_.end()) found->second->ended = now;
}

void JobMetrics::Prune(Nanos now) {
  std::erase_if(series_, [&](const auto& entry) {
    const Nanos ended = entry.second->ended;
    return ended != Nanos(0) && now - ended >= kKeepEnded;
  });
}

}  // namespace lynx
