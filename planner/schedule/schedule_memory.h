// How much of a schedule's activations each rank holds at once, from the slots alone. A stage holds a microbatch's
// activations from the begin of F to the end of B; where weights are split, what W reads (inputs of the matrix
// products and the gradients of their outputs) from the end of B to the end of W. Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_SCHEDULE_MEMORY_H_
#define LYNX_PLANNER_SCHEDULE_SCHEDULE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// Counts of (stage, microbatch) pairs, each at its own maximum: a pair counts one whichever of the rank's stages it
// is, so in a pipeline with v chunks on each rank it is 1/v of the rank's layers.
struct InFlightCount {
  int32_t activations = 0;  // begun F, not ended B
  int32_t weights = 0;      // ended B, not ended W; 0 where weights are not split
  int32_t either = 0;       // begun F, not ended the last of its passes

  bool operator==(const InFlightCount&) const = default;
};

// Per rank. The schedule must be valid.
std::vector<InFlightCount> CountInFlight(const Schedule& schedule);

// What one microbatch holds on a virtual stage.
struct StageHeldBytes {
  Bytes activations;  // from F to B
  Bytes weights;      // from B to W; not read where weights are not split
};

// Most bytes that each rank holds at once, given those of each virtual stage. The schedule must be valid.
std::vector<Bytes> PeakHeldBytes(const Schedule& schedule, const std::vector<StageHeldBytes>& stages);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_MEMORY_H_
