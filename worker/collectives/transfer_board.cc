#include "worker/collectives/transfer_board.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "common/check.h"
#include "worker/contract/rank_progress.h"

namespace lynx::worker {

namespace {

constexpr size_t kFirstSlots = 256;

}  // namespace

TransferBoard::TransferBoard() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), slots_(kFirstSlots) {
  LYNX_CHECK(wake_.valid());
  inbox_.reserve(kFirstSlots);
}

absl::StatusOr<TransferTicket> TransferBoard::NewTicketLocked() {
  if (failed_) return failure_.here;
  const int64_t id = next_ticket_++;
  while (SlotOf(id).ticket != 0) {
    std::vector<Slot> fewer(slots_.size() * 2);
    fewer.swap(slots_);
    for (const Slot& slot : fewer) {
      if (slot.ticket != 0) SlotOf(slot.ticket) = slot;
    }
  }
  SlotOf(id) = {.ticket = id};
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
  if (ticket.ok()) SlotOf(ticket->id) = {ticket->id, true, {now, now}};
  return ticket;
}

absl::StatusOr<TransferTimes> TransferBoard::Await(TransferTicket ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  // The ticket must come from Post or PostCompleted of this board, and each ticket may be waited for only once.
  LYNX_CHECK(ticket.id > 0 && SlotOf(ticket.id).ticket == ticket.id);
  awaited_.fetch_add(1, std::memory_order_relaxed);
  changed_.wait(lock, [&] { return failed_ ? released_ : SlotOf(ticket.id).completed; });
  awaited_.fetch_sub(1, std::memory_order_relaxed);
  OwnProgress().Made();
  const Slot slot = std::exchange(SlotOf(ticket.id), {});
  if (failed_) return failure_.here;
  return slot.times;
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

absl::Status TransferBoard::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failed_ ? failure_.here : absl::OkStatus();
}

void TransferBoard::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  Wake();
}

void TransferBoard::Take(Orders& orders) {
  uint64_t ignored;
  // If no wake-up is pending, read fails with EAGAIN, which is not an error here.
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &ignored, sizeof(ignored));
  orders.operations.clear();
  orders.operations.reserve(kFirstSlots);  // swap below makes this vector the new inbox
  std::lock_guard<std::mutex> lock(mutex_);
  orders.operations.swap(inbox_);
  orders.failure_to_tell = failed_ ? failure_.told : absl::OkStatus();
  orders.stop = stop_;
}

void TransferBoard::Complete(int64_t ticket, TransferTimes times) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Slot& slot = SlotOf(ticket);
    slot.completed = true;
    slot.times = times;
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

}  // namespace lynx::worker
