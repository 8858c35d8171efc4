// StepStatistics: combines the step reports of one generation into the job's progress and means per stage. Not thread-safe;
// owned by the controller. Bounded: a window of steps and a few sums per rank.
#ifndef LYNX_SERVER_SCHEDULING_PROGRESS_H_
#define LYNX_SERVER_SCHEDULING_PROGRESS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "common/units.h"
#include "planner/problem/layout.h"
#include "server/values/job.h"
#include "server/values/node_state.h"

namespace lynx::server {

class StepStatistics {
 public:
  StepStatistics() = default;
  // `base`: measurements of the same generation by an earlier server; empty for a new generation.
  StepStatistics(const ParallelLayout& layout, std::vector<StageMeasurement> base);

  void AddStarted(int32_t rank, const RankReady& started);
  // Adds the report to the statistics and to `progress`. `wall`: when the report came.
  void AddStep(int32_t rank, const StepReport& step, Nanos wall, Progress& progress);

  // Returns for each stage the mean times of the rank whose compute stream was busiest. arena_peak and states are the maxima of
  // all ranks of the stage.
  std::vector<StageMeasurement> Measured() const;

 private:
  struct RankSums {
    int64_t seen = 0;      // number of steps, including the warm-up steps that the sums leave out
    StageMeasurement sum;  // sums of times; maxima of peaks and sizes
  };
  struct WindowStep {
    Nanos duration;  // step time of the slowest rank that has reported so far
    int64_t tokens = 0;
  };

  void FillRates(Progress& progress) const;
  StageMeasurement MeasuredStage(int32_t stage) const;

  ParallelLayout layout_;
  std::vector<StageMeasurement> base_;
  std::vector<RankSums> ranks_;
  std::map<int64_t, WindowStep> window_;  // the newest kWindow steps, by step number
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_PROGRESS_H_
