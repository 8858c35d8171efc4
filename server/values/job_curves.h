// JobCurves: losses and rates of a job, step by step. The size is bounded: when there are more steps than points, one point
// stands for several consecutive steps. Pure; not thread-safe.
#ifndef LYNX_SERVER_VALUES_JOB_CURVES_H_
#define LYNX_SERVER_VALUES_JOB_CURVES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "server/values/node_state.h"

namespace lynx::server {

// Means over consecutive steps of one generation.
struct StepPoint {
  Generation generation;
  int64_t first_step = 0;
  int64_t steps = 1;
  Nanos time;  // wall clock when the last of these steps was reported
  double loss = 0;
  double tokens_per_second = 0;  // over all of these steps; 0: unknown
  Nanos step;
  double expert_skew = 0, expert_dropped = 0, expert_in_rounds = 0;  // see Progress; 0 without experts
  bool operator==(const StepPoint&) const = default;
};

struct EvaluationPoint {
  int64_t steps_done = 0;
  double loss = 0;
  bool operator==(const EvaluationPoint&) const = default;
};

class JobCurves {
 public:
  static constexpr size_t kMost = 512;  // largest number of points of each curve

  JobCurves() = default;
  // Restores the curves that an earlier server stored.
  JobCurves(std::vector<StepPoint> steps, std::vector<EvaluationPoint> evaluations);

  // Adds the step if it has not been reported in this generation. A step that a later generation repeats gets another point.
  void AddStep(Generation generation, const StepReport& step, Nanos wall);
  void AddEvaluation(int64_t steps_done, double loss);

  const std::vector<StepPoint>& steps() const { return steps_; }
  const std::vector<EvaluationPoint>& evaluations() const { return evaluations_; }
  bool empty() const { return steps_.empty() && evaluations_.empty(); }

 private:
  void Thin();

  int64_t stride_ = 1;  // number of steps that a new point collects before the next point begins
  std::vector<StepPoint> steps_;
  std::vector<EvaluationPoint> evaluations_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_JOB_CURVES_H_
