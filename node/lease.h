// Lease: how long the ranks of a node may continue without the server. If the server has failed, training must not stop. If the
// node is cut off while the server runs, its ranks must have stopped before their work is given to others. The node alone
// cannot distinguish these cases. So it asks its witnesses, which are a few other nodes that the server has named. Each witness
// says when the server last answered it. Times count from the last report of this node that the server has answered:
//
//   The server answers a witness, but not this node: the node is cut off, and its ranks end after `cut_off`.
//   Most witnesses reply, but the server answers none of them: the server is away, and the ranks continue.
//   Fewer witnesses reply: the node may be cut off, and its ranks end after `isolated`.
//
// After a server has begun to lead, its nodes come one after another. So a node has kNewServerGrace more to find it before it
// counts as cut off.
//
// The server relies on these times. It gives a node's work away only after the ranks must have ended. It also does so only
// while at least half of the node's witnesses are attached to the server (server/controller/state/leases.h). Then the node
// cannot find that most of its witnesses have lost the server.
//
// Pure: times are arguments, from one clock that never goes back and also runs while the machine sleeps. Not thread-safe.
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
  int64_t report = 0;  // number of the report
  Nanos server_up;     // time since the server began
  // After this time without the server, the ranks end if too few witnesses reply. 0: the ranks continue without the server, and
  // `cut_off` has no effect.
  Nanos isolated;
  Nanos cut_off;                       // after this time, the ranks end if the server answers a witness but not this node
  std::vector<std::string> witnesses;  // host:port; empty: there is no other node, so nobody could take over the work
  // The server has just begun and does not know all witnesses, so earlier witnesses remain witnesses.
  bool more_witnesses = false;
};

// The server gives no node's work away before this time and 5/3 of `cut_off` have passed since it began to lead.
inline constexpr Nanos kNewServerGrace{10'000'000'000};

// What a node reports about itself as a witness, and receives from its own witnesses. Both times are on the clock of the node
// that holds this object.
struct Witnessed {
  Nanos renewed_at;    // when the node sent the newest report that the server has answered
  Nanos server_began;  // when the server that answered has started
};

// The part of a lease that is kept when the daemon restarts.
struct LeaseTerms {
  Nanos isolated, cut_off;
  std::vector<std::string> witnesses;
  bool operator==(const LeaseTerms&) const = default;
};
// Text form: "ISOLATED_NS CUT_OFF_NS HOST:PORT ...". ParseLeaseTerms returns InvalidArgument for any other text.
std::string LeaseTermsText(const LeaseTerms& terms);
absl::StatusOr<LeaseTerms> ParseLeaseTerms(const std::string& text);

class Lease {
 public:
  static constexpr Nanos kForever{INT64_MAX};
  static constexpr Nanos kAskEvery{1'000'000'000};

  // `deadline` and `terms`: the values of an earlier daemon on this node. Until the first renewal, the ranks may continue until
  // that deadline, and the node asks the witnesses.
  explicit Lease(Nanos now, Nanos deadline = kForever, LeaseTerms terms = {});

  void Sent(int64_t report, Nanos now);
  void Renewed(const Renewal& renewal, Nanos now);

  int64_t renewed() const { return renewed_; }  // the newest report that was answered; 0: no report
  // What this node answers as a witness; nullopt: the server has never answered one of its reports.
  std::optional<Witnessed> Own() const { return own_; }
  const LeaseTerms& terms() const { return terms_; }
  bool AsksWitnesses(Nanos now) const;
  // Takes the answer of a witness; nullopt: the server has not answered the witness.
  void Answered(const std::string& witness, std::optional<Witnessed> answer, Nanos now);

  // The time when the ranks must end; kForever: they need not end. A time in the past: they must end now.
  Nanos Deadline(Nanos now);
  // Why the deadline is over, as text for the end of a sentence.
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
  std::map<std::string, Answer> answers_;       // the newest answer of each witness
  std::deque<std::pair<int64_t, Nanos>> sent_;  // reports without an answer, oldest first
  std::optional<Witnessed> own_;
  int64_t renewed_ = 0;
  Nanos deadline_;
  std::optional<Nanos> suspected_;  // since when the server has answered a witness, but not this node
  std::string reason_;
};

}  // namespace lynx

#endif  // LYNX_NODE_LEASE_H_
