// What the candidates of one request share: solutions and measures that depend on a layer's shape or a pipeline's
// schedule alone. Not thread-safe; references stay valid.
#ifndef LYNX_PLANNER_CANDIDATES_PLAN_CACHES_H_
#define LYNX_PLANNER_CANDIDATES_PLAN_CACHES_H_

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "planner/candidates/candidate_bound.h"
#include "planner/candidates/search.h"
#include "planner/candidates/stage_peaks.h"
#include "planner/candidates/state_lower_bound.h"
#include "planner/plan/plan.h"
#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_heu.h"
#include "planner/schedule/lower_slots.h"
#include "planner/schedule/schedule_memory.h"
#include "planner/schedule/schedule_order.h"

namespace lynx {

// HEU's fronts of stages. Candidates that share a problem share them.
class FrontCache {
 public:
  // The budget does not matter; nor do the layers, unless the stage shares a stall or copies among them.
  const StageHeu& Solve(RecomputeProblem problem);

 private:
  std::map<RecomputeProblem, StageHeu> fronts_;
  // The first of those that can share, by what they have in common.
  std::map<RecomputeProblem, const StageHeu*> of_any_stage_;
};

class PlanCaches {
 public:
  // `request` outlives it.
  explicit PlanCaches(const PlanRequest& request) : request_(request) {}

  FrontCache& fronts() { return fronts_; }
  StagePeaks& Peaks(const Candidate& candidate);
  const LayerLowerBound& Floor(const Candidate& candidate);
  const StateLowerBound& States(const Candidate& candidate);
  // Of the candidate's schedule, which exists (see Candidates), with so many microbatches.
  struct ScheduleFacts {
    Schedule schedule;
    SlotOrder order;
    std::vector<InFlightCount> in_flight;  // per rank
  };
  const ScheduleFacts& FactsOf(const ParallelLayout& layout, int32_t microbatches);
  const PipelineSlots& SlotsOf(const ParallelLayout& layout, int32_t microbatches);

 private:
  const PlanRequest& request_;
  FrontCache fronts_;
  // By what LayerLayout keeps: the shape, and who shares what.
  std::map<std::tuple<LayerShape, int32_t, ZeroStage>, StagePeaks> peaks_;
  std::map<LayerShape, LayerLowerBound> floors_;
  using StatesKey = std::tuple<int32_t, int32_t, int32_t, int32_t, ZeroStage>;  // tp, pp, cp, dp
  std::map<StatesKey, StateLowerBound> states_;
  using ScheduleKey = std::tuple<ScheduleKind, int32_t, int32_t, int32_t>;
  std::map<ScheduleKey, ScheduleFacts> facts_;
  std::map<ScheduleKey, PipelineSlots> slots_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_PLAN_CACHES_H_
