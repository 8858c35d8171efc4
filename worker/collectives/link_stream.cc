#include "worker/collectives/link_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "worker/collectives/frame_cipher.h"

namespace lynx::worker {

struct LinkStream::Frames {
  FrameCipher sealer, opener;
  // The frame that is being sent: bytes [out_begin, out_end) of `out` are still to send. It has out_text plain bytes.
  std::array<char, kMaxFrameBytes> out;
  size_t out_begin = 0, out_end = 0, out_text = 0;
  // The frame that is being received: in_have bytes of it are in `in`. Its size is in_size, 0 while its head is not complete.
  // When it is open, bytes [text_begin, text_end) are plain text that nobody has received yet.
  std::array<char, kMaxFrameBytes> in;
  size_t in_have = 0, in_size = 0, text_begin = 0, text_end = 0;

  // Takes the head of a frame, or the whole frame, which has arrived. Returns false if it is not authentic.
  bool Take() {
    if (in_size == 0) {
      const std::optional<size_t> text = FrameCipher::TextBytes({in.data(), kFrameHeadBytes});
      if (text) in_size = kFrameHeadBytes + *text + kFrameTagBytes;
      return text.has_value();
    }
    if (!opener.Open({in.data(), in_size})) return false;
    text_begin = kFrameHeadBytes;
    text_end = in_size - kFrameTagBytes;
    in_have = in_size = 0;
    return true;
  }
};

LinkStream::LinkStream() = default;
LinkStream::LinkStream(UniqueFd fd) : fd_(std::move(fd)) {}
LinkStream::~LinkStream() = default;
LinkStream::LinkStream(LinkStream&&) noexcept = default;
LinkStream& LinkStream::operator=(LinkStream&&) noexcept = default;

void LinkStream::Encrypt(const std::string& secret, ProofRole own, std::string_view opening, const Nonce& nonce) {
  const ProofRole other = own == ProofRole::kAccepts ? ProofRole::kConnects : ProofRole::kAccepts;
  frames_.reset(new Frames{.sealer{FrameSecretOf(secret, own, opening, nonce), FrameCipher::Use::kSeal},
                           .opener{FrameSecretOf(secret, other, opening, nonce), FrameCipher::Use::kOpen}});
}

ssize_t LinkStream::Flush() {
  Frames& frames = *frames_;
  while (frames.out_begin < frames.out_end) {
    const ssize_t sent =
        send(fd(), frames.out.data() + frames.out_begin, frames.out_end - frames.out_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return -1;
    frames.out_begin += static_cast<size_t>(sent);
  }
  frames.out_begin = frames.out_end = 0;
  return static_cast<ssize_t>(std::exchange(frames.out_text, 0));
}

ssize_t LinkStream::Send(std::span<const iovec> pieces) {
  if (!encrypted()) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());  // sendmsg() only reads them
    message.msg_iovlen = pieces.size();
    return sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (frames_->out_text == 0) {
    size_t bytes = 0;
    for (const iovec& piece : pieces) bytes += piece.iov_len;
    if (bytes == 0) return 0;
    frames_->out_text = std::min(bytes, kMaxFrameText);
    frames_->out_end = frames_->sealer.Seal(pieces, frames_->out_text, frames_->out.data());
  }
  return Flush();
}

bool LinkStream::SendShort(std::string_view bytes) {
  LYNX_CHECK(!bytes.empty() && bytes.size() <= kMaxFrameText);
  if (encrypted() && frames_->out_text > 0 && Flush() < 0) return false;  // the rest of an earlier text
  const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  return Send({&piece, 1}) == static_cast<ssize_t>(bytes.size());
}

ssize_t LinkStream::Receive(std::span<char> out) {
  if (!encrypted()) return recv(fd(), out.data(), out.size(), MSG_DONTWAIT);
  Frames& frames = *frames_;
  while (!has_unread()) {
    const size_t wanted = frames.in_size == 0 ? kFrameHeadBytes : frames.in_size;
    const ssize_t got = recv(fd(), frames.in.data() + frames.in_have, wanted - frames.in_have, MSG_DONTWAIT);
    if (got <= 0) return got;
    frames.in_have += static_cast<size_t>(got);
    if (frames.in_have == wanted && !frames.Take()) {
      errno = EBADMSG;
      return -1;
    }
  }
  const size_t taken = std::min(out.size(), frames.text_end - frames.text_begin);
  std::memcpy(out.data(), frames.in.data() + frames.text_begin, taken);
  frames.text_begin += taken;
  return static_cast<ssize_t>(taken);
}

bool LinkStream::has_unread() const { return encrypted() && frames_->text_begin < frames_->text_end; }

int64_t LinkStream::AwaitedOnWire(int64_t bytes) const {
  if (!encrypted()) return bytes;
  if (frames_->in_size != 0) return static_cast<int64_t>(frames_->in_size - frames_->in_have);
  return frames_->in_have > 0 ? static_cast<int64_t>(kFrameHeadBytes - frames_->in_have) : bytes;
}

void LinkStream::Close() {
  fd_.Reset();
  frames_.reset();
}

}  // namespace lynx::worker
