// Measures the links between a node's GPUs: the cost of transfers through NCCL, and how much transfers and compute slow each
// other down when they overlap. Each GPU is a rank: a thread of this process with its own backend and communicators, as a rank
// process has them.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_GPU_LINKS_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_GPU_LINKS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/contract/measurement.h"

namespace lynx::worker {

// Makes the backend of GPU `index` of the request; called on the thread that uses it.
using MakeGpuBackend = std::function<absl::StatusOr<std::unique_ptr<Backend>>(int32_t index)>;

// How much is transferred and computed.
struct GpuLinkSizes {
  // Sizes of whole buffers, ascending, 2 or more. When the time budget is spent, only the first two sizes are measured. The
  // last size is also transferred beside products.
  std::vector<Bytes> transfers = {kKiB * 64, kMiB, kMiB * 8, kMiB * 64};
  int64_t product_side = 1024;  // side of the square matrices
};

// Returns the first error of any rank. Unimplemented: this build has no NCCL.
absl::StatusOr<GpuLinksResult> MeasureGpuLinks(const GpuLinksRequest& request, const MakeGpuBackend& make_backend,
                                               const GpuLinkSizes& sizes = {});

// Measured times. transfer: a transfer alone. few, few_beside: a few products, which take less time than the transfer, alone
// and beside the transfer. many: as many products as take the transfer's time, alone. both: these products together with the
// transfer, until both are done.
struct OverlapTimes {
  Nanos transfer, few, few_beside, many, both;
};
// The values of HardwareProfile: overlap_slowdown_permille and communication_compute_permille. Pure.
struct OverlapCost {
  int32_t slowdown_permille = 1000, lost_permille = 0;
  bool operator==(const OverlapCost&) const = default;
};
OverlapCost OverlapOf(const OverlapTimes& times);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_GPU_LINKS_H_
