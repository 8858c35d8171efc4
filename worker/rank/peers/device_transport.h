// How the devices of a job's ranks communicate: all through NCCL, with the same version, or none of them. Ranks that disagree
// would wait for each other, or stop with an error that nobody understands. Collective; owned by the rank's compute thread.
#ifndef LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_
#define LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/rank/peers/agreement.h"

namespace lynx {

// Whether the devices use NCCL. `own_nccl`: this rank's NcclName. `node`: the name of its machine. FailedPrecondition, on every
// rank, when a rank has another version of NCCL than rank 0, or only one of them has NCCL: names both nodes and what each has.
absl::StatusOr<bool> AgreeOnNccl(const std::string& own_nccl, const std::string& node, const RankGroup& seat);

// The name that the system has for this machine.
std::string MachineName();

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_
