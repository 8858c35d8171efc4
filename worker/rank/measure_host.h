// Measuring copies between a rank's arena and its host pool, made as the engine makes them: by a thread beside the one that
// computes, on the rank's own cores.
#ifndef LYNX_WORKER_RANK_MEASURE_HOST_H_
#define LYNX_WORKER_RANK_MEASURE_HOST_H_

#include "absl/status/statusor.h"
#include "planner/hardware_profile.h"
#include "worker/backend/backend.h"
#include "worker/rank/stopwatch.h"

namespace lynx {

// All rates > 0. On one core a copy takes its share of it from the ops, which is their slowdown.
absl::StatusOr<HostLink> MeasureHost(Backend& backend, const Stopwatch& stopwatch);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_MEASURE_HOST_H_
