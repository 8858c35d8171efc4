// SlowestProfile: one profile that stands for several nodes. A synchronous step is as slow as its slowest rank, so every
// figure is the worst of all. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_SLOWEST_PROFILE_H_
#define LYNX_SERVER_SCHEDULING_SLOWEST_PROFILE_H_

#include <memory>
#include <vector>

#include "planner/cost/hardware_profile.h"

namespace lynx {

// Measured shapes are those that every profile has. Nulls (nodes that could not measure) do not count; without any
// profile, the stated one.
HardwareProfile SlowestProfile(const std::vector<std::shared_ptr<const HardwareProfile>>& profiles);

}  // namespace lynx

#endif  // LYNX_SERVER_SCHEDULING_SLOWEST_PROFILE_H_
