// Decides how the devices of a job's ranks communicate: either all use NCCL, with the same version, or none of them uses it.
// Without this agreement the ranks would wait for each other, or stop with an error that nobody understands. Collective; only
// the rank's compute thread may call it.
#ifndef LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_
#define LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/connection_secret.h"
#include "worker/rank/peers/agreement.h"

namespace lynx::worker {

// Returns true if the devices use NCCL. `own_nccl`: the NcclName of this rank. `node`: the name of its machine. Returns
// FailedPrecondition on every rank if a rank has another version of NCCL than rank 0, or if some ranks have NCCL and others do
// not. The error names two such nodes and the version that each has. The same error if they would use NCCL, which cannot
// encrypt, and `encryption` is kOn.
absl::StatusOr<bool> AgreeOnNccl(const std::string& own_nccl, const std::string& node, RankEncryption encryption,
                                 const RankGroup& group);

// Returns the name that the system has for this machine.
std::string MachineName();

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_
