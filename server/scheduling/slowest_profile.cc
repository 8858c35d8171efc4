// See slowest_profile.h.
#include "server/scheduling/slowest_profile.h"

#include <utility>

#include "planner/cost/cluster_topology.h"

namespace lynx::server {
HardwareProfile SlowestProfile(const std::vector<std::shared_ptr<const HardwareProfile>>& profiles) {
  HardwareProfile slowest;
  bool any = false;
  for (const std::shared_ptr<const HardwareProfile>& profile : profiles) {
    if (profile == nullptr) continue;
    slowest = any ? SlowerProfile(std::move(slowest), *profile) : *profile;
    any = true;
  }
  return any ? slowest : StatedCpuProfile();
}

}  // namespace lynx::server
