// CopyLink: the connections that carry shards of in-memory checkpoints from rank to rank. They are separate from the
// connections of training. A link has the proof of identity, requests, and blocking sends and receives that another thread can
// end.
//
//   PUT   Request, the shard's bytes, its SHA-256 in hexadecimal digits      -> Reply
//   GET   Request                                                           -> Reply, then Request::bytes of the shard from
//   `offset`
//
// Before the first request, both ends prove that they know their generation's secret (worker/collectives/peer_proof.h).
#ifndef LYNX_WORKER_COPIES_COPY_LINK_H_
#define LYNX_WORKER_COPIES_COPY_LINK_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/collectives/socket.h"
#include "worker/copies/copy_store.h"

namespace lynx::worker {

// The two ends of a connection: the rank that asks and the rank that is asked.
struct CopyEnds {
  std::string secret;  // of the generation
  Generation generation;
  int32_t from = 0;
  int32_t to = 0;
};

enum class CopyRequestKind : uint8_t { kPut = 1, kGet = 2 };
struct CopyRequest {
  CopyRequestKind kind = CopyRequestKind::kPut;
  CopyKey key;
  int64_t replaced_step = -1;  // PUT: step of the same shard whose memory is reused; -1: none
  int64_t offset = 0;          // GET
  int64_t bytes = 0;
  bool operator==(const CopyRequest&) const = default;
};
inline constexpr size_t kCopyRequestBytes = 128;
inline constexpr int64_t kMaxBytesOfGet = int64_t{8} << 20;
using CopyRequestBytes = std::array<char, kCopyRequestBytes>;
CopyRequestBytes EncodeCopyRequest(const CopyRequest& request);
// nullopt: not a request, or a field is out of range.
std::optional<CopyRequest> DecodeCopyRequest(const CopyRequestBytes& bytes);

inline constexpr size_t kCopyDigestBytes = 64;

// One connection. One thread sends and receives; any thread may call End.
class CopyLink {
 public:
  explicit CopyLink(UniqueFd fd) : fd_(std::move(fd)) {}

  // Proves this rank's identity and checks that of the other end. The rank that connected calls this first. Unavailable: the
  // other end does not know the secret, or there was no answer for ten seconds. All later calls are Unavailable then, too.
  absl::Status Open(const CopyEnds& ends);
  // Checks the identity of the asking rank. The rank that accepted the connection calls this first; it does not know the asking
  // rank of `ends` before. PermissionDenied: the other end does not know the secret, is of another generation, or wants another
  // rank; the text names the rank that it claims to be. Unavailable: as for Open.
  absl::Status Admit(const CopyEnds& ends);

  // Sends, or receives, all of the bytes. Unavailable if the other side has closed the connection, or moves no byte for a
  // minute.
  absl::Status Send(std::span<const char> bytes);
  absl::Status Receive(std::span<char> out);
  absl::Status SendReply(const absl::Status& status);
  // Returns the status that the other side passed to SendReply; Unavailable if no reply comes.
  absl::Status ReceiveReply();
  // Ends the connection. A call that waits now, and every later call, returns Unavailable.
  void End();

 private:
  absl::Status AwaitReady(short events);

  UniqueFd fd_;
  Nanos deadline_{0};  // for the proofs; 0: they are done
};

// Connects within ten seconds, with the lowest network priority. `pacing`: as in CommunicatorOptions.
absl::StatusOr<UniqueFd> ConnectForCopies(const PeerAddress& address, int64_t pacing_bytes_per_second);
absl::Status ConfigureForCopies(int fd, int64_t pacing_bytes_per_second);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_LINK_H_
