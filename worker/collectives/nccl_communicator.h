// The Communicator between ranks whose devices have memory of their own, by NCCL.
//
// Each route (group.h) but the world's has an NCCL communicator and a queue of the device of its own, so that routes do not
// hold each other up, as over TCP: the tensor group, the data group (or each of its pieces), the tied embedding, and each
// direction over each boundary between virtual stages. A start returns when the transfer is issued: it follows what was
// called on the backend before, and a wait makes what is called on the backend afterwards follow it. Neither waits for the
// device. Sums and messages of the whole world are in the host's memory, and go by the communicator of the host, as do
// barriers.
//
// The host's communicator is what meets the peers and what notices the loss of one. Over its routes the first member of
// each tells the others the route's ncclUniqueId. Its first error ends all transfers between the devices
// (ncclCommAbort), and theirs, of whatever kind, ends it: so every rank ends with one error, as on CPU ranks. A thread
// watches over both, and over the idle timeout: for so long a transfer may be under way. No call of NCCL blocks
// (ncclConfig_t::blocking is 0).
//
// Starts and waits: the backend's thread. Abort, Failure and SetIdleTimeout: any thread.
//
// There is one rank for each device: NCCL refuses two.
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

namespace lynx {

struct NcclOptions {
  ParallelLayout layout;
  int32_t rank = 0;
  // Thread blocks that a transfer takes of the device, and so of the ops that run beside it; 0: as NCCL chooses.
  int32_t min_ctas = 0, max_ctas = 0;
  Nanos connect_timeout{120'000'000'000};  // of each route
  Nanos idle_timeout{0};                   // as in CommunicatorOptions: of each transfer
};

// "NCCL 2.28.3", of this process; empty where the build has none. Ranks of one job need the same.
std::string NcclName();

// Collective. `host` is what ConnectTcp gave for the same layout and rank; it and the backend outlive the result.
// InvalidArgument: options that cannot be. Unimplemented: this build has no NCCL, or the backend no queues.
// DeadlineExceeded: a route was not ready in time. Else what NCCL or the host's communicator says, with the route; the
// host's communicator has failed then too.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options, Communicator& host,
                                                                   Backend& backend);

}  // namespace lynx

#endif  // LYNX_WORKER_COLLECTIVES_NCCL_COMMUNICATOR_H_
