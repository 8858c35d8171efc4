// TransferBoard is what the rank's compute thread and its communication thread share. The compute thread posts operations and
// sleeps until they are complete. The communication thread takes the operations and reports when they are complete. The first
// failure is final: every later Post and Await returns it. Thread-safe.
#ifndef LYNX_WORKER_COLLECTIVES_TRANSFER_BOARD_H_
#define LYNX_WORKER_COLLECTIVES_TRANSFER_BOARD_H_

#include <atomic>
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
  const void* source = nullptr;  // kAllToAll: the buffer to send; it has the type of `data`, which is the buffer to receive
};

// Says why communication ended. `here` is for the callers on this rank, `told` is for the peers.
struct Failure {
  absl::Status here;
  absl::Status told;
};

class TransferBoard {
 public:
  TransferBoard();

  // --- The compute thread calls the following functions. Any thread may call Fail.
  // Gives the operation a new ticket and returns the ticket. After a failure, returns the failure.
  absl::StatusOr<TransferTicket> Post(Operation operation);
  // Returns a ticket that is already complete. It is for an operation in which no other rank takes part.
  absl::StatusOr<TransferTicket> PostCompleted();
  absl::StatusOr<TransferTimes> Await(TransferTicket ticket);
  // Only the first failure is kept. After a failure, Await returns as soon as the communication thread uses no buffer any more.
  void Fail(const Failure& failure);
  // Returns the failure as the callers on this rank see it; OK if there was no failure. Any thread may call it.
  absl::Status failure() const;
  void Stop();  // tells the communication thread to end
  void Wake();  // tells the communication thread to check for work

  // --- Called by the communication thread.
  int wake_fd() const { return wake_.get(); }  // readable when there are orders to take
  struct Orders {
    std::vector<Operation> operations;
    absl::Status failure_to_tell;  // the first failure, which the peers are told; OK: no failure
    bool stop = false;
  };
  bool awaited() const { return awaited_.load(std::memory_order_relaxed) > 0; }  // true while a thread is in Await
  // Replaces the content of `orders` by the new orders. Reuses the memory of `orders`.
  void Take(Orders& orders);
  void Complete(int64_t ticket, TransferTimes times);
  // Call it after a failure, when the communication thread does not use a buffer any more. It cannot be undone.
  void ReleaseBuffers();

 private:
  absl::StatusOr<TransferTicket> NewTicketLocked();

  UniqueFd wake_;  // eventfd
  std::atomic<int> awaited_{0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_ticket_ = 1;
  // A ring buffer, indexed by ticket. It grows if more tickets are open than ever before; otherwise it allocates no memory.
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
