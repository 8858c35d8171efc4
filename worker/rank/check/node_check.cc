#include "worker/rank/check/node_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status.h"
#include "worker/collectives/socket.h"
#include "worker/rank/check/check_device.h"
#include "worker/rank/check/check_pairs.h"
#include "worker/rank/peers/agreement.h"
#include "worker/rank/peers/idle_limit.h"
#include "worker/rank/peers/with_cause.h"

namespace lynx::worker {
namespace {

constexpr int64_t kWords = kCheckedLinkBytes.value / static_cast<int64_t>(sizeof(float));
// First each pair makes two exchanges. Pairs that seem slow then make up to kMoreExchanges more.
constexpr int kMoreExchanges = 5;
// If even the fastest exchange of a pair took longer than this, the pair makes no further exchange.
constexpr Nanos kLongExchange{1'000'000'000};

uint32_t WordOf(int32_t rank, int64_t index) {
  return (static_cast<uint32_t>(rank) + 1) * 2'246'822'519u + static_cast<uint32_t>(index) * 2'654'435'761u;
}

// What the rank at one end of a link has found. The rank sends it to the other ranks in this form.
struct Finding {
  int32_t peer = 0;
  int32_t wrong = 0;  // number of wrong words
  int64_t best_nanos = 0;
};

std::string PeerText(const RankConfig& config, int32_t peer) {
  return absl::StrCat("rank ", peer, " at ", config.peers[static_cast<size_t>(peer)].host);
}

std::string RateText(Nanos time) {
  return absl::StrCat(FormatBytes(Bytes(static_cast<int64_t>(static_cast<double>(kCheckedLinkBytes.value) * 1e9 /
                                                             static_cast<double>(std::max<int64_t>(1, time.value))))),
                      "/s");
}

// Checks the links of one rank.
class LinkCheck {
 public:
  LinkCheck(const RankConfig& config, const NodeCheckOptions& options, const std::vector<CheckedPair>& pairs,
            Communicator& between_hosts)
      : config_(config), options_(options), pairs_(pairs), between_hosts_(between_hosts),
        words_(static_cast<size_t>(2 * kWords)) {}

  // Collective. Opens a socket for each of its pairs in which this rank is the lower one, and tells the other ranks the ports.
  absl::Status Listen();
  // Makes one exchange for each of the given pairs. This rank must be in all of them. All ranks must use the same order of
  // pairs, so that they do not wait for each other in a circle.
  absl::Status Exchange(const std::vector<size_t>& pairs);
  // Collective. Returns the times of all pairs. Also records the wrong words that other ranks have found.
  absl::StatusOr<std::vector<PairTime>> Gather();
  // True if a rank received a wrong word from the other rank of the pair. Call it after Gather.
  bool wrong(size_t pair) const { return wrong_[pair]; }
  // A sentence about the first wrong word that this rank received; empty if there was none.
  const std::string& words_text(size_t pair) const { return own_.at(pair).text; }
  bool is_own(size_t pair) const { return pairs_[pair].low == config_.rank || pairs_[pair].high == config_.rank; }
  int32_t PeerOf(size_t pair) const { return pairs_[pair].low == config_.rank ? pairs_[pair].high : pairs_[pair].low; }

 private:
  // The state of a pair that this rank is in.
  struct Own {
    std::unique_ptr<Communicator> communicator;
    UniqueFd listener;  // the socket of the lower rank, until the higher rank has connected
    Finding finding;
    std::string text;
  };

  absl::Status Connect(size_t pair, Own& own);
  absl::StatusOr<Nanos> ExchangeOnce(size_t pair, Own& own);
  void Compare(int32_t peer, const float* words, Own& own) const;
  // Returns the error of this rank that follows from an error on a pair's connections.
  absl::Status Explained(const absl::Status& status, size_t pair) const;

  const RankConfig& config_;
  const NodeCheckOptions& options_;
  const std::vector<CheckedPair>& pairs_;
  Communicator& between_hosts_;
  std::vector<float> words_;  // (2, kWords)
  std::map<size_t, Own> own_;
  std::map<std::pair<int32_t, int32_t>, int32_t> ports_;  // the port of each pair's lower rank
  std::vector<bool> wrong_;
};

absl::Status LinkCheck::Listen() {
  std::vector<int32_t> listening;  // alternates: higher rank, port, higher rank, port ...
  for (size_t i = 0; i < pairs_.size(); ++i) {
    if (!is_own(i)) continue;
    Own& own = own_[i];
    own.finding.peer = PeerOf(i);
    if (pairs_[i].low != config_.rank) continue;
    LYNX_ASSIGN_OR_RETURN(const ListeningSocket socket, ListenTcp(config_.peers[static_cast<size_t>(config_.rank)].host));
    own.listener = UniqueFd(socket.fd);
    listening.insert(listening.end(), {pairs_[i].high, socket.port});
  }
  const RankGroup group{config_.rank, config_.context.layout.ranks(), between_hosts_};
  const std::string text(reinterpret_cast<const char*>(listening.data()), listening.size() * sizeof(int32_t));
  LYNX_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherTexts(text, group));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::vector<int32_t> of_rank(all[rank].size() / sizeof(int32_t));
    std::memcpy(of_rank.data(), all[rank].data(), of_rank.size() * sizeof(int32_t));
    for (size_t i = 0; i + 1 < of_rank.size(); i += 2) ports_[{static_cast<int32_t>(rank), of_rank[i]}] = of_rank[i + 1];
  }
  return absl::OkStatus();
}

absl::Status LinkCheck::Connect(size_t pair, Own& own) {
  const auto port = ports_.find({pairs_[pair].low, pairs_[pair].high});
  LYNX_CHECK(port != ports_.end());
  CommunicatorOptions options;
  options.job = config_.job;
  options.generation = config_.generation;
  options.secret = config_.connection_secret;
  options.layout = {.tp = 2, .pp = 1, .dp = 1};
  options.rank = pairs_[pair].low == config_.rank ? 0 : 1;
  options.peers = {{config_.peers[static_cast<size_t>(pairs_[pair].low)].host, port->second},
                   config_.peers[static_cast<size_t>(pairs_[pair].high)]};
  options.connect_timeout = options.idle_timeout = options_.patience * (pairs_[pair].round + 1);
  options.encrypt = config_.encryption != RankEncryption::kOff;
  options.pacing_bytes_per_second = config_.pacing_bytes_per_second;
  if (options.rank == 1) {  // the higher rank needs a listening socket too, although no rank connects to it
    LYNX_ASSIGN_OR_RETURN(const ListeningSocket unused, ListenTcp(options.peers[1].host));
    own.listener = UniqueFd(unused.fd);
  }
  options.listen_fd = own.listener.Release();
  LYNX_ASSIGN_OR_RETURN(own.communicator, options_.connect(options));
  return absl::OkStatus();
}

void LinkCheck::Compare(int32_t peer, const float* words, Own& own) const {
  for (int64_t i = 0; i < kWords; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, words + i, sizeof(word));
    if (word == WordOf(peer, i)) continue;
    if (own.finding.wrong++ > 0) continue;
    own.text = absl::StrCat("what ", PeerText(config_, peer), " sends arrives wrong: word ", i, " of ", kWords, " is 0x",
                            absl::Hex(word, absl::kZeroPad8), ", not 0x", absl::Hex(WordOf(peer, i), absl::kZeroPad8));
  }
}

absl::StatusOr<Nanos> LinkCheck::ExchangeOnce(size_t pair, Own& own) {
  const int index = pairs_[pair].low == config_.rank ? 0 : 1;
  float* const mine = words_.data() + index * kWords;
  float* const theirs = words_.data() + (1 - index) * kWords;
  for (int64_t i = 0; i < kWords; ++i) {
    const uint32_t word = WordOf(config_.rank, i);
    std::memcpy(mine + i, &word, sizeof(word));
  }
  std::memset(theirs, 0, static_cast<size_t>(kCheckedLinkBytes.value));
  // The measurement starts when both ranks are ready. Otherwise, if this rank came late, the other rank's bytes would already
  // be in its buffer, and the time would say nothing about the link.
  std::array<float, 2> ready_words{};
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ready, own.communicator->StartAllGather(Group::kTensor, ready_words.data(), 1));
  LYNX_RETURN_IF_ERROR(own.communicator->Wait(ready).status());
  const RealClock clock;
  const Nanos begin = clock.Monotonic();
  LYNX_ASSIGN_OR_RETURN(const TransferTicket ticket, own.communicator->StartAllGather(Group::kTensor, words_.data(), kWords));
  LYNX_ASSIGN_OR_RETURN(const TransferTimes times, own.communicator->Wait(ticket));
  Compare(own.finding.peer, theirs, own);
  return times.completed.time - begin;
}

absl::Status LinkCheck::Explained(const absl::Status& status, size_t pair) const {
  // If a peer has ended, or has given up because of another rank, it has told all ranks the reason. Then its silence on this
  // link means nothing, and the reason is returned instead.
  LYNX_RETURN_IF_ERROR(between_hosts_.Failure());
  if (!absl::IsDeadlineExceeded(status))
    return Annotate(status, absl::StrCat("node check, with ", PeerText(config_, PeerOf(pair))));
  return LinkFailure(
      absl::StrCat("node check: ", PeerText(config_, PeerOf(pair)), " does not answer: ", std::string(status.message())),
      {PeerOf(pair)});
}

absl::Status LinkCheck::Exchange(const std::vector<size_t>& pairs) {
  for (const size_t pair : pairs) {
    LYNX_RETURN_IF_ERROR(between_hosts_.Failure());
    Own& own = own_.at(pair);
    if (own.communicator == nullptr) {
      if (const absl::Status status = Connect(pair, own); !status.ok()) return Explained(status, pair);
    }
    const absl::StatusOr<Nanos> time = ExchangeOnce(pair, own);
    if (!time.ok()) return Explained(time.status(), pair);
    int64_t& best = own.finding.best_nanos;
    if (best == 0 || time->value < best) best = std::max<int64_t>(1, time->value);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PairTime>> LinkCheck::Gather() {
  std::vector<Finding> findings;
  for (const auto& [pair, own] : own_) findings.push_back(own.finding);
  const RankGroup group{config_.rank, config_.context.layout.ranks(), between_hosts_};
  LYNX_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      GatherTexts({reinterpret_cast<const char*>(findings.data()), findings.size() * sizeof(Finding)}, group));
  std::map<std::pair<int32_t, int32_t>, size_t> index;
  for (size_t i = 0; i < pairs_.size(); ++i) index[{pairs_[i].low, pairs_[i].high}] = i;
  std::vector<PairTime> times(pairs_.size());
  wrong_.assign(pairs_.size(), false);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::vector<Finding> of_rank(all[rank].size() / sizeof(Finding));
    std::memcpy(of_rank.data(), all[rank].data(), of_rank.size() * sizeof(Finding));
    for (const Finding& finding : of_rank) {
      const auto [low, high] = std::minmax({static_cast<int32_t>(rank), finding.peer});
      const auto pair = index.find({low, high});
      LYNX_CHECK(pair != index.end());
      // The two ends report different times. The longer one is used, because the end that reports it receives its bytes slowly.
      times[pair->second].best = std::max(times[pair->second].best, Nanos(finding.best_nanos));
      wrong_[pair->second] = wrong_[pair->second] || finding.wrong > 0;
    }
  }
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const bool within =
        config_.peers[static_cast<size_t>(pairs_[i].low)].host == config_.peers[static_cast<size_t>(pairs_[i].high)].host;
    times[i].kind = within ? 0 : 1;
  }
  return times;
}

absl::Status Failed(int32_t failed, const std::string& what) {
  return absl::UnavailableError(absl::StrCat("rank ", failed, " has failed its ", what));
}

// Waits for all ranks, so that no rank ends before all of them know the reason. Ignores errors of the wait.
absl::Status AfterAll(absl::Status status, Communicator& between_hosts) {
  (void)between_hosts.Barrier();
  return status;
}

absl::Status CheckDevices(const RankConfig& config, Backend& backend, Communicator& between_hosts) {
  const DeviceCheck check = DeviceCheckOf(backend, config.context.model.dtype);
  const absl::Status own = Annotate(CheckDevice(check, backend), "node check");
  const bool failed = absl::IsDataLoss(own) || absl::IsAborted(own);
  if (!own.ok() && !failed) return WithCauseOfCode(own);
  const RankGroup group{config.rank, config.context.layout.ranks(), between_hosts};
  LYNX_ASSIGN_OR_RETURN(const std::vector<absl::Status> all, GatherStatuses(own, group));
  if (failed) return AfterAll(WithCause(own, FaultCause::kCheck), between_hosts);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].ok()) return AfterAll(Failed(static_cast<int32_t>(rank), std::string(all[rank].message())), between_hosts);
  }
  return absl::OkStatus();
}

// Returns the error for this rank's own bad links. If only links of other ranks are bad, returns the error for the first of
// them.
absl::Status Verdict(const RankConfig& config, const std::vector<CheckedPair>& pairs, const std::vector<PairTime>& times,
                     const LinkCheck& links) {
  std::vector<bool> slow(pairs.size());
  for (const size_t pair : SlowPairs(times)) slow[pair] = true;
  std::vector<std::string> texts;
  std::vector<int32_t> peers;
  std::optional<size_t> elsewhere;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!slow[i] && !links.wrong(i)) continue;
    const bool reports = links.is_own(i) && (slow[i] || !links.words_text(i).empty());
    if (!reports) {
      if (!elsewhere.has_value()) elsewhere = i;
      continue;
    }
    const int32_t peer = links.PeerOf(i);
    peers.push_back(peer);
    texts.push_back(!links.words_text(i).empty()
                        ? links.words_text(i)
                        : absl::StrCat("the link to ", PeerText(config, peer), " moves ", RateText(times[i].best),
                                       ", where others like it move ", RateText(MedianOfOthers(times, i))));
  }
  if (!texts.empty()) return LinkFailure(absl::StrCat("node check: ", absl::StrJoin(texts, "; ")), peers);
  if (!elsewhere.has_value()) return absl::OkStatus();
  return Failed(pairs[*elsewhere].low, absl::StrCat("node check: the link to rank ", pairs[*elsewhere].high, " is bad"));
}

absl::Status CheckLinks(const RankConfig& config, const NodeCheckOptions& options, const std::vector<CheckedPair>& pairs,
                        Communicator& between_hosts, NodeCheckReport& report) {
  LinkCheck links(config, options, pairs, between_hosts);
  LYNX_RETURN_IF_ERROR(links.Listen());
  std::vector<size_t> all(pairs.size());
  std::iota(all.begin(), all.end(), size_t{0});
  std::vector<size_t> next = all;
  std::vector<PairTime> times;
  // Every rank knows all times, so all ranks continue with the same pairs.
  for (int exchange = 0; !next.empty() && exchange <= 1 + kMoreExchanges; ++exchange) {
    std::erase_if(next, [&](size_t pair) { return !links.is_own(pair); });
    LYNX_RETURN_IF_ERROR(links.Exchange(next));
    LYNX_ASSIGN_OR_RETURN(times, links.Gather());
    next = exchange == 0 ? all : SlowPairs(times);
    std::erase_if(next, [&](size_t pair) { return times[pair].best > kLongExchange; });
  }
  LYNX_RETURN_IF_ERROR(AfterAll(Verdict(config, pairs, times, links), between_hosts));
  Nanos slowest;
  for (const PairTime& pair : times) slowest = std::max(slowest, pair.best);
  report.links = static_cast<int32_t>(pairs.size());
  if (slowest > Nanos(0)) {
    report.slowest_bytes_per_second =
        static_cast<int64_t>(static_cast<double>(kCheckedLinkBytes.value) * 1e9 / static_cast<double>(slowest.value));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NodeCheckReport> CheckNodes(const RankConfig& config, const NodeCheckOptions& options, Backend& backend,
                                           Communicator& between_hosts) {
  const RealClock clock;
  const Nanos begin = clock.Monotonic();
  const std::vector<CheckedPair> pairs = PairsOf(config.context.layout, config.context.model.moe.any());
  const int32_t rounds = pairs.empty() ? 0 : pairs.back().round + 1;
  // The limit is the sum of the limits of all rounds, and twice the patience more, because in each round a peer may wait for a
  // silent rank.
  between_hosts.SetIdleTimeout(options.patience * (rounds * (rounds + 1) / 2 + 2));
  NodeCheckReport report{.devices = config.context.layout.ranks()};
  LYNX_RETURN_IF_ERROR(CheckDevices(config, backend, between_hosts));
  if (!pairs.empty()) LYNX_RETURN_IF_ERROR(CheckLinks(config, options, pairs, between_hosts, report));
  between_hosts.SetIdleTimeout(kIdleLimit);
  report.duration = clock.Monotonic() - begin;
  return report;
}

}  // namespace lynx::worker
