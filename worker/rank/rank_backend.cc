#include "worker/rank/rank_backend.h"

#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"

namespace lynx::worker {

void ShowGpus(const std::vector<std::string>& uuids) { ::setenv("CUDA_VISIBLE_DEVICES", absl::StrJoin(uuids, ",").c_str(), 1); }

absl::StatusOr<std::unique_ptr<Backend>> MakeRankBackend(const RankDevice& device, int threads) {
  if (device.kind == DeviceKind::kCpu) return MakeCpuBackend(threads);
  LYNX_CHECK(device.kind == DeviceKind::kCuda);
  ShowGpus({device.uuid});
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(0);
  if (backend.ok()) return backend;
  return Annotate(backend.status(), absl::StrCat("GPU ", device.index, " of this node (", device.uuid, ")"));
}

}  // namespace lynx::worker
