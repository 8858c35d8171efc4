#include "worker/collectives/transfer_board.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "common/check.h"

namespace lynx {

TransferBoard::TransferBoard() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { LYNX_CHECK(wake_.open()); }

absl::StatusOr<TransferTicket> TransferBoard::NewTicketLocked() {
  if (failed_) return failure_.here;
  const int64_t id = next_ticket_++;
  outstanding_.insert(id);
  return TransferTicket{id};
}

absl::StatusOr<TransferTicket> TransferBoard::Post(Operation operation) {
  absl::StatusOr<TransferTicket> ticket;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ticket = NewTicketLocked();
    if (!ticket.ok()) return ticket;
    operation.ticket = ticket->id;
    inbox_.push_back(operation);
  }
  Wake();
  return ticket;
}

absl::StatusOr<TransferTicket> TransferBoard::PostCompleted() {
  const Nanos now = MonotonicNow();
  std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<TransferTicket> ticket = NewTicketLocked();
  if (ticket.ok()) completed_[ticket->id] = TransferTimes{now, now};
  return ticket;
}

absl::StatusOr<TransferTimes> TransferBoard::Await(TransferTicket ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  // A ticket is waited for once, and came from a start of this communicator.
  LYNX_CHECK(outstanding_.erase(ticket.id) == 1);
  changed_.wait(lock, [&] { return failed_ ? released_ : completed_.contains(ticket.id); });
  if (failed_) return failure_.here;
  const auto found = completed_.find(ticket.id);
  const TransferTimes times = found->second;
  completed_.erase(found);
  return times;
}

void TransferBoard::Fail(const Failure& failure) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failed_) return;
    failed_ = true;
    failure_ = failure;
  }
  Wake();
}

void TransferBoard::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  Wake();
}

TransferBoard::Orders TransferBoard::Take() {
  uint64_t ignored;
  // An eventfd without a pending wake-up returns EAGAIN, which is as good.
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &ignored, sizeof(ignored));
  Orders orders;
  std::lock_guard<std::mutex> lock(mutex_);
  orders.operations.swap(inbox_);
  if (failed_) orders.failure_to_tell = failure_.told;
  orders.stop = stop_;
  return orders;
}

void TransferBoard::Complete(int64_t ticket, TransferTimes times) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    completed_[ticket] = times;
  }
  changed_.notify_all();
}

void TransferBoard::ReleaseBuffers() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    released_ = true;
  }
  changed_.notify_all();
}

void TransferBoard::Wake() {
  const uint64_t one = 1;
  const ssize_t written = write(wake_.get(), &one, sizeof(one));
  LYNX_CHECK(written == sizeof(one));
}

}  // namespace lynx
