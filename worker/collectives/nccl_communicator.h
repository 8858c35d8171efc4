// NcclCommunicator is the Communicator between ranks whose devices have memory of their own. It uses NCCL.
//
// Each route (group.h) except the world's has its own NCCL communicator and its own device queue, so that routes do not delay
// each other. (Over TCP, each route has its own connections.) These routes are the tensor group, the data group (or each of its
// pieces), the groups for experts, the tied embedding, and each direction over each boundary between virtual stages. The
// boundaries between the same two ranks share one, if both ranks start their transfers in the same order (ShareLines). A call
// that starts a transfer returns when the transfer is issued. The transfer runs after all work that was issued to the backend
// before. Work that is issued to the backend after Wait runs after the transfer. Neither the start nor Wait waits for the
// device. Transfers of the whole world are in host memory, so they go through the host's communicator. Barriers go through it
// too.
//
// The host's communicator is the one over TCP (ConnectTcp). It connects to the peers and notices if one is lost. The first
// member of each route sends the route's ncclUniqueId to the others through it. The first error of the host's communicator ends
// all transfers between the devices (ncclCommAbort). An error of those transfers ends the host's communicator. So every rank
// ends with one error, as CPU ranks do. A thread watches the host's communicator and the NCCL communicators. It also enforces
// the idle timeout, which is the longest time that a transfer may take.
//
// Calls of NCCL block (ncclConfig_t::blocking is 1), because NCCL makes a thread for each call that does not block. A call that
// makes or ends communicators runs on a thread of its own, and is left behind if it takes too long (bounded_call.h). The watch
// thread aborts a call that starts a transfer and does not return.
//
// Only the backend's thread may start transfers and wait for them. Any thread may call Abort, Failure and SetIdleTimeout.
//
// Each device has one rank, because NCCL does not allow two ranks on one device.
#ifndef LYNX_WORKER_COLLECTIVES_NCCL_COMMUNICATOR_H_
#define LYNX_WORKER_COLLECTIVES_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/problem/layout.h"
#include "planner/program/action.h"
#include "worker/backend/backend.h"
#include "worker/collectives/communicator.h"

namespace lynx::worker {

struct NcclOptions {
  ParallelLayout layout;
  bool experts = false;  // see CommunicatorOptions
  int32_t rank = 0;
  // The rank's program, which tells the order of its transfers. Null: routes of several virtual stages share nothing. It is
  // read only while the communicator is made.
  const Program* program = nullptr;
  // The smallest and the largest number of thread blocks of a transfer. While they run, ops have less of the device. 0: NCCL
  // chooses.
  int32_t min_ctas = 0, max_ctas = 0;
  Nanos connect_timeout{120'000'000'000};  // the limit for connecting each route, and for NCCL's call that starts a transfer
  Nanos idle_timeout{0};                   // the longest time that a transfer may take; 0 = no limit
};

// Returns the version of NCCL that this process uses, such as "NCCL 2.28.3", or "" if the build has no NCCL. All ranks of a job
// need the same version.
std::string NcclName();

// Makes the communicator. All ranks must call it. `host` is the result of ConnectTcp for the same layout and rank. `host` and
// the backend must live longer than the result. InvalidArgument: the options are impossible, or the device has too few
// queues. Unimplemented: this build has no NCCL, or the backend has no queues. DeadlineExceeded: a route was not ready in time.
// Other errors come from NCCL or from the host's communicator, and name the route; the host's communicator has then failed too.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options, Communicator& host,
                                                                   Backend& backend);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_NCCL_COMMUNICATOR_H_
