// See job_curves.h.
#include "server/values/job_curves.h"

#include <algorithm>
#include <utility>

namespace lynx::server {
namespace {

// True if `after` continues `before`: the same generation, and no step between them.
bool Follows(const StepPoint& before, const StepPoint& after) {
  return before.generation == after.generation && before.first_step + before.steps == after.first_step;
}

StepPoint Joined(const StepPoint& a, const StepPoint& b) {
  const auto before = static_cast<double>(a.steps), after = static_cast<double>(b.steps);
  const double time_before = before * static_cast<double>(a.step.value), time_after = after * static_cast<double>(b.step.value);
  StepPoint joined = a;
  joined.steps += b.steps;
  joined.time = b.time;
  const auto mean = [&](double of_a, double of_b) { return (of_a * before + of_b * after) / (before + after); };
  joined.loss = mean(a.loss, b.loss);
  joined.expert_skew = mean(a.expert_skew, b.expert_skew);
  joined.expert_dropped = mean(a.expert_dropped, b.expert_dropped);
  joined.expert_in_rounds = mean(a.expert_in_rounds, b.expert_in_rounds);
  joined.step = Nanos(static_cast<int64_t>((time_before + time_after) / (before + after)));
  joined.tokens_per_second =
      time_before + time_after > 0
          ? (a.tokens_per_second * time_before + b.tokens_per_second * time_after) / (time_before + time_after)
          : 0;
  return joined;
}

// Keeps every second point and the newest.
void ThinEvaluations(std::vector<EvaluationPoint>& points) {
  std::vector<EvaluationPoint> kept;
  for (size_t i = points.size() % 2; i < points.size(); i += 2) kept.push_back(points[i]);
  if (kept.back() != points.back()) kept.push_back(points.back());
  points = std::move(kept);
}

}  // namespace

JobCurves::JobCurves(std::vector<StepPoint> steps, std::vector<EvaluationPoint> evaluations)
    : steps_(std::move(steps)), evaluations_(std::move(evaluations)) {
  for (const StepPoint& point : steps_) {
    while (stride_ < point.steps) stride_ *= 2;
  }
}

void JobCurves::AddStep(Generation generation, const StepReport& step, Nanos wall) {
  if (!steps_.empty()) {
    const StepPoint& last = steps_.back();
    if (generation < last.generation || (generation == last.generation && step.step < last.first_step + last.steps)) return;
  }
  StepPoint point{.generation = generation,
                  .first_step = step.step,
                  .time = wall,
                  .loss = step.loss,
                  .step = step.duration,
                  .expert_skew = step.experts.skew,
                  .expert_dropped = step.experts.dropped(),
                  .expert_in_rounds = step.experts.in_rounds()};
  if (step.duration > Nanos(0)) point.tokens_per_second = static_cast<double>(step.tokens) / Seconds(step.duration);
  if (!steps_.empty() && steps_.back().steps < stride_ && Follows(steps_.back(), point)) {
    steps_.back() = Joined(steps_.back(), point);
    return;
  }
  if (steps_.size() == kMost) Thin();
  steps_.push_back(point);
}

void JobCurves::AddEvaluation(int64_t steps_done, double loss) {
  if (steps_done <= (evaluations_.empty() ? 0 : evaluations_.back().steps_done)) return;
  if (evaluations_.size() == kMost) ThinEvaluations(evaluations_);
  evaluations_.push_back({steps_done, loss});
}

// Joins pairs of consecutive points. If few points are consecutive, this frees too little space, and the oldest points are
// dropped.
void JobCurves::Thin() {
  stride_ *= 2;
  std::vector<StepPoint> joined;
  for (const StepPoint& point : steps_) {
    if (!joined.empty() && joined.back().steps + point.steps <= stride_ && Follows(joined.back(), point)) {
      joined.back() = Joined(joined.back(), point);
    } else {
      joined.push_back(point);
    }
  }
  constexpr size_t kKept = kMost * 3 / 4;
  if (joined.size() > kKept) joined.erase(joined.begin(), joined.end() - static_cast<std::ptrdiff_t>(kKept));
  steps_ = std::move(joined);
}

}  // namespace lynx::server
