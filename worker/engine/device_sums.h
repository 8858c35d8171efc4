// DeviceSums holds a step's loss, the sum of squares of its gradients, and counters. The rank's device computes them in its own
// memory, and the host reads them all with one copy.
//
// Not thread-safe. Borrows the backend, which owns the memory.
#ifndef LYNX_WORKER_ENGINE_DEVICE_SUMS_H_
#define LYNX_WORKER_ENGINE_DEVICE_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/engine/world_sum.h"

namespace lynx::worker {

class DeviceSums {
 public:
  // `counters`: the number of counters, 0 or more.
  static absl::StatusOr<DeviceSums> Create(int64_t counters, Backend& backend);

  // Pointers for the backend's ops that add to the sums and counters.
  double* loss() const { return &sums()->loss; }
  double* squared_norm() const { return &sums()->squared_norm; }
  int64_t* device_counters() const { return reinterpret_cast<int64_t*>(sums() + 1); }
  // Sets the sums and the counters to 0. Ops that are called on the backend afterwards add to these zeros.
  void Clear();
  // Waits for the device. Returns the sums of all ops that were called before, and reads the counters.
  absl::StatusOr<StepSums> Fetch();
  // Returns the counters as the last Fetch read them.
  std::span<const int64_t> counters() const;

 private:
  DeviceSums(std::span<float> memory, Backend& backend) : memory_(memory), fetched_(memory.size_bytes()), backend_(&backend) {}
  StepSums* sums() const { return reinterpret_cast<StepSums*>(memory_.data()); }

  std::span<float> memory_;  // on the device: a StepSums, then the counters
  std::vector<std::byte> fetched_;
  Backend* backend_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_DEVICE_SUMS_H_
