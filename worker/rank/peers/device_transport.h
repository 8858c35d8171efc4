// How the devices of a job's ranks reach each other: all by NCCL, of one version, or none. Ranks that do it in different
// ways would wait for each other, or stop with an error that nobody understands. Collective; owned by the rank's compute
// thread.
#ifndef LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_
#define LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/rank/peers/agreement.h"

namespace lynx {

// Whether by NCCL. `own_nccl`: this rank's NcclName. `node`: the name of its machine. FailedPrecondition, on every rank, where
// one has another NCCL than rank 0, or none: names both nodes and what either has.
absl::StatusOr<bool> AgreeOnNccl(const std::string& own_nccl, const std::string& node, const Seat& seat);

// As the system calls it.
std::string MachineName();

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_PEERS_DEVICE_TRANSPORT_H_
