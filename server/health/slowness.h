// Slowness: by what factors a node's devices and links are slower than its agent has measured them, as jobs show that train
// there.
#ifndef LYNX_SERVER_HEALTH_SLOWNESS_H_
#define LYNX_SERVER_HEALTH_SLOWNESS_H_

#include "planner/cost/hardware_profile.h"

namespace lynx {

struct Slowness {
  double compute = 1;  // below 1: faster
  double links = 1;    // of those to other nodes; >= 1
  bool operator==(const Slowness&) const = default;
};

// A profile of a node that is slower: its times take longer and its rates are lower. Pure.
HardwareProfile Slowed(HardwareProfile profile, const Slowness& slowness);

}  // namespace lynx

#endif  // LYNX_SERVER_HEALTH_SLOWNESS_H_
