// What the candidates of one request share: solutions and measures that depend on a layer's shape or a pipeline's
// schedule alone. Not thread-safe; references stay valid.
#ifndef LYNX_PLANNER_PLAN_CACHES_H_
#define LYNX_PLANNER_PLAN_CACHES_H_

#include <map>
#include <memory>
#include <tuple>

#include "planner/candidate_bound.h"
#include "planner/plan.h"
#include "planner/recompute_problem.h"
#include "planner/schedule_order.h"
#include "planner/search.h"
#include "planner/stage_heu.h"
#include "planner/stage_peaks.h"

namespace lynx {

// HEU's fronts of stages. Candidates that share a problem share them.
class FrontCache {
 public:
  // The budget does not matter; nor do the layers, unless the stage shares a stall or copies among them.
  const StageHeu& Solve(RecomputeProblem problem);

 private:
  std::map<RecomputeProblem, StageHeu> of_any_stage_;  // what the fronts share, by problems of one layer in flight
  std::map<RecomputeProblem, StageHeu> fronts_;
};

class PlanCaches {
 public:
  // `request` outlives it.
  explicit PlanCaches(const PlanRequest& request) : request_(request) {}

  FrontCache& fronts() { return fronts_; }
  StagePeaks& Peaks(const Candidate& candidate);
  const LayerFloor& Floor(const Candidate& candidate);
  // The candidate's schedule exists: see Candidates.
  const SlotOrder& Slots(const Candidate& candidate);

 private:
  const PlanRequest& request_;
  FrontCache fronts_;
  std::map<LayerShape, StagePeaks> peaks_;
  std::map<LayerShape, LayerFloor> floors_;
  std::map<std::tuple<ScheduleKind, int32_t, int32_t, int32_t>, SlotOrder> slots_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PLAN_CACHES_H_
