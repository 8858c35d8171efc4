// The backend of a rank's device. Apart from the rest of the rank process, which knows no kind of device: who links this
// links a CUDA backend too, or what stands in for it.
#ifndef LYNX_WORKER_RANK_RANK_BACKEND_H_
#define LYNX_WORKER_RANK_RANK_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/contract/rank_config.h"

namespace lynx {

// The GPUs that CUDA shows this process, in this order, from the first thing on that it wants of CUDA.
void ShowGpus(const std::vector<std::string>& uuids);

// `threads`: of the CPU's BLAS. A GPU is found by its UUID, which becomes all that CUDA shows this process: so it must be
// the first thing that this process wants of CUDA. Errors name the device: Unimplemented where this build has no CUDA,
// NotFound or Internal where the GPU or the driver does not serve.
absl::StatusOr<std::unique_ptr<Backend>> MakeRankBackend(const RankDevice& device, int threads);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_RANK_BACKEND_H_
