// Estimates of a candidate's step from times of whole passes, by the timeline of its schedule. Pure; not thread-safe, because
// the caches are not.
#ifndef LYNX_PLANNER_CANDIDATES_ROUGH_STEP_H_
#define LYNX_PLANNER_CANDIDATES_ROUGH_STEP_H_

#include <vector>

#include "common/units.h"
#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"
#include "planner/schedule/transfer_timeline.h"

namespace lynx {

// The time of all passes of a step. `passes`: for each virtual stage, the times of one microbatch. Passes of a group of
// microbatches run side by side, and the next stage begins when the whole group has ended. So a group counts as one microbatch
// with the sum of the group's times. The last passes of a group end at about the same time, so their transfers begin only then.
Nanos PipelineTime(const Candidate& candidate, std::vector<TransferPassTimes> passes, PlanCaches& caches);

// Estimates the step by a rough estimate of the ranks' memory: each layer goes to the rank that is then the fastest of those
// that have room for it, and a rank recomputes what it cannot store (CandidateBound::RoughlyExposed). It counts how long ranks
// wait for each other, for transfers, and for reductions that the last passes do not hide, of which a bound (CandidateBound)
// counts only a part. Not a bound, but rarely longer than a guess (LayoutPlanner::Guess), and it takes far less time. Longer
// than any real step if the layers seem not to fit. 0 if the ranks do not form a chain from the first layers to the last.
// Memory is ignored if nodes are of several kinds, or if the job says the layers of each stage.
Nanos RoughStep(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches);

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_ROUGH_STEP_H_
