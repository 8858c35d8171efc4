// Copy link: the connections over which copies go from rank to rank, beside those of training: who is spoken to, requests, and
// blocking sends and receives that another thread can end.
//
//   PUT   Request, the shard's bytes, its SHA-256 in hexadecimal digits      -> Reply
//   GET   Request                                                           -> Reply, Request::bytes of the shard from `offset` on
//
// Only who knows the token, which a generation's ranks tell one another over their own connections, is answered.
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

using CopyToken = std::array<char, 16>;
CopyToken RandomCopyToken();

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
inline constexpr int64_t kMostBytesOfGet = int64_t{8} << 20;
using CopyRequestBytes = std::array<char, kCopyRequestBytes>;
CopyRequestBytes EncodeCopyRequest(const CopyRequest& request, const CopyToken& token);
// nullopt: not a request, out of range, or with another token.
std::optional<CopyRequest> DecodeCopyRequest(const CopyRequestBytes& bytes, const CopyToken& token);

inline constexpr size_t kCopyDigestBytes = 64;

// One connection. Sends and Receives: one thread; End: any.
class CopyLink {
 public:
  explicit CopyLink(OwnedFd fd) : fd_(std::move(fd)) {}

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
};

// Connected, within ten seconds; with the least priority that the network knows. `pacing`: as CommunicatorOptions.
absl::StatusOr<OwnedFd> ConnectForCopies(const PeerAddress& address, int64_t pacing_bytes_per_second);
absl::Status ConfigureForCopies(int fd, int64_t pacing_bytes_per_second);

}  // namespace lynx

#endif  // LYNX_WORKER_COPIES_COPY_LINK_H_
