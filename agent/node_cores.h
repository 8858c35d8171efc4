// A CPU node's share of its machine's processor time. It says which machine the cores belong to, so that the server knows when
// several nodes share them. It also says how much a control group, such as a container's, lets the node use. The cores on which
// ranks may run belong to each device (common/cores.h).
#ifndef LYNX_AGENT_NODE_CORES_H_
#define LYNX_AGENT_NODE_CORES_H_

#include <cstdint>
#include <string>

namespace lynx::agent {

// See NodeCores in proto/lynx/v1/cluster.proto.
struct NodeCores {
  std::string machine;         // a digest of Linux's boot id; "" = not known
  std::string limit_group;     // a digest of the control group that has the limit; "" if there is no limit
  int64_t limit_permille = 0;  // in thousandths of a core; 0 = no limit
  bool operator==(const NodeCores&) const = default;
};

// Finds the lowest limit of this process's control group and the visible groups around it: cpu.max in version 2,
// cpu.cfs_quota_us in version 1. `proc`, `cgroups`: where Linux mounts them. A limit that cannot be read counts as no
// limit.
NodeCores FindNodeCores(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace lynx::agent

#endif  // LYNX_AGENT_NODE_CORES_H_
