// Measures copies between a device with memory of its own and pinned memory of its host. As in the engine, queues of the device
// make the copies at the same time as ops run.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_PINNED_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_PINNED_H_

#include "absl/status/statusor.h"
#include "planner/cost/hardware_profile.h"
#include "worker/backend/backend.h"
#include "worker/rank/measure/stopwatch.h"

namespace lynx::worker {

// Measures the rates; all are > 0. Errors are those of the backend.
absl::StatusOr<HostLink> MeasurePinned(Backend& backend, const Stopwatch& stopwatch);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_PINNED_H_
