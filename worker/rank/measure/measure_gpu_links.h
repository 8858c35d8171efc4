// Measures the links between a node's GPUs: the cost of transfers through NCCL, and how much transfers and compute slow each
// other down when they overlap. Each GPU has a rank. A rank is a thread of this process, with its own backend and its own
// communicators, like a rank process.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_GPU_LINKS_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_GPU_LINKS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/contract/measurement.h"

namespace lynx::worker {

// Makes the backend for GPU number `index` of the request. It is called on the thread that uses the backend.
using MakeGpuBackend = std::function<absl::StatusOr<std::unique_ptr<Backend>>(int32_t index)>;

// How many bytes are transferred, and how large the products are.
struct GpuLinkSizes {
  // The sizes of whole buffers: 2 or more sizes, ascending. The first two sizes are always measured. When the time budget is
  // used up, the remaining sizes are skipped. Transfers of the last size also run at the same time as products.
  std::vector<Bytes> transfers = {kKiB * 64, kMiB, kMiB * 8, kMiB * 64};
  // The number of rows of the square matrices of bfloat16. A product of this size occupies all multiprocessors of a large GPU.
  int64_t product_side = 2048;
};

// Returns the first error of any rank. Returns Unimplemented if this build has no NCCL.
absl::StatusOr<GpuLinksResult> MeasureGpuLinks(const GpuLinksRequest& request, const MakeGpuBackend& make_backend,
                                               const GpuLinkSizes& sizes = {});

// Measured times. transfer: a transfer alone. few: a few products alone, which take less time than the transfer. few_beside:
// these products while the transfer runs. many: more products alone, so many that they take about the time of the transfer.
// both: the products of `many` together with the transfer, until both are done.
struct OverlapTimes {
  Nanos transfer, few, few_beside, many, both;
};
// Two values of HardwareProfile: overlap_slowdown_permille, and communication_compute_permille as lost_permille.
struct OverlapCost {
  int32_t slowdown_permille = 1000, lost_permille = 0;
  bool operator==(const OverlapCost&) const = default;
};
// Pure.
OverlapCost OverlapOf(const OverlapTimes& times);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_GPU_LINKS_H_
