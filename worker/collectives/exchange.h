// Exchange is one operation in progress on one rank. It has a stream of bytes to send, a stream of bytes to receive, and a rule
// for how far sending must wait for receiving. It sends and receives as many bytes as the connections allow without blocking.
// It adds received bytes to the buffer, or overwrites the buffer with them.
//
// The communication thread owns an Exchange. The Exchange borrows the operation's buffers. The caller passes the connections
// and the staging memory.
#ifndef LYNX_WORKER_COLLECTIVES_EXCHANGE_H_
#define LYNX_WORKER_COLLECTIVES_EXCHANGE_H_

#include <cstdint>
#include <span>
#include <utility>

#include "common/units.h"
#include "worker/collectives/link_stream.h"
#include "worker/collectives/ring.h"
#include "worker/collectives/wire.h"

namespace lynx::worker {

enum class IoState : uint8_t {
  kBlocked,   // the socket accepts or gives no more bytes now, or the exchange may move no byte yet
  kMoved,     // some bytes were moved; there may be more
  kLost,      // the peer closed the connection, or the connection failed: see IoResult::error
  kMismatch,  // the peer announced another operation
};
struct IoResult {
  IoState state = IoState::kBlocked;
  int64_t bytes = 0;  // the number of bytes that were sent or received
  // errno for kLost; 0: the peer closed the connection; EBADMSG: see LinkStream::Receive
  int error = 0;
  OperationHeader announced;  // for kMismatch: what the peer announced; not valid if `garbage`
  bool garbage = false;
};

enum class Direction : uint8_t { kBoth, kSendOnly, kReceiveOnly };

class Exchange {
 public:
  // `data`: the operation's buffer. With kSendOnly the exchange only reads it.
  Exchange(const OperationHeader& header, StreamPlan plan, char* data, Direction direction)
      : Exchange(header, std::move(plan), data, data, direction) {}
  // `source`: the buffer with the bytes to send, which the exchange only reads. `data`: the buffer for the received bytes.
  Exchange(const OperationHeader& header, StreamPlan plan, const char* source, char* data, Direction direction);
  Exchange(const Exchange&) = delete;  // because the cursors point into the plan
  Exchange& operator=(const Exchange&) = delete;

  bool done() const { return sent() && received(); }
  bool sent() const;
  bool received() const;
  bool CanSend() const;  // true if a byte may be sent now
  // Returns how many bytes must have arrived before the thread wakes up for them. The number is at least 1, and at most the
  // number of bytes that are still to come. It is small while received bytes must be passed on, so that the ring does not stop
  // for long; otherwise it is larger.
  int64_t Awaited() const;

  IoResult Send(LinkStream& link);
  // Receives bytes. Bytes that are added to the buffer go through `staging`, which must have at least 4 bytes.
  IoResult Receive(LinkStream& link, std::span<char> staging);

  // Returns the time when the exchange had begun in all of its directions; 0 before that.
  Nanos started() const { return begun_both_; }

  // Moves the plan out, so that a later plan reuses its memory. Call no other member afterwards.
  StreamPlan TakePlan() { return std::move(plan_); }

 private:
  int64_t SendablePayload() const;
  IoResult ReceiveHeader(LinkStream& link);
  void PlaceReduced(std::span<char> staging, int64_t bytes);
  void NoteBegun();

  const OperationHeader header_;
  StreamPlan plan_;
  const char* const source_;
  char* const data_;
  const Direction direction_;
  OperationHeaderBytes header_out_;
  OperationHeaderBytes header_in_{};
  size_t header_sent_ = 0;
  size_t header_received_ = 0;
  StreamCursor out_;
  StreamCursor in_;
  std::array<char, sizeof(float)> carry_{};  // the bytes of an element that has not arrived completely
  size_t carry_bytes_ = 0;
  Nanos begun_both_{0};
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_EXCHANGE_H_
