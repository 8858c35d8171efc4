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
  int64_t stream = 0;  // 0: not attached
  std::string host, boot;
};

struct LiveNode {
  NodeId name;
  Attachment agent_link, worker_link;
  AgentState agent;     // from the last report
  std::string address;  // of the worker, for the node's peers
  std::string worker_version;
  std::set<JobId> jobs;                      // jobs with ranks of a live generation on this node
  std::map<RankKey, RankObservation> ranks;  // from the last report
  std::set<JobId> copies;                    // jobs whose states the node keeps in memory; from the last report
  Slowness slowness;                         // as the jobs that train on the node show it
  bool heard = false;                        // a worker has reported since this server began
  bool lost = false;
  int32_t witness_port = 0;  // 0: its daemon cannot be asked
  bool known = false;        // the node is in the store
  bool has_lease = false;    // its daemon knows leases
  // One list of witnesses sent to this node. `told` holds the lists by report number, oldest first, without those that the node
  // has certainly replaced. `witnesses` is nullopt if an earlier server sent the list.
  struct Told {
    int64_t report = 0;
    std::optional<std::vector<NodeId>> witnesses;
  };
  std::vector<Told> told{{}};
  // Monotonic. renewed_at: last renewal of its lease. worker_gone_at: when its worker went away. absent_since: since when the
  // worker has been away while at least half of the node's witnesses were in contact.
  Nanos renewed_at, worker_gone_at, absent_since;
  Nanos seen;  // wall clock
  Nanos seen_monotonic;

  bool agent_attached() const { return agent_link.stream != 0; }
  bool worker_attached() const { return worker_link.stream != 0; }
};

NodePresence PresenceOf(const LiveNode& node);

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_LIVE_NODE_H_
