// Measures copies between a rank's arena and its host pool. They are made as the engine makes them: by a thread beside the
// computing thread, on the rank's own cores.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_HOST_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_HOST_H_

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"
#include "worker/backend/backend.h"
#include "worker/rank/measure/stopwatch.h"

namespace lynx::worker {

// Returns how much longer ops take while copies run beside them, in thousandths. It assumes that copies take as long as they do
// alone, and delay the end of the ops by `cost` = copying (1 - 1000 / slowdown). The result is limited to the largest value in
// a profile, a factor of 100.
int32_t SlowdownBesideCopies(Nanos copying, Nanos cost);

// Measures the rates; all are > 0. On one core, a copy takes its time from the ops, which almost stop meanwhile.
absl::StatusOr<HostLink> MeasureHost(Backend& backend, const Stopwatch& stopwatch);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_HOST_H_
