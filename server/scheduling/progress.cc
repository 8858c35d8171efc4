// See progress.h.
#include "server/scheduling/progress.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace lynx::server {
namespace {

constexpr size_t kWindow = 20;      // number of steps from which the median is taken
constexpr size_t kRateWindow = 10;  // number of steps from which the tokens per second are computed
// The first steps of a generation are left out, because caches are cold and pages are touched for the first time.
constexpr int64_t kWarmupSteps = 2;

// Pointers to all times of a measurement, so that one loop can process them.
std::vector<Nanos*> TimesOf(StageMeasurement& m) {
  return {
      &m.step,        &m.forward, &m.backward,           &m.weight,    &m.optimizer, &m.recompute_hidden, &m.recompute_exposed,
      &m.tensor_wait, &m.stall,   &m.data_parallel_wait, &m.norm_wait, &m.core_wait};
}

// Busy time of the compute stream. It shows how slow a rank is, because it does not include the rank's waits.
Nanos Busy(const StageMeasurement& m) {
  return m.forward + m.backward + m.weight + m.optimizer + m.recompute_hidden + m.recompute_exposed;
}

StageMeasurement MeanOf(const StageMeasurement& sum) {
  StageMeasurement mean = sum;
  for (Nanos* time : TimesOf(mean)) *time = sum.steps > 0 ? *time / sum.steps : Nanos(0);
  return mean;
}

void AddTimes(StageMeasurement& to, StageMeasurement from, int64_t weight) {
  const std::vector<Nanos*> sums = TimesOf(to);
  const std::vector<Nanos*> terms = TimesOf(from);
  for (size_t i = 0; i < sums.size(); ++i) *sums[i] += *terms[i] * weight;
  to.steps += from.steps;
}

}  // namespace

StepStatistics::StepStatistics(const ParallelLayout& layout, std::vector<StageMeasurement> base)
    : layout_(layout), base_(std::move(base)), ranks_(static_cast<size_t>(layout.ranks())) {
  base_.resize(static_cast<size_t>(layout.pp));
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    // An earlier server has measured this stage, so the warm-up is over.
    const int32_t stage = CoordinatesOf(layout, static_cast<int32_t>(rank)).stage;
    if (base_[static_cast<size_t>(stage)].steps > 0) ranks_[rank].seen = kWarmupSteps;
  }
}

void StepStatistics::AddStarted(int32_t rank, const RankReady& started) {
  LYNX_CHECK(rank >= 0 && static_cast<size_t>(rank) < ranks_.size());
  ranks_[static_cast<size_t>(rank)].sum.states = started.states;
}

void StepStatistics::AddStep(int32_t rank, const StepReport& step, Nanos wall, Progress& progress) {
  LYNX_CHECK(rank >= 0 && static_cast<size_t>(rank) < ranks_.size());
  RankSums& sums = ranks_[static_cast<size_t>(rank)];
  sums.sum.arena_peak = std::max(sums.sum.arena_peak, step.arena_peak);
  if (++sums.seen > kWarmupSteps) {
    const StageMeasurement one{.steps = 1,
                               .step = step.duration,
                               .forward = step.forward,
                               .backward = step.backward,
                               .weight = step.weight,
                               .optimizer = step.optimizer,
                               .recompute_hidden = step.recompute_hidden,
                               .recompute_exposed = step.recompute_exposed,
                               .tensor_wait = step.tensor_wait,
                               .stall = step.stall,
                               .data_parallel_wait = step.data_parallel_wait,
                               .norm_wait = step.norm_wait,
                               .core_wait = step.core_wait};
    AddTimes(sums.sum, one, 1);
  }

  WindowStep& in_window = window_[step.step];
  in_window.duration = std::max(in_window.duration, step.duration);
  in_window.tokens = step.tokens;
  if (window_.size() > kWindow) window_.erase(window_.begin());
  // Loss, gradient norm, learning rate and the load of experts belong to the whole step and are equal on all ranks, so any
  // rank's report of the newest step sets them.
  const bool newest = progress.first_step_time == Nanos(0) || window_.rbegin()->first == step.step;
  if (newest) {
    if (progress.first_step_time == Nanos(0)) {
      progress.first_loss = step.loss;
      progress.first_step_time = wall;
    }
    progress.steps_done = step.step + 1;
    progress.loss = step.loss;
    progress.gradient_norm = step.gradient_norm;
    progress.lr = step.lr;
    progress.expert_skew = step.experts.skew;
    progress.expert_dropped = step.experts.dropped();
    progress.expert_in_rounds = step.experts.in_rounds();
    progress.expert_rounds = step.experts.rounds;
  }
  FillRates(progress);
}

void StepStatistics::FillRates(Progress& progress) const {
  std::vector<int64_t> durations;
  int64_t tokens = 0;
  Nanos spent;
  for (auto it = window_.rbegin(); it != window_.rend(); ++it) {
    if (durations.size() < kRateWindow) {
      tokens += it->second.tokens;
      spent += it->second.duration;
    }
    durations.push_back(it->second.duration.value);
  }
  const auto middle = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2);
  std::nth_element(durations.begin(), middle, durations.end());
  progress.step = Nanos(*middle);
  progress.tokens_per_second = spent > Nanos(0) ? static_cast<double>(tokens) / Seconds(spent) : 0;
}

StageMeasurement StepStatistics::MeasuredStage(int32_t stage) const {
  StageMeasurement slowest;
  Bytes arena_peak = base_[static_cast<size_t>(stage)].arena_peak;
  Bytes states = base_[static_cast<size_t>(stage)].states;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (CoordinatesOf(layout_, static_cast<int32_t>(rank)).stage != stage) continue;
    const StageMeasurement& sum = ranks_[rank].sum;
    arena_peak = std::max(arena_peak, sum.arena_peak);
    states = std::max(states, sum.states);
    if (slowest.steps == 0 || (sum.steps > 0 && Busy(MeanOf(sum)) > Busy(MeanOf(slowest)))) slowest = sum;
  }
  StageMeasurement total;
  const StageMeasurement& base = base_[static_cast<size_t>(stage)];
  AddTimes(total, base, base.steps);
  AddTimes(total, slowest, 1);
  StageMeasurement mean = MeanOf(total);
  mean.arena_peak = arena_peak;
  mean.states = states;
  return mean;
}

std::vector<StageMeasurement> StepStatistics::Measured() const {
  std::vector<StageMeasurement> measured;
  for (int32_t stage = 0; stage < layout_.pp; ++stage) measured.push_back(MeasuredStage(stage));
  return measured;
}

}  // namespace lynx::server
