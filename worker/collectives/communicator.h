// Communicator: asynchronous collectives and transfers between the ranks of one job generation. A call that starts a transfer
// returns at once, and the transfer goes on while the caller computes. Wait sleeps (it never spins) until the transfer is done.
//
// Transfers on one route (group.h) are carried out in the order in which they were started. Every member of the route must
// start the same transfers in the same order. Routes do not delay each other. The result of a reduction has the same bits on
// every member of the group, and the same bits in every run. Reductions of bfloat16 add in fp32, and each member rounds the
// sums that it passes on to the next member.
//
// A lost peer, a passed deadline or a call of Abort ends every pending and later call at once, on every surviving rank, with
// the same first error. Only one thread may start transfers and wait for them. Any thread may call Abort.
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
  // The moment when the first byte had moved in every direction that the transfer has on this rank: sending, receiving or both.
  // A received byte shows that the neighbour has begun too. In an all-to-all, it is the moment of the first pair of neighbours.
  // For transfers between devices: the moment when this rank's transfer could have begun.
  Moment started;
  Moment completed;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // data (count) = sum over the group (kTensor, kData, kWorld, kExpert, kExpertData). The caller must not touch the buffer
  // until Wait returns.
  virtual absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) = 0;
  // data (members, count): the caller fills the slot of this rank; the slots of the other members are received. The slots have
  // the order of the group.
  virtual absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) = 0;
  // data (members, count): the slot of this rank becomes the sum, over all members of the group, of their slots with this
  // rank's index. The content of the other slots is lost.
  virtual absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) = 0;
  // send (members, count), receive (members, count), in the order of the group: slot i of `send` goes to member i, and slot i
  // of `receive` comes from member i. The own slot is copied. The two buffers have elements of one type and must not overlap.
  // Only for kExpert.
  virtual absl::StatusOr<TransferTicket> StartAllToAll(const Route& route, ConstElements send, Elements receive,
                                                       int64_t count) = 0;
  // Sends to, or receives from, a neighbour stage (kNextStage, kPreviousStage). Returns InvalidArgument if no other rank has
  // such a stage.
  virtual absl::StatusOr<TransferTicket> StartSend(const Route& neighbour, ConstElements data, int64_t count) = 0;
  virtual absl::StatusOr<TransferTicket> StartRecv(const Route& neighbour, Elements data, int64_t count) = 0;
  // Call it once for each ticket. If the transfer is in device memory, it may still be running when Wait returns. Work that is
  // issued to the backend after Wait runs after the transfer.
  virtual absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) = 0;

  // Returns when every rank of the world has called Barrier.
  virtual absl::Status Barrier() = 0;
  virtual void Abort(const absl::Status& reason) = 0;
  // Returns the first error, or OK if there was no error so far. Thread-safe.
  virtual absl::Status Failure() const = 0;
  // Sets the idle timeout of pending and later transfers (see CommunicatorOptions). Thread-safe.
  virtual void SetIdleTimeout(Nanos idle_timeout) = 0;
  // Sets the progress limit of pending and later transfers (see CommunicatorOptions). It counts from now at the earliest.
  // Thread-safe.
  virtual void SetProgressLimit(Nanos) {}

  virtual int64_t BytesSent() const = 0;
  virtual Nanos ThreadCpuTime() const = 0;  // the CPU time that the communication thread has used
  // Returns how much the link to each peer on another host was used since the beginning, ascending by peer. The values are
  // updated when a transfer on the world's route ends. The result is empty if the library that moves the bytes gives no such
  // counters (NCCL).
  virtual std::vector<LinkUse> LinkUses() const { return {}; }
};

struct CommunicatorOptions {
  JobId job;
  Generation generation;  // peers of another job or generation are refused
  std::string secret;     // the connection secret of the generation (peer_proof.h); a peer that does not know it is refused
  ParallelLayout layout;
  bool experts = false;  // true if the model has experts; all ranks have the same value
  int32_t rank = 0;
  int listen_fd = -1;              // a bound, listening socket; the communicator takes ownership
  std::vector<PeerAddress> peers;  // one for each rank, including this one
  Nanos connect_timeout{30'000'000'000};
  Nanos idle_timeout{0};  // it is an error if a pending transfer moves no byte for this time; 0 = there is no limit
  // Each process sends a sign of life twenty times within this time, even while its other threads wait. The first is sent at
  // connect_timeout at the latest. If a peer gives no sign for this time, it is frozen or cut off, which is an error. Time in
  // which this process itself did not run does not count as silence of a peer. 0 = no signs are sent, and silence is never an
  // error. All ranks must have the same value.
  Nanos silence_limit{0};
  // true: everything that follows the proofs is encrypted and authenticated (frame_cipher.h). A peer with another value is
  // refused.
  bool encrypt = false;
  // It is an error if a pending transfer waits for a peer that gives signs of life, but has made no progress for this time and
  // waits for no transfer itself (worker/contract/rank_progress.h). 0 = there is no limit. Needs signs of life.
  Nanos progress_limit{0};
  int64_t pacing_bytes_per_second = 0;  // SO_MAX_PACING_RATE of every connection, to imitate a slower network; 0 = no limit
  // Receives a line for each peer that this rank refuses while it connects, with the reason. It receives at most a fixed number
  // of lines. May be null.
  std::function<void(const std::string&)> tell;
};

// Connects to every peer that this rank communicates with. Returns DeadlineExceeded, with the names of the peers that did not
// connect in time.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectTcp(const CommunicatorOptions& options);

// A listening TCP socket on `host`, with a port that the system chooses.
struct ListeningSocket {
  int fd = -1;
  int32_t port = 0;
};
absl::StatusOr<ListeningSocket> ListenTcp(const std::string& host);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_COMMUNICATOR_H_
