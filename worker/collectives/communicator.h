// Communicator: asynchronous collectives and transfers between the ranks of one job generation. A start returns at
// once; the transfer goes on while the caller computes; a wait sleeps (never spins) until it is done.
//
// Starts on one route (group.h) are carried out in the order in which they were issued, and every member must issue
// the same starts in the same order. Routes do not hold each other up. Reductions are bit-identical on every member
// of the group, and the same from run to run. Those of bfloat16 add in fp32, and round what one member passes on to
// the next.
//
// A lost peer, a deadline or Abort ends every pending and later call on every surviving rank with the same first
// error, at once. Starts and waits: one thread. Abort: any thread.
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

namespace lynx {

struct TransferTicket {
  int64_t id = 0;
};

struct TransferTimes {
  // First byte both sent and received, so the neighbours are known to have begun; between devices, when this rank's could
  // have begun.
  Moment started;
  Moment completed;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // data (count) = sum over the group (kTensor, kData, kWorld). The buffer must stay untouched until the wait.
  virtual absl::StatusOr<TransferTicket> StartAllReduce(const Route& route, Elements data, int64_t count) = 0;
  // data (members, count): this rank's slot is filled; the others' slots are received. Slots in the order of the
  // group.
  virtual absl::StatusOr<TransferTicket> StartAllGather(const Route& route, Elements data, int64_t count) = 0;
  // data (members, count): this rank's slot = sum over the group of the slots in that place; the other slots are used
  // up.
  virtual absl::StatusOr<TransferTicket> StartReduceScatter(const Route& route, Elements data, int64_t count) = 0;
  // To or from the neighbour stage (kNextStage, kPreviousStage). InvalidArgument where there is none on another rank.
  virtual absl::StatusOr<TransferTicket> StartSend(const Route& neighbour, ConstElements data, int64_t count) = 0;
  virtual absl::StatusOr<TransferTicket> StartRecv(const Route& neighbour, Elements data, int64_t count) = 0;
  // Once per ticket. A transfer of a device's memory may still go on when this returns: what is called on the backend from
  // then on comes after it.
  virtual absl::StatusOr<TransferTimes> Wait(TransferTicket ticket) = 0;

  // Every rank of the world has reached this point.
  virtual absl::Status Barrier() = 0;
  virtual void Abort(const absl::Status& reason) = 0;
  // The first error; OK: there was none yet. Thread-safe.
  virtual absl::Status Failure() const = 0;
  // For pending transfers and later ones, from now on: see CommunicatorOptions. Thread-safe.
  virtual void SetIdleTimeout(Nanos idle_timeout) = 0;

  virtual int64_t BytesSent() const = 0;
  virtual Nanos ThreadCpuTime() const = 0;  // spent by the communication thread
  // To each peer on another host, ascending, since the beginning; as it was when the last transfer of the world's route ended.
  // Empty where what moves the bytes does not say (NCCL).
  virtual std::vector<LinkUse> LinkUses() const { return {}; }
};

struct CommunicatorOptions {
  JobId job;
  Generation generation;  // peers of another job or generation are refused
  std::string secret;     // of the generation (peer_proof.h): who does not know it is refused
  ParallelLayout layout;
  int32_t rank = 0;
  int listen_fd = -1;              // bound and listening; taken over
  std::vector<PeerAddress> peers;  // by rank, including this one
  Nanos connect_timeout{30'000'000'000};
  Nanos idle_timeout{0};  // a pending transfer without a byte of progress for so long is an error; 0 = never
  // A peer's process gives a sign of life twenty times in so long, from connect_timeout on at the latest, whatever its
  // threads wait for: one that gives none for so long is frozen or cut off, and that is an error. Where this process
  // itself did not run meanwhile, that is no peer's silence. 0 = no signs, and never; the same on all ranks.
  Nanos silence_limit{0};
  int64_t pacing_bytes_per_second = 0;  // SO_MAX_PACING_RATE on every connection, to stand for a slower network; 0 = off
  // Is told whom this rank turns away while it connects, and why: a line each, of a bounded number. May be null.
  std::function<void(const std::string&)> tell;
};

// Connects to every peer this rank talks to. DeadlineExceeded names the peers that did not come.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectTcp(const CommunicatorOptions& options);

// A listening TCP socket on `host` with a port of the system's choice.
struct ListeningSocket {
  int fd = -1;
  int32_t port = 0;
};
absl::StatusOr<ListeningSocket> ListenTcp(const std::string& host);

}  // namespace lynx

#endif  // LYNX_WORKER_COLLECTIVES_COMMUNICATOR_H_
