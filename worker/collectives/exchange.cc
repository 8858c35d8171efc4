#include "worker/collectives/exchange.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "worker/collectives/elements.h"
#include "worker/collectives/reduce.h"
#include "worker/collectives/socket.h"

namespace lynx::worker {
namespace {

// The largest number of bytes that one receive writes directly into the data of the operation. After each receive, these bytes
// can be passed on while more bytes arrive.
constexpr int64_t kReceiveBytes = 256 * 1024;
constexpr int64_t kSendBytes = 1024 * 1024;
// The number of bytes that must have arrived before the thread wakes up for them (Awaited). A wake-up costs a core as much time
// as copying some ten thousand bytes. kPassedOnBytes is for bytes that the next member of the group waits for; copying so many
// takes a few times as long as a wake-up. kAwaitedBytes is for bytes that no member waits for. No wake-up is needed for them
// while the socket's receive window has room.
constexpr int64_t kPassedOnBytes = 32 * 1024;
constexpr int64_t kAwaitedBytes = kReceiveBytes;

IoResult FromErrno() {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {IoState::kBlocked};
  return {IoState::kLost, 0, errno};
}

}  // namespace

Exchange::Exchange(const OperationHeader& header, StreamPlan plan, const char* source, char* data, Direction direction)
    : header_(header), plan_(std::move(plan)), source_(source), data_(data), direction_(direction),
      header_out_(EncodeOperationHeader(header)), out_(&plan_.outgoing), in_(&plan_.incoming) {}

bool Exchange::sent() const {
  return direction_ == Direction::kReceiveOnly || (header_sent_ == header_out_.size() && out_.finished());
}

bool Exchange::received() const {
  return direction_ == Direction::kSendOnly || (header_received_ == header_in_.size() && in_.finished());
}

int64_t Exchange::SendablePayload() const {
  if (out_.finished()) return 0;
  const int64_t allowed = plan_.free_bytes + in_.total_done() - out_.total_done();
  return std::min({out_.part_bytes_left(), allowed, kSendBytes});
}

bool Exchange::CanSend() const {
  if (direction_ == Direction::kReceiveOnly) return false;
  return header_sent_ < header_out_.size() || SendablePayload() > 0;
}

int64_t Exchange::Awaited() const {
  if (received() || header_received_ < header_in_.size()) return 1;
  const int64_t most = out_.finished() || direction_ == Direction::kReceiveOnly ? kAwaitedBytes : kPassedOnBytes;
  return std::min(most, in_.part_bytes_left() - static_cast<int64_t>(carry_bytes_));
}

void Exchange::NoteBegun() {
  if (begun_both_.value != 0) return;
  const bool out_begun = direction_ == Direction::kReceiveOnly || header_sent_ > 0;
  const bool in_begun = direction_ == Direction::kSendOnly || header_received_ > 0;
  if (out_begun && in_begun) begun_both_ = MonotonicNow();
}

IoResult Exchange::Send(LinkStream& link) {
  if (!CanSend()) return {IoState::kBlocked};
  iovec pieces[2];
  int count = 0;
  const size_t header_left = header_out_.size() - header_sent_;
  if (header_left > 0) pieces[count++] = {header_out_.data() + header_sent_, header_left};
  if (const int64_t payload = SendablePayload(); payload > 0) {
    // The cast is safe, because sending only reads these bytes.
    pieces[count++] = {const_cast<char*>(source_ + out_.offset()), static_cast<size_t>(payload)};
  }
  const ssize_t sent = link.Send({pieces, static_cast<size_t>(count)});
  if (sent < 0) return FromErrno();
  const size_t of_header = std::min(static_cast<size_t>(sent), header_left);
  header_sent_ += of_header;
  if (const int64_t payload = sent - static_cast<int64_t>(of_header); payload > 0) out_.Advance(payload);
  NoteBegun();
  return {IoState::kMoved, sent};
}

IoResult Exchange::ReceiveHeader(LinkStream& link) {
  const ssize_t got = link.Receive(std::span(header_in_).subspan(header_received_));
  if (got < 0) return FromErrno();
  if (got == 0) return {IoState::kLost};
  header_received_ += got;
  NoteBegun();
  if (header_received_ < header_in_.size()) return {IoState::kMoved, got};
  const std::optional<OperationHeader> announced = DecodeOperationHeader(header_in_);
  if (!announced) return {IoState::kMismatch, got, 0, {}, true};
  if (!(*announced == header_)) return {IoState::kMismatch, got, 0, *announced, false};
  return {IoState::kMoved, got};
}

IoResult Exchange::Receive(LinkStream& link, std::span<char> staging) {
  LYNX_CHECK(staging.size() >= sizeof(float));
  if (received()) return {IoState::kBlocked};
  if (header_received_ < header_in_.size()) return ReceiveHeader(link);

  if (!in_.part().reduce) {
    const int64_t wanted = std::min(in_.part_bytes_left(), kReceiveBytes);
    const ssize_t got = link.Receive({data_ + in_.offset(), static_cast<size_t>(wanted)});
    if (got < 0) return FromErrno();
    if (got == 0) return {IoState::kLost};
    in_.Advance(got);
    return {IoState::kMoved, got};
  }

  const int64_t carried = static_cast<int64_t>(carry_bytes_);
  const int64_t room = static_cast<int64_t>(staging.size()) - carried;
  const int64_t wanted = std::min(in_.part_bytes_left() - carried, room);
  const ssize_t got = link.Receive(staging.subspan(static_cast<size_t>(carried), static_cast<size_t>(wanted)));
  if (got < 0) return FromErrno();
  if (got == 0) return {IoState::kLost};
  std::memcpy(staging.data(), carry_.data(), carry_bytes_);
  PlaceReduced(staging, carried + got);
  return {IoState::kMoved, got};
}

void Exchange::PlaceReduced(std::span<char> staging, int64_t bytes) {
  const int64_t elements = bytes / ElementBytes(header_.type);
  const int64_t whole = elements * ElementBytes(header_.type);
  char* const target = data_ + in_.offset();
  if (header_.type == DataType::kBfloat16) {
    AddInto(reinterpret_cast<Bfloat16*>(target), reinterpret_cast<const Bfloat16*>(staging.data()), elements);
  } else {
    AddInto(reinterpret_cast<float*>(target), reinterpret_cast<const float*>(staging.data()), elements);
  }
  carry_bytes_ = bytes - whole;
  std::memcpy(carry_.data(), staging.data() + whole, carry_bytes_);
  in_.Advance(whole);
}

}  // namespace lynx::worker
