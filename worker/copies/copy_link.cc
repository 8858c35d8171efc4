#include "worker/copies/copy_link.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/collectives/peer_proof.h"
#include "worker/contract/rank_progress.h"

namespace lynx::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is written with native integers");

constexpr uint32_t kRequestMark = 0x5143584c;  // "LXCQ"
constexpr uint32_t kReplyMark = 0x5243584c;    // "LXCR"
constexpr size_t kMaxReplyText = 1024;
constexpr size_t kMaxFileName = 64;
constexpr int kIdleMs = 60'000;
constexpr int kConnectMs = 10'000;

// Fields of a request and their sizes in bytes: mark 4, kind 4, generation 8, step 8, replaced 8, offset 8, bytes 8, zeros 16,
// file name 64 padded with zeros
constexpr size_t kFileAt = 64;

constexpr uint32_t kOpeningMark = 0x4f43584c;  // "LXCO"
constexpr uint32_t kVersion = 3;               // version 1 had a token in each request, version 2 no encryption
constexpr Nanos kProofLimit{10'000'000'000};
// Fields of an opening and their sizes in bytes: mark 4, version 4, generation 8, from 4, to 4, encrypt 4, zeros 4, nonce 32
constexpr size_t kNonceAt = 32;
using Opening = std::array<char, kNonceAt + sizeof(Nonce)>;

struct ReplyHead {
  uint32_t mark = kReplyMark;
  int32_t code = 0;
  uint32_t text_bytes = 0;
};

template <class T>
void Put(char* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}
template <class T>
T Get(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <class T>
std::span<char> BytesOf(T& value) {
  return {reinterpret_cast<char*>(&value), sizeof(value)};
}

// True if the name is a shard's name. The name is checked because it becomes a part of a path.
bool IsShardName(const std::string& name) {
  return name.starts_with("shard-") && name.ends_with(".safetensors") &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

}  // namespace

CopyRequestBytes EncodeCopyRequest(const CopyRequest& request) {
  LYNX_CHECK(request.key.file.size() < kMaxFileName);
  CopyRequestBytes bytes{};
  char* const at = bytes.data();
  Put<uint32_t>(at, kRequestMark);
  Put<uint32_t>(at + 4, static_cast<uint32_t>(request.kind));
  Put<int64_t>(at + 8, request.key.generation.value);
  Put<int64_t>(at + 16, request.key.step);
  Put<int64_t>(at + 24, request.replaced_step);
  Put<int64_t>(at + 32, request.offset);
  Put<int64_t>(at + 40, request.bytes);
  std::memcpy(at + kFileAt, request.key.file.data(), request.key.file.size());
  return bytes;
}

std::optional<CopyRequest> DecodeCopyRequest(const CopyRequestBytes& bytes) {
  const char* const at = bytes.data();
  const auto kind = Get<uint32_t>(at + 4);
  if (Get<uint32_t>(at) != kRequestMark || kind < 1 || kind > 2) return std::nullopt;
  CopyRequest request{.kind = static_cast<CopyRequestKind>(kind),
                      .key = {Generation(Get<int64_t>(at + 8)), Get<int64_t>(at + 16),
                              std::string(at + kFileAt, strnlen(at + kFileAt, kMaxFileName))},
                      .replaced_step = Get<int64_t>(at + 24),
                      .offset = Get<int64_t>(at + 32),
                      .bytes = Get<int64_t>(at + 40)};
  const bool in_range = request.key.generation.value >= 1 && request.key.step >= 0 && request.replaced_step >= -1 &&
                        request.offset >= 0 && request.bytes >= 0 && IsShardName(request.key.file) &&
                        (request.kind == CopyRequestKind::kPut || request.bytes <= kMaxBytesOfGet);
  return in_range ? std::optional(std::move(request)) : std::nullopt;
}

absl::Status CopyLink::AwaitReady(short events) {
  pollfd polled{stream_.fd(), events, 0};
  while (true) {
    const bool proving = deadline_ > Nanos(0);
    const int64_t left_ms = proving ? std::max<int64_t>(0, (deadline_ - MonotonicNow()).value / 1'000'000) : kIdleMs;
    const int ready = poll(&polled, 1, static_cast<int>(left_ms));
    if (ready > 0) return absl::OkStatus();
    if (ready == 0 && proving) return absl::UnavailableError("nothing was proven in ten seconds");
    if (ready == 0) return absl::UnavailableError("a copy did not move for a minute");
    if (errno != EINTR) return absl::UnavailableError(absl::StrCat("poll: ", std::strerror(errno)));
  }
}

absl::Status CopyLink::Open(const CopyEnds& ends) {
  deadline_ = MonotonicNow() + kProofLimit;
  Opening opening{};
  Put<uint32_t>(opening.data(), kOpeningMark);
  Put<uint32_t>(opening.data() + 4, kVersion);
  Put<int64_t>(opening.data() + 8, ends.generation.value);
  Put<int32_t>(opening.data() + 16, ends.from);
  Put<int32_t>(opening.data() + 20, ends.to);
  Put<uint32_t>(opening.data() + 24, ends.encrypt ? 1 : 0);
  FillRandom(std::span(opening).subspan<kNonceAt>());
  LYNX_RETURN_IF_ERROR(Send(opening));
  std::array<char, kChallengeBytes> answer;
  LYNX_RETURN_IF_ERROR(Receive(answer));
  const std::string_view opened(opening.data(), opening.size());
  const std::optional<Challenge> challenge = DecodeChallenge({answer.data(), answer.size()});
  if (!challenge || !SameMac(challenge->proof, ProofOf(ends.secret, ProofRole::kAccepts, opened, challenge->nonce))) {
    return absl::UnavailableError("what answers there does not know the secret of this generation of the job");
  }
  LYNX_RETURN_IF_ERROR(Send(ProofOf(ends.secret, ProofRole::kConnects, opened, challenge->nonce)));
  ends_text_ = absl::StrCat("from rank ", ends.to, " to rank ", ends.from);
  if (ends.encrypt) stream_.Encrypt(ends.secret, ProofRole::kConnects, opened, challenge->nonce);
  deadline_ = Nanos(0);
  return absl::OkStatus();
}

absl::Status CopyLink::Admit(const CopyEnds& ends) {
  deadline_ = MonotonicNow() + kProofLimit;
  Opening opening;
  LYNX_RETURN_IF_ERROR(Receive(opening));
  if (Get<uint32_t>(opening.data()) != kOpeningMark || Get<uint32_t>(opening.data() + 4) != kVersion) {
    return absl::PermissionDeniedError("what it said is not this protocol");
  }
  const std::string_view opened(opening.data(), opening.size());
  Challenge challenge{.nonce = NewNonce()};
  challenge.proof = ProofOf(ends.secret, ProofRole::kAccepts, opened, challenge.nonce);
  LYNX_RETURN_IF_ERROR(Send(EncodeChallenge(challenge)));
  Mac proof;
  LYNX_RETURN_IF_ERROR(Receive(proof));
  const auto from = Get<int32_t>(opening.data() + 16);
  if (!SameMac(proof, ProofOf(ends.secret, ProofRole::kConnects, opened, challenge.nonce))) {
    return absl::PermissionDeniedError(
        absl::StrCat("it says that it is rank ", from, ", and does not know the secret of this generation"));
  }
  if (Get<int64_t>(opening.data() + 8) != ends.generation.value || Get<int32_t>(opening.data() + 20) != ends.to) {
    return absl::PermissionDeniedError(absl::StrCat("rank ", from, " wants rank ", Get<int32_t>(opening.data() + 20),
                                                    " of generation ", Get<int64_t>(opening.data() + 8), ", and this is rank ",
                                                    ends.to, " of ", ends.generation.value));
  }
  if (Get<uint32_t>(opening.data() + 24) != (ends.encrypt ? 1 : 0)) {
    return absl::PermissionDeniedError(absl::StrCat("rank ", from, ends.encrypt ? " does not encrypt" : " encrypts",
                                                    " its connection, and rank ", ends.to,
                                                    ends.encrypt ? " does" : " does not"));
  }
  ends_text_ = absl::StrCat("from rank ", from, " to rank ", ends.to);
  if (ends.encrypt) stream_.Encrypt(ends.secret, ProofRole::kAccepts, opened, challenge.nonce);
  deadline_ = Nanos(0);
  return absl::OkStatus();
}

absl::Status CopyLink::Send(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};  // sending only reads these bytes
    const ssize_t sent = stream_.Send({&piece, 1});
    if (sent >= 0) {
      if (deadline_ == Nanos(0)) OwnProgress().Made();  // a stranger makes no progress
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      LYNX_RETURN_IF_ERROR(AwaitReady(POLLOUT));
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("a copy's connection is lost: ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::Status CopyLink::Receive(std::span<char> out) {
  while (!out.empty()) {
    const ssize_t got = stream_.Receive(out);
    if (got > 0) {
      if (deadline_ == Nanos(0)) OwnProgress().Made();  // a stranger makes no progress
      out = out.subspan(static_cast<size_t>(got));
    } else if (got < 0 && errno == EBADMSG) {
      forgery_ = absl::StrCat("bytes of a copy ", ends_text_,
                              " were changed, left out, repeated or moved on their way: a frame of their encrypted connection "
                              "is not authentic");
      return absl::UnavailableError(forgery_);
    } else if (got == 0) {
      return absl::UnavailableError("a copy's connection was closed by its peer");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      LYNX_RETURN_IF_ERROR(AwaitReady(POLLIN));
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("a copy's connection is lost: ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::Status CopyLink::SendReply(const absl::Status& status) {
  const std::string text(status.message().substr(0, kMaxReplyText));
  ReplyHead head{.code = status.raw_code(), .text_bytes = static_cast<uint32_t>(text.size())};
  LYNX_RETURN_IF_ERROR(Send(BytesOf(head)));
  return Send(text);
}

absl::Status CopyLink::ReceiveReply() {
  ReplyHead head;
  LYNX_RETURN_IF_ERROR(Receive(BytesOf(head)));
  if (head.mark != kReplyMark || head.text_bytes > kMaxReplyText || head.code < 0 || head.code > 16) {
    return absl::UnavailableError("what answers a request for a copy is not this protocol");
  }
  std::string text(head.text_bytes, '\0');
  LYNX_RETURN_IF_ERROR(Receive(text));
  return absl::Status(static_cast<absl::StatusCode>(head.code), text);
}

void CopyLink::End() { shutdown(stream_.fd(), SHUT_RDWR); }

absl::Status ConfigureForCopies(int fd, int64_t pacing_bytes_per_second) {
  LYNX_RETURN_IF_ERROR(ConfigureLink(fd, pacing_bytes_per_second));
  // Asks for the lowest priority, so that networks with traffic classes let training's transfers go first. The network may
  // ignore this.
  const int background = IPTOS_CLASS_CS1, least = 0;
  setsockopt(fd, IPPROTO_IP, IP_TOS, &background, sizeof(background));
  setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &least, sizeof(least));
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ConnectForCopies(const PeerAddress& address, int64_t pacing_bytes_per_second) {
  LYNX_ASSIGN_OR_RETURN(UniqueFd fd, BeginConnect(address));
  pollfd polled{fd.get(), POLLOUT, 0};
  int ready = 0;
  do ready = poll(&polled, 1, kConnectMs);
  while (ready < 0 && errno == EINTR);
  const int error = ready > 0 ? ConnectResult(fd.get()) : ETIMEDOUT;
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to ", PeerAddressText(address), " for copies: ", std::strerror(error)));
  }
  LYNX_RETURN_IF_ERROR(ConfigureForCopies(fd.get(), pacing_bytes_per_second));
  return fd;
}

}  // namespace lynx::worker
