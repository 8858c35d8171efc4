// Replaces the CUDA backend in builds without CUDA.
#include "absl/status/status.h"
#include "worker/backend/backend.h"

namespace lynx::worker {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int) {
  return absl::UnimplementedError(
      "this build has no CUDA backend; build on a machine with the CUDA toolkit (cmake -DLYNX_CUDA=ON says what is "
      "missing)");
}

}  // namespace lynx::worker
