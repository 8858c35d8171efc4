// Leases: a node that is cut off ends its ranks by itself (node/lease.h), and the server gives the node's work to others only
// after that. Each node gets the addresses of some other nodes, its witnesses. When a node has lost the server, it asks its
// witnesses. If most of them reply and none of them has contact to the server either, the node's ranks continue. Not
// thread-safe: the controller owns it.
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

namespace lynx::server {

class Leases {
 public:
  // The object keeps references to all arguments.
  Leases(const ControllerOptions& options, PresentStep& step, NodeTable& nodes)
      : options_(options), step_(step), nodes_(nodes) {}

  // Sets the time at which this server began (monotonic).
  void Begin(Nanos now) { began_ = now; }
  // Processes a report of the node's worker daemon: notes whether it can be a witness, and which list of witnesses it has.
  void TakeWitness(LiveNode& node, const WorkerState& state);
  // Renews the node's lease, as the answer to a report on this stream.
  void Renew(LiveNode& node, int64_t stream, const WorkerState& state);
  // While too few of an absent node's witnesses are in contact with the server, sets its `absent_since` to the present time.
  // Call it regularly.
  void WatchQuorum();
  // True if a node without a worker daemon has been absent for `timeout`, so that its ranks must have ended. `since`: the
  // absence counts from this time at the earliest (monotonic).
  bool AwayFor(const LiveNode& node, Nanos timeout, Nanos since) const;
  void Forget(const NodeId& name);

 private:
  // A node ends its ranks this long after the last report that the server has answered. CutOffAfter: the time if the server
  // answers a witness of the node. IsolatedAfter: the time if too few witnesses reply. The server gives the node's work to
  // others only after CutOffAfter (AwayFor), even if peers of the node's ranks were lost first.
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
  // Nodes that can be witnesses, by their place on the ring (PlaceOnRing). The witnesses of a node are the nodes that follow
  // it.
  std::map<uint64_t, NodeId> ring_;
  Nanos began_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_LEASES_H_
