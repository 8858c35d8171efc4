// CheckDevice checks whether a device keeps what is written to it and computes correctly. It writes patterns and reads them
// back. It also repeats a matrix product whose elements are known beforehand. The elements are whole numbers, so their sums are
// exact in any order of the additions. This is a part of the check before a generation (node_check.h). Not thread-safe.
#ifndef LYNX_WORKER_RANK_CHECK_CHECK_DEVICE_H_
#define LYNX_WORKER_RANK_CHECK_CHECK_DEVICE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/problem/job_spec.h"
#include "worker/backend/backend.h"

namespace lynx::worker {

struct DeviceCheck {
  int32_t size = 0;                    // number of rows of the square matrices, from 1 to kMaxCheckedProduct
  DataType type = DataType::kFloat32;  // the type of the factors' elements
  Nanos duration;                      // how long the product is repeated; it is computed at least kLeastProducts times
};
// Up to this size every sum is below 2^24.
inline constexpr int32_t kMaxCheckedProduct = 8192;
inline constexpr int kLeastProducts = 2;

// Returns a check that takes a tenth of a second. It does the same kind of work as a job with elements of this type.
DeviceCheck DeviceCheckOf(const Backend& backend, DataType type);

// Uses three fp32 matrices of device memory until the backend is destroyed: 768 KiB on the CPU, 12 MiB on a GPU. On a GPU this
// memory is a part of what the node's agent reserves and does not offer to plans. Returns DataLoss if the device failed the
// check; the message says which word or element is wrong, its value and the correct value. Errors of the backend are returned
// unchanged.
absl::Status CheckDevice(const DeviceCheck& check, Backend& backend);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_CHECK_CHECK_DEVICE_H_
