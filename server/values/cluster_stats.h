// ClusterStats: how many of what a controller has, for metrics, and its nodes at a glance, for a map of them. Plain data.
#ifndef LYNX_SERVER_VALUES_CLUSTER_STATS_H_
#define LYNX_SERVER_VALUES_CLUSTER_STATS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "common/ids.h"
#include "server/values/job.h"

namespace lynx {

enum class NodePresence : uint8_t { kAttached, kPartial, kAbsent, kLost };
inline constexpr int kNodePresenceCount = 4;

// A node as a map of thousands shows it.
struct NodeSummary {
  NodeId name;
  NodePresence presence = NodePresence::kAbsent;
  bool cordoned = false;
  bool warned = false;    // its agent or the server says that something is wrong with it
  int32_t devices = 0;    // offered
  int32_t used = 0;       // of them, that jobs have
  int32_t withdrawn = 0;  // that are there and not offered, for what is wrong with them
};

struct ClusterStats {
  struct Devices {
    int64_t all = 0;   // that nodes with a worker daemon offer, cordoned or not
    int64_t used = 0;  // that jobs have or are planned for
  };
  std::array<int64_t, kJobStateCount> jobs{};
  std::map<std::string, int64_t> pending;  // by kind of reason
  std::array<int64_t, kNodePresenceCount> nodes{};
  int64_t cordoned = 0;
  int64_t agents = 0, workers = 0;  // attached
  Devices cpu, cuda;
  int64_t fenced_reports = 0;  // of ranks of no live generation, since the server began
};

}  // namespace lynx

#endif  // LYNX_SERVER_VALUES_CLUSTER_STATS_H_
