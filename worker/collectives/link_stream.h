// LinkStream is one connection between ranks as a stream of bytes: plain, or as encrypted frames (frame_cipher.h). Calls never
// block. Their results are those of sendmsg() and recv() on a non-blocking socket, so callers need not know whether the
// connection is encrypted.
//
// An encrypted stream gives out only bytes of frames that were authenticated. It has two buffers of kMaxFrameBytes.
//
// One thread may send or receive at a time; any thread may call fd().
#ifndef LYNX_WORKER_COLLECTIVES_LINK_STREAM_H_
#define LYNX_WORKER_COLLECTIVES_LINK_STREAM_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/fd.h"
#include "worker/collectives/peer_proof.h"

namespace lynx::worker {

class LinkStream {
 public:
  LinkStream();
  explicit LinkStream(UniqueFd fd);
  ~LinkStream();
  LinkStream(LinkStream&&) noexcept;
  LinkStream& operator=(LinkStream&&) noexcept;

  int fd() const { return fd_.get(); }
  bool encrypted() const { return frames_ != nullptr; }
  // Every byte that is sent or received after this call is in a frame. `own`: this end of the connection. `opening`, `nonce`:
  // see ProofOf; the proofs of both ends must have been checked.
  void Encrypt(const std::string& secret, ProofRole own, std::string_view opening, const Nonce& nonce);

  // Sends a part of the pieces. Returns how many of their bytes are sent, or -1 with errno. After EAGAIN, the next call must
  // have pieces that begin with the same bytes, because an encrypted stream may have sealed them already.
  ssize_t Send(std::span<const iovec> pieces);
  // Sends all of a short text at once; false: it could not. Not for streams on which Send is used.
  bool SendShort(std::string_view bytes);
  // Receives into `out`, which is not empty. Returns the number of bytes, 0 if the other end closed the connection, or -1 with
  // errno. EBADMSG: a frame was changed, left out, repeated or moved on its way. The stream must not be used after this error.
  ssize_t Receive(std::span<char> out);
  // True if the next Receive returns bytes without a look at the socket. Then poll() does not tell that there are bytes.
  bool has_unread() const;
  // Returns how many bytes the socket must have before it is worth a call of Receive, if `bytes` bytes of the stream are worth
  // it and will come. At least 1.
  int64_t AwaitedOnWire(int64_t bytes) const;
  void Close();

 private:
  struct Frames;
  ssize_t Flush();  // sends what is sealed; returns the plain bytes of the frame when all of it is sent, or -1 with errno

  UniqueFd fd_;
  std::unique_ptr<Frames> frames_;  // null: the stream is plain
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_LINK_STREAM_H_
