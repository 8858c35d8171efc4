// How much of a schedule's activations each rank holds at the same time. This is computed from the slots only. A stage holds
// the activations of a microbatch from the begin of F to the end of B. If weights are split, the stage holds what W reads
// (inputs of the matrix products and the gradients of their outputs) from the end of B to the end of W. Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_SCHEDULE_MEMORY_H_
#define LYNX_PLANNER_SCHEDULE_SCHEDULE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// Maximum numbers of (stage, microbatch) pairs that a rank holds at the same time. Each field has its own maximum. In a
// pipeline with v chunks per rank, a pair stands for 1/v of the rank's layers.
struct InFlightCount {
  int32_t activations = 0;  // pairs whose F has begun and whose B has not ended
  int32_t weights = 0;      // pairs whose B has ended and whose W has not ended; 0 if weights are not split
  int32_t either = 0;       // pairs whose F has begun and whose last pass has not ended

  bool operator==(const InFlightCount&) const = default;
};

// Returns one InFlightCount for each rank. The schedule must be valid.
std::vector<InFlightCount> CountInFlight(const Schedule& schedule);

// The activations of rank `rank` in the interleaved schedule of M = `microbatches`, by a formula: what CountInFlight counts.
// The rank runs 2(p-r-1) + (v-1)p forwards before its first backward, so it holds the activations of one more than this. These
// are the first forward slots of the schedule for the next multiple of p, from which the slots of microbatches that do not
// exist are left out. If p divides M, these are min((v-1)p + 2(p-r-1) + 1, vM) (Korthikanti et al. 2022).
int64_t InterleavedInFlight(const PipelineShape& shape, int32_t rank, int64_t microbatches);

// Bytes that one microbatch holds on a virtual stage.
struct StageHeldBytes {
  Bytes activations;  // held from F to B
  Bytes weights;      // held from B to W; not used if weights are not split
};

// Returns for each rank the maximum of the bytes that it holds at the same time. `stages` has, for each virtual stage, the
// bytes of one microbatch. The schedule must be valid.
std::vector<Bytes> PeakHeldBytes(const Schedule& schedule, const std::vector<StageHeldBytes>& stages);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_MEMORY_H_
