// Measuring a device: how long every op of the layer graph takes for given shapes, through the same calls of the
// backend as in training, and generic rates for shapes that are not measured. Runs on the calling thread for about
// the request's budget.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_DEVICE_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_DEVICE_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/rank/measure/measure.h"

namespace lynx {

// Of the request's device. What a backend allocates is free again when it ends.
using MakeBackend = std::function<absl::StatusOr<std::unique_ptr<Backend>>()>;

// The process should be pinned to the request's cores already. ResourceExhausted when a shape's tensors do not fit in
// memory; errors of the device and of `make_backend`.
absl::StatusOr<MeasureResult> MeasureDevice(const MeasureRequest& request, const MakeBackend& make_backend);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_DEVICE_H_
