// LiveNode: what the controller knows of a node. Plain data.
#ifndef LYNX_SERVER_CONTROLLER_STATE_LIVE_NODE_H_
#define LYNX_SERVER_CONTROLLER_STATE_LIVE_NODE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "server/health/slowness.h"
#include "server/values/cluster_stats.h"
#include "server/values/node_state.h"

namespace lynx::server {

// The stream of an agent or of a worker daemon.
struct Attachment {
  int64_t stream = 0;      // number of the stream; 0: none is attached
  std::string host, boot;  // address of the node, and identity of the daemon process
};

struct LiveNode {
  NodeId name;
  Attachment agent_link, worker_link;
  AgentState agent;     // from the agent's last report
  std::string address;  // address of the worker daemon, for other nodes
  std::string worker_version;
  std::set<JobId> jobs;                      // jobs with ranks of a live generation on this node
  std::map<RankKey, RankObservation> ranks;  // from the worker daemon's last report
  std::set<JobId> copies;                    // jobs whose states the node keeps in memory; from the last report
  Slowness slowness;                         // how much slower the node is than its agent measured, as observed in jobs
  bool heard = false;                        // a worker has reported since this server began
  bool lost = false;
  int32_t witness_port = 0;  // 0: the node's daemon cannot be a witness
  bool known = false;        // the node is in the store
  bool has_lease = false;    // the node's daemon knows leases
  bool encrypts = false;     // the node's ranks can encrypt their connections
  // One list of witnesses that was sent to this node, and the number of the report that the list answered (INT64_MAX: the
  // daemon has restarted since). `told` holds the lists from oldest to newest, without those that the node has certainly
  // replaced. `witnesses` is nullopt if the list is unknown: an earlier server sent it, or the node also keeps witnesses that
  // an earlier server named.
  struct Told {
    int64_t report = 0;
    std::optional<std::vector<NodeId>> witnesses;
  };
  std::vector<Told> told{{}};
  // Monotonic times. renewed_at: last renewal of the node's lease. worker_gone_at: when the node's worker daemon went away.
  // absent_since: the last time at which too few of the node's witnesses were in contact with the server while the daemon was
  // away; the absence counts from then.
  Nanos renewed_at, worker_gone_at, absent_since;
  Nanos seen;  // wall clock time of the last report; seen_monotonic is the same on the monotonic clock
  Nanos seen_monotonic;

  bool agent_attached() const { return agent_link.stream != 0; }
  bool worker_attached() const { return worker_link.stream != 0; }
};

NodePresence PresenceOf(const LiveNode& node);

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_LIVE_NODE_H_
