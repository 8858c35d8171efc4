// TransferBoard: what the rank's compute thread and its communication thread share. The compute thread posts operations and
// sleeps until they complete; the communication thread takes them and reports their completion. The first failure is final:
// every later call returns it. Thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_TRANSFER_BOARD_H_
#define LYNX_WORKER_COLLECTIVES_TRANSFER_BOARD_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/socket.h"

namespace lynx::worker {

struct Operation {
  int64_t ticket = 0;
  int32_t lane = 0;
  OperationKind kind = OperationKind::kAllReduce;
  Elements data;
  int64_t count = 0;
};

// Why communication ended: as this rank's callers see it, and as the peers are told.
struct Failure {
  absl::Status here;
  absl::Status told;
};

class TransferBoard {
 public:
  TransferBoard();

  // --- Called by the compute thread; Fail by any thread.
  // Sets the operation's `ticket` to a new one and returns it; or returns the failure.
  absl::StatusOr<TransferTicket> Post(Operation operation);
  // Returns a ticket that is already complete, for an operation with no other participant.
  absl::StatusOr<TransferTicket> PostCompleted();
  absl::StatusOr<TransferTimes> Await(TransferTicket ticket);
  // Only the first failure counts. Waits return as soon as the communication thread uses no buffer any more.
  void Fail(const Failure& failure);
  absl::Status failure() const;  // as this rank's callers see it; OK: there was none. From any thread
  void Stop();                   // tells the communication thread to end
  void Wake();                   // tells the communication thread to check for work

  // --- Called by the communication thread.
  int wake_fd() const { return wake_.get(); }  // readable when there is something to take
  struct Orders {
    std::vector<Operation> operations;
    absl::Status failure_to_tell;  // what to tell the peers about the first failure; OK: there was none
    bool stop = false;
  };
  // Replaces the content of `orders`, whose memory is reused.
  void Take(Orders& orders);
  void Complete(int64_t ticket, TransferTimes times);
  // Called after a failure: from now on no buffer is used. Final.
  void ReleaseBuffers();

 private:
  absl::StatusOr<TransferTicket> NewTicketLocked();

  UniqueFd wake_;  // eventfd
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_ticket_ = 1;
  // A ring, indexed by ticket. It grows when more tickets are open than ever before; otherwise it allocates nothing.
  struct Slot {
    int64_t ticket = 0;  // 0: free
    bool completed = false;
    TransferTimes times;
  };
  Slot& SlotOf(int64_t ticket) { return slots_[static_cast<size_t>(ticket) % slots_.size()]; }
  std::vector<Slot> slots_;
  std::vector<Operation> inbox_;
  bool failed_ = false;
  Failure failure_;
  bool released_ = false;
  bool stop_ = false;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_TRANSFER_BOARD_H_
