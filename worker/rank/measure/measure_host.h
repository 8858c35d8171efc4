// Measures copies between a rank's arena and its host pool. As in the engine, a thread makes the copies at the same time as the
// computing thread computes, on the rank's own cores.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_HOST_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_HOST_H_

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"
#include "worker/backend/backend.h"
#include "worker/rank/measure/stopwatch.h"

namespace lynx::worker {

// Returns how much longer ops take while copies run at the same time, in thousandths. It assumes that the copies take as long
// as they take alone, and that they delay the end of the ops by `cost` = copying (1 - 1000 / slowdown). The result is limited
// to the largest value in a profile, a factor of 100.
int32_t SlowdownBesideCopies(Nanos copying, Nanos cost);

// Measures the rates; all are > 0. On one core, a copy takes its time from the ops, so the ops almost stop during the copy.
absl::StatusOr<HostLink> MeasureHost(Backend& backend, const Stopwatch& stopwatch);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_HOST_H_
