// Results that the candidates of one request share, because they depend only on a layer's shape or on a pipeline's schedule.
// Not thread-safe. A reference that a cache returns stays valid as long as the cache.
#ifndef LYNX_PLANNER_CANDIDATES_PLAN_CACHES_H_
#define LYNX_PLANNER_CANDIDATES_PLAN_CACHES_H_

#include <map>
#include <memory>
#include <tuple>
#include <utility>
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
#include "planner/schedule/transfer_timeline.h"

namespace lynx {

// Stages that HEU has solved (their Pareto fronts). Candidates with the same problem share them.
class ParetoCache {
 public:
  // Returns the solution of a problem. The problem's budget has no effect on it. The number of layers matters only if the
  // layers of the stage share a stall or copies.
  const StageHeu& Solve(RecomputeProblem problem);

 private:
  std::map<RecomputeProblem, StageHeu> fronts_;
  // Problems that differ only in layers, microbatches in flight (if these are at least 2) and stall share results
  // (StageHeu::ForStage). The key is what these problems have in common. The value is the first solution.
  std::map<RecomputeProblem, const StageHeu*> of_any_stage_;
};

class PlanCaches {
 public:
  // `request` must outlive this object.
  explicit PlanCaches(const PlanRequest& request) : request_(request) {}

  ParetoCache& fronts() { return fronts_; }
  StagePeaks& Peaks(const Candidate& candidate);
  const LayerLowerBound& Floor(const Candidate& candidate);
  const StateLowerBound& States(const Candidate& candidate);
  // Facts about the layout's schedule with `microbatches` microbatches. This schedule must exist (see Candidates).
  struct ScheduleFacts {
    Schedule schedule;
    SlotOrder order;
    std::vector<InFlightCount> in_flight;  // one entry per rank
  };
  const ScheduleFacts& FactsOf(const ParallelLayout& layout, int32_t microbatches);
  const PipelineSlots& SlotsOf(const ParallelLayout& layout, int32_t microbatches);
  const TransferOrder& TransfersOf(const ParallelLayout& layout, int32_t microbatches);

 private:
  const PlanRequest& request_;
  ParetoCache fronts_;
  // The key has the values on which LayerLayout depends: the shape, the number of ranks that shard states, and the ZeRO stage.
  std::map<std::tuple<LayerShape, int32_t, ZeroStage>, StagePeaks> peaks_;
  std::map<std::pair<LayerShape, bool>, LayerLowerBound> floors_;  // bool: passes run side by side
  // tp, pp, cp, dp, ep, ZeRO, group, order
  using StatesKey = std::tuple<int32_t, int32_t, int32_t, int32_t, int32_t, ZeroStage, int32_t, RankOrder>;
  std::map<StatesKey, StateLowerBound> states_;
  using ScheduleKey = std::tuple<ScheduleKind, int32_t, int32_t, int32_t, int32_t>;
  static ScheduleKey KeyOf(const ParallelLayout& layout, int32_t microbatches);
  std::map<ScheduleKey, ScheduleFacts> facts_;
  std::map<ScheduleKey, PipelineSlots> slots_;
  std::map<ScheduleKey, TransferOrder> transfers_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_PLAN_CACHES_H_
