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
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/collectives/wire.h"

namespace lynx::worker {
namespace {

constexpr Nanos kFirstRetry{20'000'000};
constexpr Nanos kMaxRetry{400'000'000};
// The limit for the time from the connection to the proof.
constexpr Nanos kProofDeadline{5'000'000'000};
// The largest number of connections that have not proven their generation yet. If there are more, the oldest is dropped, and
// connections that have not sent a Hello are dropped first. An honest peer that was dropped tries again.
constexpr size_t kMaxArrivals = 64;
// The largest number of lines about refused connections that options_.tell receives.
constexpr int kMaxTold = 10;

enum class DialState : uint8_t { kWaiting, kConnecting, kAwaitingChallenge, kAwaitingReply, kDone };

// One connection that this rank opens to a peer.
struct Dial {
  LinkKey key;
  DialState state = DialState::kWaiting;
  LinkStream stream;
  Nanos next_attempt{0};
  Nanos retry = kFirstRetry;
  std::string hello;  // the bytes that were sent
  std::string reply;  // the bytes of the challenge or of the reply that were received so far
  std::string last_error;
};

// A connection that another process opened to this rank, and that has not yet proven to be of this generation.
struct Arrival {
  LinkStream stream;
  Nanos deadline;
  std::string hello;  // the bytes that were received so far
  Nonce nonce{};      // the nonce of the challenge with which this rank answered the complete Hello
  std::string proof;  // the bytes that were received so far

  bool challenged() const { return hello.size() == kHelloBytes; }
};

class Rendezvous {
 public:
  Rendezvous(const CommunicatorOptions& options, UniqueFd listener)
      : options_(options), listener_(std::move(listener)), deadline_(MonotonicNow() + options.connect_timeout) {
    for (const LinkKey& key : LinksOf(options.layout, options.rank, options.experts)) {
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
  // Reads until dial.reply has `wanted` bytes. Returns false if it has fewer bytes yet, or if the attempt has failed.
  bool ReadMore(Dial& dial, size_t wanted);
  void ReadChallenge(Dial& dial);
  absl::Status ReadReply(Dial& dial);
  void TryAgain(Dial& dial, const std::string& error);

  absl::Status Accept();
  // Returns true if the arrival is finished: accepted, refused or lost.
  bool Read(Arrival& arrival);
  bool AnswerHello(Arrival& arrival);
  bool AnswerProof(Arrival& arrival);
  bool TurnAway(const Arrival& arrival, const std::string& why);
  // Says why a peer of this generation must be refused; "" if it is accepted.
  std::string Refusal(const Hello& hello) const;

  std::string PeerText(int32_t peer) const {
    return absl::StrCat(RankText(options_.layout, peer), " at ", PeerAddressText(options_.peers[peer]));
  }

  const CommunicatorOptions& options_;
  UniqueFd listener_;
  const Nanos deadline_;
  std::vector<Dial> dials_;
  std::vector<Arrival> arrivals_;  // oldest first
  std::set<LinkKey> awaited_;      // links that peers have not opened yet
  std::map<LinkKey, LinkStream> established_;
  std::string last_refusal_;  // why this rank last refused a peer; the error for a passed deadline quotes it
  int told_ = 0;
};

absl::StatusOr<std::vector<Link>> Rendezvous::Run() {
  while (!Complete()) {
    if (MonotonicNow() >= deadline_) return DeadlineError();
    LYNX_RETURN_IF_ERROR(PollOnce());
  }
  std::vector<Link> links;
  for (auto& [key, stream] : established_) {
    const bool data = key.channel != Channel::kControl;
    LYNX_RETURN_IF_ERROR(ConfigureLink(stream.fd(), data ? options_.pacing_bytes_per_second : 0));
    links.push_back(Link{key, std::move(stream)});
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
    const bool open = dial.state != DialState::kWaiting && dial.state != DialState::kDone;
    const short events = dial.state == DialState::kConnecting ? POLLOUT : POLLIN;
    polled.push_back({open ? dial.stream.fd() : -1, events, 0});
  }
  for (const Arrival& arrival : arrivals_) {
    wake = std::min(wake, arrival.deadline);
    polled.push_back({arrival.stream.fd(), POLLIN, 0});
  }
  const int64_t wait_ms = std::max<int64_t>(0, (wake - now).value / 1'000'000 + 1);
  if (poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(wait_ms, 60'000))) < 0 && errno != EINTR) {
    return absl::InternalError(absl::StrCat("poll(): ", std::strerror(errno)));
  }

  for (size_t i = 0; i < dials_.size(); ++i) {
    if (polled[1 + i].revents != 0) LYNX_RETURN_IF_ERROR(Proceed(dials_[i]));
  }
  std::vector<Arrival> remaining;
  for (size_t i = 0; i < arrivals_.size(); ++i) {
    Arrival& arrival = arrivals_[i];
    const bool readable = polled[1 + dials_.size() + i].revents != 0;
    if (readable && Read(arrival)) continue;
    if (MonotonicNow() < arrival.deadline) {
      remaining.push_back(std::move(arrival));
    } else {
      TurnAway(arrival, absl::StrCat("it has not proven within ", FormatDuration(kProofDeadline), " that it is of this job"));
    }
  }
  arrivals_ = std::move(remaining);
  return polled[0].revents != 0 ? Accept() : absl::OkStatus();
}

absl::Status Rendezvous::DeadlineError() const {
  std::map<int32_t, std::string> missing;  // the key is the peer, the value is the reason
  for (const LinkKey& key : awaited_) missing[key.peer] = "did not connect";
  for (const Dial& dial : dials_) {
    if (dial.state == DialState::kDone) continue;
    missing[dial.key.peer] = dial.state == DialState::kAwaitingChallenge || dial.state == DialState::kAwaitingReply
                                 ? "is reachable but did not answer"
                                 : (dial.last_error.empty() ? "did not answer" : dial.last_error);
  }
  std::vector<std::string> parts;
  for (const auto& [peer, reason] : missing) parts.push_back(absl::StrCat(PeerText(peer), ": ", reason));
  std::string text = absl::StrCat(RankText(options_.layout, options_.rank), " of job '", options_.job.value, "' misses ",
                                  missing.size(), missing.size() == 1 ? " peer after " : " peers after ",
                                  FormatDuration(options_.connect_timeout), ": ", absl::StrJoin(parts, "; "));
  if (!last_refusal_.empty()) absl::StrAppend(&text, "; turned away meanwhile: ", last_refusal_);
  return absl::DeadlineExceededError(text);
}

absl::Status Rendezvous::Proceed(Dial& dial) {
  if (dial.state == DialState::kConnecting) {
    const int error = ConnectResult(dial.stream.fd());
    if (error != 0) {
      TryAgain(dial, std::strerror(error));
    } else {
      SendHello(dial);
    }
    return absl::OkStatus();
  }
  if (dial.state == DialState::kAwaitingReply) return ReadReply(dial);
  ReadChallenge(dial);
  return absl::OkStatus();
}

void Rendezvous::StartAttempt(Dial& dial) {
  absl::StatusOr<UniqueFd> fd = BeginConnect(options_.peers[dial.key.peer]);
  if (!fd.ok()) return TryAgain(dial, std::string(fd.status().message()));
  dial.stream = LinkStream(*std::move(fd));
  dial.state = DialState::kConnecting;
}

void Rendezvous::SendHello(Dial& dial) {
  Hello hello;
  hello.job = options_.job;
  hello.generation = options_.generation;
  hello.layout = options_.layout;
  hello.schedule_digest = DigestOfSchedule(options_.layout);
  hello.experts = options_.experts;
  hello.encrypt = options_.encrypt;
  hello.from = options_.rank;
  hello.to = dial.key.peer;
  hello.channel = dial.key.channel;
  hello.part = dial.key.part;
  hello.nonce = NewNonce();
  dial.hello = EncodeHello(hello);
  if (!dial.stream.SendShort(dial.hello)) return TryAgain(dial, "could not be sent an introduction");
  dial.reply.clear();
  dial.state = DialState::kAwaitingChallenge;
}

bool Rendezvous::ReadMore(Dial& dial, size_t wanted) {
  char buffer[kHelloReplyHeadBytes + kMaxWireTextBytes];
  while (dial.reply.size() < wanted) {
    const ssize_t got = dial.stream.Receive({buffer, std::min(wanted - dial.reply.size(), sizeof(buffer))});
    if (got > 0) {
      dial.reply.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      TryAgain(dial, got == 0           ? "closed the connection before answering"
                     : errno == EBADMSG ? "answered without the encryption that this rank asks for, or its answer was changed"
                                        : std::strerror(errno));
      return false;
    } else {
      return false;
    }
  }
  return true;
}

void Rendezvous::ReadChallenge(Dial& dial) {
  if (!ReadMore(dial, kHelloReplyHeadBytes)) return;
  if (!MayBeChallenge(dial.reply)) {
    // The answer may be a HelloReply of a peer with another version. Anybody can send such an answer, so it does not end the
    // rank.
    const std::optional<size_t> text_bytes = DecodeHelloReplyHead(std::string_view(dial.reply).substr(0, kHelloReplyHeadBytes));
    if (!text_bytes) return TryAgain(dial, "answered something that is not this protocol");
    if (!ReadMore(dial, kHelloReplyHeadBytes + *text_bytes)) return;
    return TryAgain(dial,
                    absl::StrCat("refused, without a proof: ", absl::CHexEscape(dial.reply.substr(kHelloReplyHeadBytes))));
  }
  if (!ReadMore(dial, kChallengeBytes)) return;
  const std::optional<Challenge> challenge = DecodeChallenge(dial.reply);
  if (!challenge || !SameMac(challenge->proof, ProofOf(options_.secret, ProofRole::kAccepts, dial.hello, challenge->nonce))) {
    return TryAgain(dial, "does not know the secret of this generation of the job: another process listens there");
  }
  const Mac proof = ProofOf(options_.secret, ProofRole::kConnects, dial.hello, challenge->nonce);
  if (!dial.stream.SendShort({proof.data(), proof.size()})) return TryAgain(dial, "could not be sent a proof");
  if (options_.encrypt) dial.stream.Encrypt(options_.secret, ProofRole::kConnects, dial.hello, challenge->nonce);
  dial.reply.clear();
  dial.state = DialState::kAwaitingReply;
}

absl::Status Rendezvous::ReadReply(Dial& dial) {
  // Reads exactly the bytes of the reply, because the bytes of the first operation follow it.
  if (!ReadMore(dial, kHelloReplyHeadBytes)) return absl::OkStatus();
  const std::optional<size_t> text_bytes = DecodeHelloReplyHead(std::string_view(dial.reply).substr(0, kHelloReplyHeadBytes));
  if (!text_bytes) {
    TryAgain(dial, "answered something that is not this protocol");
    return absl::OkStatus();
  }
  if (!ReadMore(dial, kHelloReplyHeadBytes + *text_bytes)) return absl::OkStatus();
  if (*text_bytes > 0) {
    return absl::FailedPreconditionError(absl::StrCat(PeerText(dial.key.peer), " refused ",
                                                      RankText(options_.layout, options_.rank), ": ",
                                                      dial.reply.substr(kHelloReplyHeadBytes)));
  }
  established_[dial.key] = std::move(dial.stream);
  dial.state = DialState::kDone;
  return absl::OkStatus();
}

void Rendezvous::TryAgain(Dial& dial, const std::string& error) {
  dial.stream.Close();
  dial.state = DialState::kWaiting;
  dial.last_error = error;
  dial.next_attempt = MonotonicNow() + dial.retry;
  dial.retry = std::min(dial.retry * 2, kMaxRetry);
}

absl::Status Rendezvous::Accept() {
  for (size_t accepted = 0; accepted < kMaxArrivals; ++accepted) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      // After these errors (no free descriptor, no memory, no listening socket) the next accept would fail at once, and trying
      // again would use the CPU without end. Any other error affects only one connection.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM || errno == EINVAL) {
        return absl::ResourceExhaustedError(absl::StrCat("accept(): ", std::strerror(errno)));
      }
      return absl::OkStatus();
    }
    if (arrivals_.size() == kMaxArrivals) {
      const auto silent = std::find_if(arrivals_.begin(), arrivals_.end(), [](const Arrival& a) { return !a.challenged(); });
      const auto dropped = silent == arrivals_.end() ? arrivals_.begin() : silent;
      TurnAway(*dropped, absl::StrCat(kMaxArrivals, " connections have proven nothing yet, and another one came"));
      arrivals_.erase(dropped);
    }
    arrivals_.push_back(Arrival{.stream = LinkStream(std::move(fd)), .deadline = MonotonicNow() + kProofDeadline});
  }
  return absl::OkStatus();
}

bool Rendezvous::TurnAway(const Arrival& arrival, const std::string& why) {
  if (++told_ > kMaxTold || options_.tell == nullptr) return true;
  options_.tell(absl::StrCat("turned away a connection from ", AddressOfPeer(arrival.stream.fd()), ": ", why,
                             told_ == kMaxTold ? "; further ones are not told of" : ""));
  return true;
}

bool Rendezvous::Read(Arrival& arrival) {
  std::string& wanted = arrival.challenged() ? arrival.proof : arrival.hello;
  const size_t whole = arrival.challenged() ? sizeof(Mac) : kHelloBytes;
  char buffer[kHelloBytes];
  const ssize_t got = arrival.stream.Receive({buffer, whole - wanted.size()});
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) return true;
  wanted.append(buffer, static_cast<size_t>(got));
  if (&wanted == &arrival.hello) return AnswerHello(arrival);
  return wanted.size() == whole && AnswerProof(arrival);
}

bool Rendezvous::AnswerHello(Arrival& arrival) {
  if (!MayBeHello(arrival.hello)) return TurnAway(arrival, "what it said is not this protocol");
  if (const std::optional<uint32_t> version = VersionOfHello(arrival.hello); version && *version != kWireVersion) {
    last_refusal_ = absl::StrCat("protocol version ", *version, " was offered, version ", kWireVersion,
                                 " is spoken here; run the same release on all nodes");
    arrival.stream.SendShort(EncodeHelloReply(last_refusal_));
    return TurnAway(arrival, last_refusal_);
  }
  if (!arrival.challenged()) return false;
  if (!DecodeHello(arrival.hello)) return TurnAway(arrival, "what it said is not this protocol");
  arrival.nonce = NewNonce();
  const Mac proof = ProofOf(options_.secret, ProofRole::kAccepts, arrival.hello, arrival.nonce);
  return !arrival.stream.SendShort(EncodeChallenge({arrival.nonce, proof}));
}

bool Rendezvous::AnswerProof(Arrival& arrival) {
  const Hello hello = *DecodeHello(arrival.hello);
  Mac proof;
  std::memcpy(proof.data(), arrival.proof.data(), proof.size());
  if (!SameMac(proof, ProofOf(options_.secret, ProofRole::kConnects, arrival.hello, arrival.nonce))) {
    return TurnAway(arrival,
                    absl::StrCat("it says that it is rank ", hello.from, ", and does not know the secret of this generation"));
  }
  // The Hello is proven now, so both ends agree on what it says. A peer that does not encrypt gets its refusal in plain text.
  if (options_.encrypt && hello.encrypt) {
    arrival.stream.Encrypt(options_.secret, ProofRole::kAccepts, arrival.hello, arrival.nonce);
  }
  const std::string refusal = Refusal(hello);
  const bool sent = arrival.stream.SendShort(EncodeHelloReply(refusal));
  if (!refusal.empty()) {
    last_refusal_ = refusal;
    return true;
  }
  if (!sent) return true;
  const LinkKey key{hello.from, hello.channel, hello.part};
  // If a peer connects again, its earlier connection was lost, so the newer one is used.
  established_[key] = std::move(arrival.stream);
  awaited_.erase(key);
  return true;
}

std::string Rendezvous::Refusal(const Hello& hello) const {
  if (hello.job != options_.job) {
    return absl::StrCat("job '", hello.job.value, "' was offered, job '", options_.job.value, "' runs here");
  }
  if (hello.generation != options_.generation) {
    return absl::StrCat("generation ", hello.generation.value, " of job '", options_.job.value, "' was offered, generation ",
                        options_.generation.value, " runs here");
  }
  ParallelLayout offered = hello.layout;
  offered.custom = options_.layout.custom;  // a custom schedule is compared by its digest below
  if (!(offered == options_.layout)) {
    return absl::StrCat("layout ", LayoutText(hello.layout), " was offered, layout ", LayoutText(options_.layout),
                        " runs here");
  }
  if (hello.schedule_digest != DigestOfSchedule(options_.layout)) {
    return "another custom schedule was offered than runs here";
  }
  if (hello.experts != options_.experts) {
    const auto model = [](bool experts) { return experts ? "a model with experts" : "a model without experts"; };
    return absl::StrCat(model(hello.experts), " was offered, ", model(options_.experts), " runs here");
  }
  if (hello.encrypt != options_.encrypt) {
    const auto kind = [](bool encrypt) { return encrypt ? "an encrypted connection" : "a connection that is not encrypted"; };
    return absl::StrCat(kind(hello.encrypt), " was offered, ranks use ", kind(options_.encrypt), " here");
  }
  const LinkKey key{hello.from, hello.channel, hello.part};
  const std::vector<LinkKey> links = LinksOf(options_.layout, options_.rank, options_.experts);
  const bool known = std::find(links.begin(), links.end(), key) != links.end();
  if (hello.to != options_.rank || hello.from <= options_.rank || !known) {
    return absl::StrCat("a ", ChannelName(hello.channel), " connection from rank ", hello.from, " to rank ", hello.to,
                        " was offered to rank ", options_.rank, ", which expects none; check the peers' addresses");
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<Link>> ConnectLinks(const CommunicatorOptions& options, UniqueFd listener) {
  const int flags = fcntl(listener.get(), F_GETFL);
  if (flags < 0 || fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen_fd ", listener.get(), " of rank ", options.rank, " is not open: ", std::strerror(errno)));
  }
  return Rendezvous(options, std::move(listener)).Run();
}

}  // namespace lynx::worker
