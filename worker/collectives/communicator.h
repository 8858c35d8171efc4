// Communicator: asynchronous collectives and transfers between the ranks of one job generation. A start returns at once, and
// the transfer goes on while the caller computes; a wait sleeps (never spins) until the transfer is done.
//
// The starts on one route (group.h) are carried out in the order in which they were issued, and every member must issue the
// same starts in the same order. Routes do not delay each other. The result of a reduction has the same bits on every member of
// the group, and the same bits in every run. Reductions of bfloat16 add in fp32, and round what one member passes on to the
// next.
//
// A lost peer, a passed deadline or Abort ends every pending and later call at once, on every surviving rank, with the same
// first error. Starts and waits: one thread. Abort: any thread.
#ifndef LYNX_WORKER_COLLECTIVES_COMMUNICATOR_H_
#define LYNX_WORKER_COLLECTIVES_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/link_use.h"
#include "common/moment.h"
#include "common/units.h"
#include "planner/problem/layout.h"
#include "planner/program/action.h"
#include "worker/collectives/elements.h"
#include "worker/collectives/group.h"
#include "worker/contract/peer_address.h"

namespace lynx::worker {

struct TransferTicket {
  int64_t id = 0;
};

struct TransferTimes {
  // When the first byte had been both sent and received, so the neighbours are known to have begun. For transfers between
  // devices: when this rank's transfer could have begun.
  Moment started;
  Moment completed;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // data (count) = sum over the group (kTensor, kData, kWorld). The buffer must stay untouched until the wait.
  virtual absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) = 0;
  // data (members, count): this rank's slot must be filled; the slots of the other members are received. Slots are in the order
  // of the group.
  virtual absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) = 0;
  // data (members, count): this rank's slot = the sum over the group of the slots at that place; the content of the other slots
  // is lost.
  virtual absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) = 0;
  // To or from the neighbour stage (kNextStage, kPreviousStage). InvalidArgument where no other rank has such a stage.
  virtual absl::StatusOr<TransferTicket> StartSend(const Route& neighbour, ConstElements data, int64_t count) = 0;
  virtual absl::StatusOr<TransferTicket> StartRecv(const Route& neighbour, Elements data, int64_t count) = 0;
  // Call it once for each ticket. A transfer of device memory may still be running when this returns; what is called on the
  // backend after this runs after the transfer.
  virtual absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) = 0;

  // Returns when every rank of the world has called it.
  virtual absl::Status Barrier() = 0;
  virtual void Abort(const absl::Status& reason) = 0;
  // The first error; OK if there was none so far. Thread-safe.
  virtual absl::Status Failure() const = 0;
  // Sets the limit for pending and later transfers, see CommunicatorOptions. Thread-safe.
  virtual void SetIdleTimeout(Nanos idle_timeout) = 0;

  virtual int64_t BytesSent() const = 0;
  virtual Nanos ThreadCpuTime() const = 0;  // CPU time that the communication thread has used
  // The use of the link to each peer on another host, ascending by peer, since the beginning; it is updated when a transfer of
  // the world's route ends. Empty where the library that moves the bytes does not provide it (NCCL).
  virtual std::vector<LinkUse> LinkUses() const { return {}; }
};

struct CommunicatorOptions {
  JobId job;
  Generation generation;  // peers of another job or generation are refused
  std::string secret;     // of the generation (peer_proof.h); a peer that does not know it is refused
  ParallelLayout layout;
  int32_t rank = 0;
  int listen_fd = -1;              // bound and listening; the communicator takes ownership
  std::vector<PeerAddress> peers;  // by rank, including this one
  Nanos connect_timeout{30'000'000'000};
  Nanos idle_timeout{0};  // a pending transfer that moves no byte for this long is an error; 0 = never
  // A peer's process gives a sign of life twenty times within this time, beginning at connect_timeout at the latest, whatever
  // its threads wait for. A peer that gives no sign for this long is frozen or cut off, which is an error. Time in which this
  // process itself did not run does not count as a peer's silence. 0 = no signs are sent and silence is never an error; must be
  // the same on all ranks.
  Nanos silence_limit{0};
  int64_t pacing_bytes_per_second = 0;  // SO_MAX_PACING_RATE on every connection, to imitate a slower network; 0 = off
  // Receives a line for each peer that this rank refuses while it connects, with the reason; the number of lines is bounded.
  // May be null.
  std::function<void(const std::string&)> tell;
};

// Connects to every peer that this rank communicates with. DeadlineExceeded names the peers that did not connect in time.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectTcp(const CommunicatorOptions& options);

// A listening TCP socket on `host`, with a port that the system chooses.
struct ListeningSocket {
  int fd = -1;
  int32_t port = 0;
};
absl::StatusOr<ListeningSocket> ListenTcp(const std::string& host);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_COMMUNICATOR_H_
