// Slowness: the factors by which a node's devices and links are slower than its agent measured. The server learns these factors
// from the jobs that train on the node.
#ifndef LYNX_SERVER_HEALTH_SLOWNESS_H_
#define LYNX_SERVER_HEALTH_SLOWNESS_H_

#include "planner/cost/hardware_profile.h"

namespace lynx::server {

struct Slowness {
  double compute = 1;  // factor for ops; below 1: faster than measured
  double links = 1;    // factor for links to other nodes; at least 1
  bool operator==(const Slowness&) const = default;
};

// True if a job should use this node only after other nodes that are equally close (NodeDevices::slow in placement.h).
bool IsSlow(const Slowness& slowness);
// The profile of the node with this slowness: longer times and lower rates. Pure.
HardwareProfile Slowed(HardwareProfile profile, const Slowness& slowness);

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_SLOWNESS_H_
