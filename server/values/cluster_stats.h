// ClusterStats: counts of jobs, nodes and devices, for metrics. NodeSummary: a short view of one node, for a map of all nodes.
// Plain data.
#ifndef LYNX_SERVER_VALUES_CLUSTER_STATS_H_
#define LYNX_SERVER_VALUES_CLUSTER_STATS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "common/ids.h"
#include "server/values/job.h"

namespace lynx::server {

enum class NodePresence : uint8_t { kAttached, kPartial, kAbsent, kLost };
inline constexpr int kNodePresenceCount = 4;

// One node as the map shows it. The map may have thousands of nodes.
struct NodeSummary {
  NodeId name;
  NodePresence presence = NodePresence::kAbsent;
  bool cordoned = false;
  bool warned = false;    // the agent or the server reports a problem with the node
  int32_t devices = 0;    // devices that the node offers
  int32_t used = 0;       // offered devices that jobs hold
  int32_t withdrawn = 0;  // devices that exist but are not offered because of a problem
};

struct ClusterStats {
  struct Devices {
    int64_t all = 0;   // devices that nodes with a worker daemon offer, cordoned or not
    int64_t used = 0;  // devices that jobs hold or for which jobs are planned
  };
  std::array<int64_t, kJobStateCount> jobs{};
  std::map<std::string, int64_t> pending;  // for each kind of reason, the number of jobs with it
  std::array<int64_t, kNodePresenceCount> nodes{};
  int64_t cordoned = 0;
  int64_t agents = 0, workers = 0;  // numbers of attached daemons
  Devices cpu, cuda;
  int64_t fenced_reports = 0;  // reports from ranks of generations that are over, since the server began
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_CLUSTER_STATS_H_
