// CheckDevice: whether a device keeps what is written to it and computes what it should: patterns that are read back, and a
// product of matrices whose every element is known beforehand, exact in whole numbers whatever the order of the sums, again and
// again. Part of the check before a generation (node_check.h). Not thread-safe.
#ifndef LYNX_WORKER_RANK_CHECK_CHECK_DEVICE_H_
#define LYNX_WORKER_RANK_CHECK_CHECK_DEVICE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/problem/job_spec.h"
#include "worker/backend/backend.h"

namespace lynx {

struct DeviceCheck {
  int32_t size = 0;                    // of the square matrices, from 1 to kMaxCheckedProduct
  DataType type = DataType::kFloat32;  // of the factors
  Nanos duration;                      // to repeat the product for; it is made kLeastProducts times at least
};
// Up to here every sum is below 2^24.
inline constexpr int32_t kMaxCheckedProduct = 8192;
inline constexpr int kLeastProducts = 2;

// A tenth of a second of what a job with elements of this type does there.
DeviceCheck DeviceCheckOf(const Backend& backend, DataType type);

// Takes three matrices of fp32 of the device's memory, until the backend ends: 768 KiB on the CPU, 12 MiB on a GPU, where it is
// a part of what the node's agent reserves beside plans. DataLoss: the device has failed the check: which word or element, what
// it is and what it should be. Errors of the backend as they are.
absl::Status CheckDevice(const DeviceCheck& check, Backend& backend);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_CHECK_CHECK_DEVICE_H_
