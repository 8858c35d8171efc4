// Measures a device: the time of every op of the layer graph for the given shapes, and generic rates for shapes that are not
// measured. Calls the backend in the same way as training does. Runs on the calling thread, for about the time of the request's
// budget.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_DEVICE_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_DEVICE_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/contract/measurement.h"

namespace lynx::worker {

// Makes a backend for the request's device. Memory that a backend has allocated is freed when the backend is destroyed.
using MakeBackend = std::function<absl::StatusOr<std::unique_ptr<Backend>>()>;

// The process must already be pinned to the request's cores. Returns ResourceExhausted if the tensors of a shape do not fit
// into memory. Other errors are those of the device and of `make_backend`.
absl::StatusOr<MeasureResult> MeasureDevice(const MeasureRequest& request, const MakeBackend& make_backend);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_DEVICE_H_
