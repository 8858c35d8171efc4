// Measuring a device: how long every op of the layer graph takes for given shapes, through the same calls of the
// backend as in training, and generic rates for shapes that are not measured. Runs on the calling thread for about
// the request's budget.
#ifndef LYNX_WORKER_RANK_MEASURE_DEVICE_H_
#define LYNX_WORKER_RANK_MEASURE_DEVICE_H_

#include "absl/status/statusor.h"
#include "worker/rank/measure.h"

namespace lynx {

// The process should be pinned to the request's cores already. ResourceExhausted when a shape's tensors do not fit in
// memory.
absl::StatusOr<MeasureResult> MeasureDevice(const MeasureRequest& request);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_MEASURE_DEVICE_H_
