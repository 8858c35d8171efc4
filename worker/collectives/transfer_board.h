// TransferBoard: what the rank's compute thread and its communication thread share. The first posts operations and
// sleeps for their completion; the second takes them and reports. The first failure is final: every later call
// returns it. Thread-safe.
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

namespace lynx {

struct Operation {
  int64_t ticket = 0;
  int32_t lane = 0;
  OperationKind kind = OperationKind::kAllReduce;
  Elements data;
  int64_t count = 0;
};

// Why communication ended, as this rank's callers see it and as the peers are told.
struct Failure {
  absl::Status here;
  absl::Status told;
};

class TransferBoard {
 public:
  TransferBoard();

  // --- the compute thread, and Fail from any thread
  // A new ticket for the operation, whose `ticket` is filled in; or the failure.
  absl::StatusOr<TransferTicket> Post(Operation operation);
  // A ticket that is complete already: nobody else takes part.
  absl::StatusOr<TransferTicket> PostCompleted();
  absl::StatusOr<TransferTimes> Await(TransferTicket ticket);
  // Only the first failure counts. Waits end as soon as the communication thread has let go of all buffers.
  void Fail(const Failure& failure);
  absl::Status failure() const;  // as this rank's callers see it; OK: none. Of any thread
  void Stop();                   // the communication thread is to end
  void Wake();                   // the communication thread is to look around

  // --- the communication thread
  int wake_fd() const { return wake_.get(); }  // readable when there is something to take
  struct Orders {
    std::vector<Operation> operations;
    absl::Status failure_to_tell;  // of the first failure; OK: none
    bool stop = false;
  };
  // In place of what `orders` holds, whose memory is used again.
  void Take(Orders& orders);
  void Complete(int64_t ticket, TransferTimes times);
  // After a failure: no buffer is touched any more. Final.
  void ReleaseBuffers();

 private:
  absl::StatusOr<TransferTicket> NewTicketLocked();

  OwnedFd wake_;  // eventfd
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_ticket_ = 1;
  // A ring by ticket; it grows where more are posted and not waited for than ever before, and else allocates nothing.
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

}  // namespace lynx

#endif  // LYNX_WORKER_COLLECTIVES_TRANSFER_BOARD_H_
