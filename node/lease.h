// Lease: how long the ranks of a node may go on without the server. A server that is away must not stop training; a node that
// is cut off from a server that is there must have stopped when its work is given to others. From the node alone the two look
// the same, so it asks witnesses, a few other nodes that the server has named, when the server last answered them:
//
//   the server answers a witness, and not this node   the ranks end, `cut_off` after the last report that it answered
//   most witnesses answer, none hears of the server   the server is away: the ranks go on
//   fewer answer                                      this node may be cut off from all: the ranks end, `isolated` after that
//   report
//
// The server counts on it: it gives a node's work away later than that, and only while at least half of that node's witnesses
// are attached to it (server/controller/controller.h), so that the node cannot find most of them without the server.
//
// Pure: times come as arguments, of one clock that never goes back and goes on while the machine sleeps. Not thread-safe.
#ifndef LYNX_NODE_LEASE_H_
#define LYNX_NODE_LEASE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

// The server's answer to a report (proto/lynx/v1/cluster.proto LeaseRenewal).
struct Renewal {
  int64_t report = 0;  // number
  Nanos server_up;     // since it began
  Nanos isolated;      // 0: the ranks never end for want of a server
  Nanos cut_off;
  std::vector<std::string> witnesses;  // host:port; none: there is no other node, and nobody to give work to
  bool more_witnesses = false;         // a server that has just begun does not know all: those of before count, too
};

// What a node says of itself as a witness, and hears from others.
struct Witnessed {
  Nanos renewed_at;    // when it sent the newest report that the server has answered, on the clock of whoever holds this
  Nanos server_began;  // that answered
};

// What outlives a daemon.
struct LeaseTerms {
  Nanos isolated, cut_off;
  std::vector<std::string> witnesses;
  bool operator==(const LeaseTerms&) const = default;
};
// "ISOLATED_NS CUT_OFF_NS HOST:PORT ..."; InvalidArgument for anything else.
std::string LeaseTermsText(const LeaseTerms& terms);
absl::StatusOr<LeaseTerms> ParseLeaseTerms(const std::string& text);

class Lease {
 public:
  static constexpr Nanos kForever{INT64_MAX};
  static constexpr Nanos kAskEvery{1'000'000'000};

  // `deadline` and `terms` as an earlier daemon left them: before the first renewal its ranks go on until then, and its
  // witnesses are asked.
  explicit Lease(Nanos now, Nanos deadline = kForever, LeaseTerms terms = {});

  void Sent(int64_t report, Nanos now);
  void Renewed(const Renewal& renewal, Nanos now);

  int64_t renewed() const { return renewed_; }  // the newest report that was answered; 0: none
  // What this node tells others; nullopt: no report of its was ever answered.
  std::optional<Witnessed> Own() const { return own_; }
  const LeaseTerms& terms() const { return terms_; }
  bool AsksWitnesses(Nanos now) const;
  // A witness has answered; nullopt: the server has not answered it.
  void Answered(const std::string& witness, std::optional<Witnessed> answer, Nanos now);

  // When the ranks are to end; kForever: not. In the past: now.
  Nanos Deadline(Nanos now);
  // Why, once that is past: a sentence's end.
  std::string Reason() const { return reason_; }

 private:
  struct Answer {
    Nanos at;
    std::optional<Witnessed> witnessed;
  };
  bool ServerAnswersOthers(Nanos now) const;
  bool ServerIsAway(Nanos now) const;

  const Nanos began_;
  LeaseTerms terms_;
  std::map<std::string, Answer> answers_;       // the newest of each
  std::deque<std::pair<int64_t, Nanos>> sent_;  // not answered, oldest first
  std::optional<Witnessed> own_;
  int64_t renewed_ = 0;
  Nanos deadline_;
  std::optional<Nanos> suspected_;  // since when a witness hears of the server and this node does not
  std::string reason_;
};

}  // namespace lynx

#endif  // LYNX_NODE_LEASE_H_
