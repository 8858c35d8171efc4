// CopyLink is a connection that carries shards of in-memory checkpoints from rank to rank. The connections of training are
// separate. On a link, both ends prove their identity, and then send requests and replies. Sends and receives block; another
// thread can end them.
//
//   PUT   Request, the shard's bytes, its SHA-256 in hexadecimal digits      -> Reply
//   GET   Request      -> Reply, then Request::bytes bytes of the shard, from byte Request::offset on
//
// Before the first request, both ends prove that they know the connection secret of their generation
// (worker/collectives/peer_proof.h). If the generation encrypts its connections, everything after the proofs is in frames.
#ifndef LYNX_WORKER_COPIES_COPY_LINK_H_
#define LYNX_WORKER_COPIES_COPY_LINK_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/collectives/link_stream.h"
#include "worker/collectives/socket.h"
#include "worker/copies/copy_store.h"

namespace lynx::worker {

// The two ends of a connection: `from` sends the requests, `to` answers them.
struct CopyEnds {
  std::string secret;  // the connection secret of the generation
  Generation generation;
  int32_t from = 0;
  int32_t to = 0;
  bool encrypt =
      false;  // true: everything that follows the proofs is encrypted (frame_cipher.h); both ends have the same value
};

enum class CopyRequestKind : uint8_t { kPut = 1, kGet = 2 };
struct CopyRequest {
  CopyRequestKind kind = CopyRequestKind::kPut;
  CopyKey key;
  int64_t replaced_step = -1;  // PUT: the step of the same shard whose file is overwritten; -1: no file is overwritten
  int64_t offset = 0;          // GET: position of the first wanted byte
  int64_t bytes = 0;
  bool operator==(const CopyRequest&) const = default;
};
inline constexpr size_t kCopyRequestBytes = 128;
inline constexpr int64_t kMaxBytesOfGet = int64_t{8} << 20;
using CopyRequestBytes = std::array<char, kCopyRequestBytes>;
CopyRequestBytes EncodeCopyRequest(const CopyRequest& request);
// Returns nullopt if the bytes are not a request, or if a field is out of range.
std::optional<CopyRequest> DecodeCopyRequest(const CopyRequestBytes& bytes);

inline constexpr size_t kCopyDigestBytes = 64;

// One connection. One thread sends and receives; any thread may call End.
class CopyLink {
 public:
  explicit CopyLink(UniqueFd fd) : stream_(std::move(fd)) {}

  // Proves this rank's identity and checks that of the other end. The rank that opened the connection calls this first. Returns
  // Unavailable if the other end does not know the secret or does not answer for ten seconds. The link must not be used after
  // an error.
  absl::Status Open(const CopyEnds& ends);
  // Checks the identity of the rank that connected. The rank that accepted the connection calls this first. It does not know
  // yet which rank has connected, so `ends.from` is not used. PermissionDenied: the other end has another protocol, does not
  // know the secret, is of another generation, wants another rank, or does not agree on encryption; the text says which.
  // Unavailable: as for Open.
  absl::Status Admit(const CopyEnds& ends);

  // Sends or receives all of the bytes. Returns Unavailable if the other side has closed the connection, or if no byte moves
  // for a minute. Receive also returns it, and forgery() says so, if bytes of an encrypted connection were changed, left out,
  // repeated or moved.
  absl::Status Send(std::span<const char> bytes);
  absl::Status Receive(std::span<char> out);
  absl::Status SendReply(const absl::Status& status);
  // Returns the status that the other side passed to SendReply, or Unavailable if no reply comes.
  absl::Status ReceiveReply();
  // Ends the connection. A call that waits at this moment, and every later call, returns Unavailable.
  void End();
  const std::string& forgery() const { return forgery_; }  // "" if nothing was forged

 private:
  absl::Status AwaitReady(short events);

  LinkStream stream_;
  std::string ends_text_;  // "from rank 1 to rank 0", with the other end first; known when the proofs are done
  std::string forgery_;
  Nanos deadline_{0};  // end of the time limit for the proofs; 0 when the proofs are done
};

// Connects within ten seconds, with the lowest network priority. `pacing_bytes_per_second`: as in CommunicatorOptions.
absl::StatusOr<UniqueFd> ConnectForCopies(const PeerAddress& address, int64_t pacing_bytes_per_second);
absl::Status ConfigureForCopies(int fd, int64_t pacing_bytes_per_second);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_LINK_H_
