// Replaces nccl_communicator.cc in builds without NCCL.
#include "absl/status/status.h"
#include "worker/collectives/nccl_communicator.h"

namespace lynx::worker {

std::string NcclName() { return ""; }

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions&, Communicator&, Backend&) {
  return absl::UnimplementedError(
      "this build has no NCCL, without which ranks on GPUs cannot communicate; build on a machine with the CUDA toolkit "
      "and NCCL (its header and library)");
}

}  // namespace lynx::worker
