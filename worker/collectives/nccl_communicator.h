// NcclCommunicator: the Communicator between ranks whose devices have memory of their own. It uses NCCL.
//
// Each route (group.h) except the world's has its own NCCL communicator and its own device queue, so that routes do not delay
// each other, as over TCP. The routes are the tensor group, the data group (or each of its pieces), the tied embedding, and
// each direction over each boundary between virtual stages. A start returns when the transfer is issued: the transfer runs
// after everything that was called on the backend before. After a wait, what is called on the backend runs after the transfer.
// Neither waits for the device. Sums and messages of the whole world are in host memory and go through the host's communicator,
// as do barriers.
//
// The host's communicator connects to the peers and notices when one is lost. Over its routes, the first member of each route
// sends the others the route's ncclUniqueId. Its first error ends all transfers between the devices (ncclCommAbort), and any
// error of those transfers ends the host's communicator: so every rank ends with one error, as on CPU ranks. A thread watches
// both, and also enforces the idle timeout, the longest time that a transfer may take. No call of NCCL blocks
// (ncclConfig_t::blocking is 0).
//
// Starts and waits: the backend's thread. Abort, Failure and SetIdleTimeout: any thread.
//
// There is one rank for each device: NCCL does not allow two.
#ifndef LYNX_WORKER_COLLECTIVES_NCCL_COMMUNICATOR_H_
#define LYNX_WORKER_COLLECTIVES_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/problem/layout.h"
#include "worker/backend/backend.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

struct NcclOptions {
  ParallelLayout layout;
  int32_t rank = 0;
  // How many thread blocks a transfer takes from the device, and so from the ops that run beside it; 0: NCCL chooses.
  int32_t min_ctas = 0, max_ctas = 0;
  Nanos connect_timeout{120'000'000'000};  // limit for each route
  Nanos idle_timeout{0};                   // as in CommunicatorOptions, for each transfer
};

// "NCCL 2.28.3", the version that this process uses; empty if the build has no NCCL. The ranks of one job need the same
// version.
std::string NcclName();

// Collective. `host` is the result of ConnectTcp for the same layout and rank; it and the backend outlive the result.
// InvalidArgument: the options are impossible. Unimplemented: this build has no NCCL, or the backend has no queues.
// DeadlineExceeded: a route was not ready in time. Otherwise the error of NCCL or of the host's communicator, with the route;
// the host's communicator has then failed too.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options, Communicator& host,
                                                                   Backend& backend);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_NCCL_COMMUNICATOR_H_
