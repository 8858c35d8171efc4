// Makes the backend of a rank's device. This file is separate from the rest of the rank process, because a program that links
// it also links the CUDA backend, or the replacement of that backend in a build without CUDA.
#ifndef LYNX_WORKER_RANK_RANK_BACKEND_H_
#define LYNX_WORKER_RANK_RANK_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"
#include "worker/contract/rank_config.h"

namespace lynx::worker {

// Makes CUDA show only these GPUs to this process, in this order. Call it before the process first uses CUDA.
void ShowGpus(const std::vector<std::string>& uuids);

// `threads`: number of threads of the CPU's BLAS. A GPU is found by its UUID. CUDA then shows only this GPU to this process, so
// this call must be the process's first use of CUDA. Errors name the device. Unimplemented: this build has no CUDA. NotFound or
// Internal: the GPU or the driver does not work.
absl::StatusOr<std::unique_ptr<Backend>> MakeRankBackend(const RankDevice& device, int threads);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_RANK_BACKEND_H_
