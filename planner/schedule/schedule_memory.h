// How much of a schedule's activations each rank holds at the same time, computed from the slots only. A stage holds a
// microbatch's activations from the begin of F to the end of B. If weights are split, it holds what W reads (inputs of
// the matrix products and the gradients of their outputs) from the end of B to the end of W. Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_SCHEDULE_MEMORY_H_
#define LYNX_PLANNER_SCHEDULE_SCHEDULE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// Maximum numbers of (stage, microbatch) pairs; each field has its own maximum. Each pair counts as one. In a pipeline with v
// chunks per rank, a pair stands for 1/v of the rank's layers.
struct InFlightCount {
  int32_t activations = 0;  // F has begun, B has not ended
  int32_t weights = 0;      // B has ended, W has not ended; 0 if weights are not split
  int32_t either = 0;       // F has begun, the last pass of the pair has not ended

  bool operator==(const InFlightCount&) const = default;
};

// Returns one count for each rank. The schedule must be valid.
std::vector<InFlightCount> CountInFlight(const Schedule& schedule);

// Bytes that one microbatch holds on a virtual stage.
struct StageHeldBytes {
  Bytes activations;  // from F to B
  Bytes weights;      // from B to W; not used if weights are not split
};

// Returns for each rank the maximum of the bytes that it holds at the same time. `stages`: bytes per microbatch of each virtual
// stage. The schedule must be valid.
std::vector<Bytes> PeakHeldBytes(const Schedule& schedule, const std::vector<StageHeldBytes>& stages);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_MEMORY_H_
