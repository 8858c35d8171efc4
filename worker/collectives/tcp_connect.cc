#include "worker/collectives/tcp_connect.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/collectives/wire.h"

namespace lynx {
namespace {

constexpr Nanos kFirstRetry{20'000'000};
constexpr Nanos kLongestRetry{400'000'000};
constexpr Nanos kHelloDeadline{5'000'000'000};
// Connections that have not introduced themselves yet. Beyond that the oldest is dropped; an honest peer tries again.
constexpr size_t kMaxArrivals = 64;

enum class DialState : uint8_t { kWaiting, kConnecting, kAwaitingReply, kDone };

// One connection that this rank opens.
struct Dial {
  LinkKey key;
  DialState state = DialState::kWaiting;
  OwnedFd fd;
  Nanos next_attempt{0};
  Nanos retry = kFirstRetry;
  std::string reply;  // received so far
  std::string last_error;
};

// One connection that somebody opened and that has not introduced itself yet.
struct Arrival {
  OwnedFd fd;
  Nanos deadline;
  std::string hello;  // received so far
};

class Rendezvous {
 public:
  Rendezvous(const CommunicatorOptions& options, OwnedFd listener)
      : options_(options), listener_(std::move(listener)), deadline_(MonotonicNow() + options.connect_timeout) {
    for (const LinkKey& key : LinksOf(options.layout, options.rank)) {
      if (key.peer < options.rank) {
        dials_.push_back(Dial{key});
      } else {
        awaited_.insert(key);
      }
    }
  }

  absl::StatusOr<std::vector<Link>> Run();

 private:
  bool Complete() const {
    return awaited_.empty() &&
           std::all_of(dials_.begin(), dials_.end(), [](const Dial& d) { return d.state == DialState::kDone; });
  }
  absl::Status PollOnce();
  absl::Status DeadlineError() const;

  absl::Status Proceed(Dial& dial);
  void StartAttempt(Dial& dial);
  void SendHello(Dial& dial);
  absl::Status ReadReply(Dial& dial);
  void TryAgain(Dial& dial, const std::string& error);

  absl::Status Accept();
  // True when the arrival is dealt with: accepted, refused or lost.
  bool ReadHello(Arrival& arrival);
  // "" to accept.
  std::string Refusal(const Hello& hello) const;

  std::string PeerText(int32_t peer) const {
    return absl::StrCat(RankText(options_.layout, peer), " at ", PeerAddressText(options_.peers[peer]));
  }

  const CommunicatorOptions& options_;
  OwnedFd listener_;
  const Nanos deadline_;
  std::vector<Dial> dials_;
  std::vector<Arrival> arrivals_;  // oldest first
  std::set<LinkKey> awaited_;      // links that peers have not opened yet
  std::map<LinkKey, OwnedFd> established_;
  std::string last_refusal_;  // of a peer by this rank, for the deadline's message
};

absl::StatusOr<std::vector<Link>> Rendezvous::Run() {
  while (!Complete()) {
    if (MonotonicNow() >= deadline_) return DeadlineError();
    LYNX_RETURN_IF_ERROR(PollOnce());
  }
  std::vector<Link> links;
  for (auto& [key, fd] : established_) {
    const bool data = key.channel != Channel::kControl;
    LYNX_RETURN_IF_ERROR(ConfigureLink(fd.get(), data ? options_.pacing_bytes_per_second : 0));
    links.push_back(Link{key, std::move(fd)});
  }
  return links;
}

absl::Status Rendezvous::PollOnce() {
  const Nanos now = MonotonicNow();
  Nanos wake = deadline_;
  std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
  for (Dial& dial : dials_) {
    if (dial.state == DialState::kWaiting && dial.next_attempt <= now) StartAttempt(dial);
    if (dial.state == DialState::kWaiting) wake = std::min(wake, dial.next_attempt);
    const bool open = dial.state == DialState::kConnecting || dial.state == DialState::kAwaitingReply;
    const short events = dial.state == DialState::kConnecting ? POLLOUT : POLLIN;
    polled.push_back({open ? dial.fd.get() : -1, events, 0});
  }
  for (const Arrival& arrival : arrivals_) {
    wake = std::min(wake, arrival.deadline);
    polled.push_back({arrival.fd.get(), POLLIN, 0});
  }
  const int64_t wait_ms = std::max<int64_t>(0, (wake - now).value / 1'000'000 + 1);
  if (poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(wait_ms, 60'000))) < 0 &&
      errno != EINTR) {
    return absl::InternalError(absl::StrCat("poll(): ", std::strerror(errno)));
  }

  for (size_t i = 0; i < dials_.size(); ++i) {
    if (polled[1 + i].revents != 0) LYNX_RETURN_IF_ERROR(Proceed(dials_[i]));
  }
  std::vector<Arrival> remaining;
  for (size_t i = 0; i < arrivals_.size(); ++i) {
    Arrival& arrival = arrivals_[i];
    const bool readable = polled[1 + dials_.size() + i].revents != 0;
    if (readable && ReadHello(arrival)) continue;
    if (MonotonicNow() < arrival.deadline) remaining.push_back(std::move(arrival));
  }
  arrivals_ = std::move(remaining);
  return polled[0].revents != 0 ? Accept() : absl::OkStatus();
}

absl::Status Rendezvous::DeadlineError() const {
  std::map<int32_t, std::string> missing;  // by peer; the reason
  for (const LinkKey& key : awaited_) missing[key.peer] = "did not connect";
  for (const Dial& dial : dials_) {
    if (dial.state == DialState::kDone) continue;
    missing[dial.key.peer] = dial.state == DialState::kAwaitingReply
                                 ? "is reachable but did not answer"
                                 : (dial.last_error.empty() ? "did not answer" : dial.last_error);
  }
  std::vector<std::string> parts;
  for (const auto& [peer, reason] : missing) parts.push_back(absl::StrCat(PeerText(peer), ": ", reason));
  std::string text = absl::StrCat(RankText(options_.layout, options_.rank), " of job '", options_.job.value,
                                  "' misses ", missing.size(), missing.size() == 1 ? " peer after " : " peers after ",
                                  FormatDuration(options_.connect_timeout), ": ", absl::StrJoin(parts, "; "));
  if (!last_refusal_.empty()) absl::StrAppend(&text, "; turned away meanwhile: ", last_refusal_);
  return absl::DeadlineExceededError(text);
}

absl::Status Rendezvous::Proceed(Dial& dial) {
  if (dial.state == DialState::kConnecting) {
    const int error = ConnectResult(dial.fd.get());
    if (error != 0) {
      TryAgain(dial, std::strerror(error));
    } else {
      SendHello(dial);
    }
    return absl::OkStatus();
  }
  return ReadReply(dial);
}

void Rendezvous::StartAttempt(Dial& dial) {
  absl::StatusOr<OwnedFd> fd = BeginConnect(options_.peers[dial.key.peer]);
  if (!fd.ok()) return TryAgain(dial, std::string(fd.status().message()));
  dial.fd = *std::move(fd);
  dial.state = DialState::kConnecting;
}

void Rendezvous::SendHello(Dial& dial) {
  Hello hello;
  hello.job = options_.job;
  hello.generation = options_.generation;
  hello.layout = options_.layout;
  hello.schedule_digest = DigestOfSchedule(options_.layout);
  hello.from = options_.rank;
  hello.to = dial.key.peer;
  hello.channel = dial.key.channel;
  hello.part = dial.key.part;
  const std::string bytes = EncodeHello(hello);
  // The send buffer of a fresh connection always has room for these few bytes.
  const ssize_t sent = send(dial.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(bytes.size())) {
    return TryAgain(dial, sent < 0 ? std::strerror(errno) : "could not send the introduction");
  }
  dial.reply.clear();
  dial.state = DialState::kAwaitingReply;
}

absl::Status Rendezvous::ReadReply(Dial& dial) {
  // Not a byte beyond the reply may be read here: what follows it is the first operation.
  size_t wanted = kHelloReplyHeadBytes;
  if (dial.reply.size() >= kHelloReplyHeadBytes) {
    wanted += *DecodeHelloReplyHead(std::string_view(dial.reply).substr(0, kHelloReplyHeadBytes));
  }
  char buffer[kHelloReplyHeadBytes + kMaxWireTextBytes];
  const ssize_t got = recv(dial.fd.get(), buffer, wanted - dial.reply.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
  if (got <= 0) {
    TryAgain(dial, got == 0 ? "closed the connection before answering" : std::strerror(errno));
    return absl::OkStatus();
  }
  dial.reply.append(buffer, got);
  if (dial.reply.size() < kHelloReplyHeadBytes) return absl::OkStatus();
  const std::optional<size_t> text_bytes =
      DecodeHelloReplyHead(std::string_view(dial.reply).substr(0, kHelloReplyHeadBytes));
  if (!text_bytes) {
    TryAgain(dial, "answered something that is not this protocol");
    return absl::OkStatus();
  }
  if (dial.reply.size() < kHelloReplyHeadBytes + *text_bytes) return absl::OkStatus();
  if (*text_bytes > 0) {
    return absl::FailedPreconditionError(absl::StrCat(PeerText(dial.key.peer), " refused ",
                                                      RankText(options_.layout, options_.rank), ": ",
                                                      dial.reply.substr(kHelloReplyHeadBytes)));
  }
  established_[dial.key] = std::move(dial.fd);
  dial.state = DialState::kDone;
  return absl::OkStatus();
}

void Rendezvous::TryAgain(Dial& dial, const std::string& error) {
  dial.fd.Close();
  dial.state = DialState::kWaiting;
  dial.last_error = error;
  dial.next_attempt = MonotonicNow() + dial.retry;
  dial.retry = std::min(dial.retry * 2, kLongestRetry);
}

absl::Status Rendezvous::Accept() {
  while (true) {
    OwnedFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.open()) {
      // Trying again without a free descriptor would spin; any other error is that of one caller only.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM || errno == EINVAL) {
        return absl::ResourceExhaustedError(absl::StrCat("accept(): ", std::strerror(errno)));
      }
      return absl::OkStatus();
    }
    if (arrivals_.size() == kMaxArrivals) arrivals_.erase(arrivals_.begin());
    arrivals_.push_back(Arrival{std::move(fd), MonotonicNow() + kHelloDeadline, ""});
  }
}

bool Rendezvous::ReadHello(Arrival& arrival) {
  char buffer[kHelloBytes];
  const ssize_t got = recv(arrival.fd.get(), buffer, kHelloBytes - arrival.hello.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) return true;
  arrival.hello.append(buffer, got);
  if (!MayBeHello(arrival.hello)) return true;
  if (arrival.hello.size() < kHelloBytes) return false;
  const std::optional<Hello> hello = DecodeHello(arrival.hello);
  if (!hello) return true;
  const std::string refusal = Refusal(*hello);
  const std::string reply = EncodeHelloReply(refusal);
  const ssize_t sent = send(arrival.fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
  if (!refusal.empty()) {
    last_refusal_ = refusal;
    return true;
  }
  if (sent != static_cast<ssize_t>(reply.size())) return true;
  const LinkKey key{hello->from, hello->channel, hello->part};
  // A peer that comes again has lost its earlier attempt: the newer one counts.
  established_[key] = std::move(arrival.fd);
  awaited_.erase(key);
  return true;
}

std::string Rendezvous::Refusal(const Hello& hello) const {
  if (hello.version != kWireVersion) {
    return absl::StrCat("protocol version ", hello.version, " was offered, version ", kWireVersion,
                        " is spoken here; run the same release on all nodes");
  }
  if (hello.job != options_.job) {
    return absl::StrCat("job '", hello.job.value, "' was offered, job '", options_.job.value, "' runs here");
  }
  if (hello.generation != options_.generation) {
    return absl::StrCat("generation ", hello.generation.value, " of job '", options_.job.value,
                        "' was offered, generation ", options_.generation.value, " runs here");
  }
  ParallelLayout offered = hello.layout;
  offered.custom = options_.layout.custom;  // compared by its digest
  if (!(offered == options_.layout)) {
    return absl::StrCat("layout ", LayoutText(hello.layout), " was offered, layout ", LayoutText(options_.layout),
                        " runs here");
  }
  if (hello.schedule_digest != DigestOfSchedule(options_.layout)) {
    return "another custom schedule was offered than runs here";
  }
  const LinkKey key{hello.from, hello.channel, hello.part};
  const std::vector<LinkKey> links = LinksOf(options_.layout, options_.rank);
  const bool known = std::find(links.begin(), links.end(), key) != links.end();
  if (hello.to != options_.rank || hello.from <= options_.rank || !known) {
    return absl::StrCat("a ", ChannelName(hello.channel), " connection from rank ", hello.from, " to rank ", hello.to,
                        " was offered to rank ", options_.rank, ", which expects none; check the peers' addresses");
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<Link>> ConnectLinks(const CommunicatorOptions& options, OwnedFd listener) {
  const int flags = fcntl(listener.get(), F_GETFL);
  if (flags < 0 || fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("listen_fd ", listener.get(), " of rank ", options.rank,
                                                   " is not open: ", std::strerror(errno)));
  }
  return Rendezvous(options, std::move(listener)).Run();
}

}  // namespace lynx
