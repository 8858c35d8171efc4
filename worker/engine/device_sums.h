// DeviceSums: what a rank adds up in a step, where its device adds it up.
//
// Not thread-safe. Borrows the backend, which has the memory.
#ifndef LYNX_WORKER_ENGINE_DEVICE_SUMS_H_
#define LYNX_WORKER_ENGINE_DEVICE_SUMS_H_

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/engine/world_sum.h"

namespace lynx {

class DeviceSums {
 public:
  static absl::StatusOr<DeviceSums> Create(Backend& backend);

  // For the backend's ops that add to them.
  double* loss() const { return &sums_->loss; }
  double* squared_norm() const { return &sums_->squared_norm; }
  // Both are 0 for all that is called on the backend from now on.
  void Clear();
  // What they are once all is done that was called before: it waits for the device.
  absl::StatusOr<StepSums> Fetch() const;

 private:
  DeviceSums(StepSums* sums, Backend& backend) : sums_(sums), backend_(&backend) {}

  StepSums* sums_;
  Backend* backend_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_DEVICE_SUMS_H_
