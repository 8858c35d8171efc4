// Leases: nodes that are cut off end their ranks by themselves (node/lease.h), and the server does not give their work
// away earlier. Each node gets the addresses of some others, its witnesses, which it asks when it has lost the server. A node
// ends its ranks only when most of its witnesses still have the server. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_STATE_LEASES_H_
#define LYNX_SERVER_CONTROLLER_STATE_LEASES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/live_node.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"

namespace lynx {

class Leases {
 public:
  // Keeps references to all.
  Leases(const ControllerOptions& options, PresentStep& step, NodeTable& nodes)
      : options_(options), step_(step), nodes_(nodes) {}

  // This server began at this time (monotonic).
  void Begin(Nanos now) { began_ = now; }
  // The node's worker daemon has reported: notes whether it can be a witness, and which list of witnesses it has.
  void TakeWitness(LiveNode& node, const WorkerState& state);
  // Renews the node's lease, as the answer to a report on this stream.
  void Renew(LiveNode& node, int64_t stream, const WorkerState& state);
  // To be called regularly: notes which absent nodes may still have enough witnesses.
  void WatchQuorum();
  // True if a node without a worker daemon has been away for so long, counted from `since` or later, that its ranks must have
  // ended.
  bool AwayFor(const LiveNode& node, Nanos timeout, Nanos since) const;
  void Forget(const NodeId& name);

 private:
  // After this time without a message a node ends its ranks. It comes before the node's work is given away (AwayFor), even if
  // the generation ended because peers of these ranks were lost.
  Nanos CutOffAfter() const;
  Nanos IsolatedAfter() const;
  std::vector<NodeId> WitnessesOf(const NodeId& name) const;
  static void Tell(LiveNode& node, int64_t report, std::optional<std::vector<NodeId>> witnesses);
  bool InContact(const LiveNode& node) const;
  bool HasQuorum(const std::vector<NodeId>& witnesses) const;
  bool AlmostAllAreInContact() const;

  const ControllerOptions& options_;
  PresentStep& step_;
  NodeTable& nodes_;
  // Nodes that can be witnesses, at scattered places; the witnesses of a node are those that follow it.
  std::map<uint64_t, NodeId> ring_;
  Nanos began_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_CONTROLLER_STATE_LEASES_H_
