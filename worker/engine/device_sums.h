// DeviceSums holds a step's loss and the sum of squares of its gradients. The rank's device computes both sums in its own
// memory.
//
// Not thread-safe. Borrows the backend, which owns the memory.
#ifndef LYNX_WORKER_ENGINE_DEVICE_SUMS_H_
#define LYNX_WORKER_ENGINE_DEVICE_SUMS_H_

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/engine/world_sum.h"

namespace lynx::worker {

class DeviceSums {
 public:
  static absl::StatusOr<DeviceSums> Create(Backend& backend);

  // Pointers for the backend's ops that add to the sums.
  double* loss() const { return &sums_->loss; }
  double* squared_norm() const { return &sums_->squared_norm; }
  // Sets both sums to 0. Ops that are called on the backend afterwards add to these zeros.
  void Clear();
  // Waits for the device. Returns the sums of all ops that were called before.
  absl::StatusOr<StepSums> Fetch() const;

 private:
  DeviceSums(StepSums* sums, Backend& backend) : sums_(sums), backend_(&backend) {}

  StepSums* sums_;
  Backend* backend_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_DEVICE_SUMS_H_
