// Measuring the links between a node's GPUs: what transfers by NCCL cost, and what overlapping them with compute does to
// both. Each GPU is a rank as a thread of this process, with a backend and communicators of its own, as rank processes have
// them.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_GPU_LINKS_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_GPU_LINKS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/rank/measure/measure.h"

namespace lynx {

// Of GPU `index` of the request; called on the thread that uses it.
using MakeGpuBackend = std::function<absl::StatusOr<std::unique_ptr<Backend>>(int32_t index)>;

// How much is moved and computed.
struct GpuLinkSizes {
  // Of whole buffers, ascending, 2 or more; of a time budget that is spent, the first two are measured. The last one is moved
  // beside products, too.
  std::vector<Bytes> transfers = {kKiB * 64, kMiB, kMiB * 8, kMiB * 64};
  int64_t product_side = 1024;  // of square matrices
};

// The first error of any rank. Unimplemented: this build has no NCCL.
absl::StatusOr<GpuLinksResult> MeasureGpuLinks(const GpuLinksRequest& request, const MakeGpuBackend& make_backend,
                                               const GpuLinkSizes& sizes = {});

// What it took: a transfer alone; few products, shorter than that, alone and beside it; as many as take its time, alone; and
// these and the transfer until both were done.
struct OverlapTimes {
  Nanos transfer, few, few_beside, many, both;
};
// As HardwareProfile's overlap_slowdown_permille and communication_compute_permille. Pure.
struct OverlapCost {
  int32_t slowdown_permille = 1000, lost_permille = 0;
  bool operator==(const OverlapCost&) const = default;
};
OverlapCost OverlapOf(const OverlapTimes& times);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_GPU_LINKS_H_
