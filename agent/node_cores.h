// What a node of CPUs has of its machine's processor time: which machine its cores are of, so that several nodes on
// it are known to share them, and how much a control group lets them use, as a container's limit does. Which cores
// they may run on is of each device (common/cores.h).
#ifndef LYNX_AGENT_NODE_CORES_H_
#define LYNX_AGENT_NODE_CORES_H_

#include <cstdint>
#include <string>

namespace lynx {

// As proto/lynx/v1/cluster.proto NodeCores.
struct NodeCores {
  std::string machine;         // a digest of what Linux names its boot by; "" = not known
  std::string limit_group;     // a digest of the control group that has the limit; "" where there is none
  int64_t limit_permille = 0;  // 0 = no limit
  bool operator==(const NodeCores&) const = default;
};

// The least limit among this process's control group and those around it, as far as they are to be seen: cpu.max of
// version 2, cpu.cfs_quota_us of version 1. `proc`, `cgroups`: as Linux mounts them. What cannot be read counts as
// not limited.
NodeCores FindNodeCores(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace lynx

#endif  // LYNX_AGENT_NODE_CORES_H_
