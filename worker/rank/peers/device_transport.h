// How the devices of a job's ranks communicate: either all use NCCL, with the same version, or none of them does. Otherwise the
// ranks would wait for each other, or stop with an error that nobody understands. Collective; owned by the rank's compute
// thread.
#ifndef LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_
#define LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/rank/peers/agreement.h"

namespace lynx::worker {

// Returns true if the devices use NCCL. `own_nccl`: this rank's NcclName. `node`: the name of its machine. FailedPrecondition,
// on every rank, if a rank has another version of NCCL than rank 0, or if some ranks have NCCL and others do not. The error
// names two such nodes and what each has.
absl::StatusOr<bool> AgreeOnNccl(const std::string& own_nccl, const std::string& node, const RankGroup& seat);

// The name that the system has for this machine.
std::string MachineName();

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_
