// Measuring copies between a rank's arena and its host pool, made as the engine makes them: by a thread beside the one that
// computes, on the rank's own cores.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_HOST_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_HOST_H_

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"
#include "worker/backend/backend.h"
#include "worker/rank/measure/stopwatch.h"

namespace lynx {

// How much longer ops take while copies run beside them, in thousandths, if copies take as long as alone and make the
// ops end so much later: `cost` = copying (1 - 1000 / slowdown). At most what a profile may say, a hundredfold.
int32_t SlowdownBesideCopies(Nanos copying, Nanos cost);

// All rates > 0. On one core a copy takes its time from the ops, which as good as stand still beside it.
absl::StatusOr<HostLink> MeasureHost(Backend& backend, const Stopwatch& stopwatch);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_HOST_H_
