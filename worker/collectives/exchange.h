// Exchange: one operation in progress on one rank: a stream of bytes to send, a stream to receive, and the rule for how far
// sending must wait for receiving. It sends and receives what the non-blocking sockets allow, and sums or places what comes in.
//
// Owned by the communication thread. Borrows the operation's buffer; the caller passes the sockets and the staging memory.
#ifndef LYNX_WORKER_COLLECTIVES_EXCHANGE_H_
#define LYNX_WORKER_COLLECTIVES_EXCHANGE_H_

#include <cstdint>
#include <span>
#include <utility>

#include "common/units.h"
#include "worker/collectives/ring.h"
#include "worker/collectives/wire.h"

namespace lynx::worker {

enum class IoState : uint8_t {
  kBlocked,   // the socket accepts or gives nothing more now, or nothing may move yet
  kMoved,     // some bytes were moved; there may be more
  kLost,      // the peer closed, or the connection failed: see IoResult::error
  kMismatch,  // the peer announced another operation
};
struct IoResult {
  IoState state = IoState::kBlocked;
  int64_t bytes = 0;          // moved on the wire
  int error = 0;              // errno for kLost; 0: the peer closed the connection
  OperationHeader announced;  // for kMismatch; not valid if `garbage`
  bool garbage = false;
};

enum class Direction : uint8_t { kBoth, kSendOnly, kReceiveOnly };

class Exchange {
 public:
  // `data`: the operation's buffer; with kSendOnly it is only read.
  Exchange(const OperationHeader& header, StreamPlan plan, char* data, Direction direction);
  Exchange(const Exchange&) = delete;  // the cursors point into the plan
  Exchange& operator=(const Exchange&) = delete;

  bool done() const { return sent() && received(); }
  bool sent() const;
  bool received() const;
  bool CanSend() const;  // whether any bytes may be sent now
  // How many bytes should have come in before it is worth waking up: at least 1, and never more than are still to come. The
  // number is small while incoming bytes must be passed on, so that the ring does not stop for long; otherwise it is larger.
  int64_t Awaited() const;

  IoResult Send(int fd);
  // Sums through `staging`, which has at least 4 bytes.
  IoResult Receive(int fd, std::span<char> staging);

  // When it had begun in each of its directions; 0 before that.
  Nanos started() const { return begun_both_; }

  // Gives the plan's memory to a later plan. No other member may be called afterwards.
  StreamPlan TakePlan() { return std::move(plan_); }

 private:
  int64_t SendablePayload() const;
  IoResult ReceiveHeader(int fd);
  void PlaceReduced(std::span<char> staging, int64_t bytes);
  void NoteBegun();

  const OperationHeader header_;
  StreamPlan plan_;
  char* const data_;
  const Direction direction_;
  OperationHeaderBytes header_out_;
  OperationHeaderBytes header_in_{};
  size_t header_sent_ = 0;
  size_t header_received_ = 0;
  StreamCursor out_;
  StreamCursor in_;
  std::array<char, sizeof(float)> carry_{};  // bytes of an element that has only partly come in
  size_t carry_bytes_ = 0;
  Nanos begun_both_{0};
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_EXCHANGE_H_
