// SlowestProfile: one profile that stands for several nodes. A synchronous step is as slow as its slowest rank, so each figure
// is the worst of all nodes. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_SLOWEST_PROFILE_H_
#define LYNX_SERVER_SCHEDULING_SLOWEST_PROFILE_H_

#include <memory>
#include <vector>

#include "planner/cost/hardware_profile.h"

namespace lynx::server {

// Contains only the shapes that every profile has measured. A null profile is ignored: its node could not measure. If all
// profiles are null, the result is StatedCpuProfile.
HardwareProfile SlowestProfile(const std::vector<std::shared_ptr<const HardwareProfile>>& profiles);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_SLOWEST_PROFILE_H_
