// Copy link: the connections over which copies go from rank to rank, beside those of training: who is spoken to, requests, and
// blocking sends and receives that another thread can end.
//
//   PUT   Request, the shard's bytes, its SHA-256 in hexadecimal digits      -> Reply
//   GET   Request                                                           -> Reply, Request::bytes of the shard from `offset`
//   on
//
// Before the first request both ends prove that they know their generation's secret (worker/collectives/peer_proof.h).
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

namespace lynx {

// Of a connection: who asks, and who has been asked.
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
  int64_t replaced_step = -1;  // PUT: of the same shard, whose memory is used again; -1: none
  int64_t offset = 0;          // GET
  int64_t bytes = 0;
  bool operator==(const CopyRequest&) const = default;
};
inline constexpr size_t kCopyRequestBytes = 128;
inline constexpr int64_t kMaxBytesOfGet = int64_t{8} << 20;
using CopyRequestBytes = std::array<char, kCopyRequestBytes>;
CopyRequestBytes EncodeCopyRequest(const CopyRequest& request);
// nullopt: not a request, or out of range.
std::optional<CopyRequest> DecodeCopyRequest(const CopyRequestBytes& bytes);

inline constexpr size_t kCopyDigestBytes = 64;

// One connection. Sends and Receives: one thread; End: any.
class CopyLink {
 public:
  explicit CopyLink(OwnedFd fd) : fd_(std::move(fd)) {}

  // First, by who has connected. Unavailable, as is all that follows: what answers does not know the secret, or nothing does
  // for ten seconds.
  absl::Status Open(const CopyEnds& ends);
  // First, by who was connected to. Of `ends` the one who asks is not known before. PermissionDenied, with who it says to be:
  // it does not know the secret, or is of another generation, or wants another rank; Unavailable: as Open.
  absl::Status Admit(const CopyEnds& ends);

  // Of all bytes. Unavailable when the other side is gone, or moves nothing for a minute.
  absl::Status Send(std::span<const char> bytes);
  absl::Status Receive(std::span<char> out);
  absl::Status SendReply(const absl::Status& status);
  // What SendReply was given; or Unavailable.
  absl::Status ReceiveReply();
  // Every call, also one that waits, is Unavailable from now on.
  void End();

 private:
  absl::Status AwaitReady(short events);

  OwnedFd fd_;
  Nanos deadline_{0};  // of the proofs; 0: they are over
};

// Connected, within ten seconds; with the least priority that the network knows. `pacing`: as CommunicatorOptions.
absl::StatusOr<OwnedFd> ConnectForCopies(const PeerAddress& address, int64_t pacing_bytes_per_second);
absl::Status ConfigureForCopies(int fd, int64_t pacing_bytes_per_second);

}  // namespace lynx

#endif  // LYNX_WORKER_COPIES_COPY_LINK_H_
