// See slowness.h.
#include "server/health/slowness.h"

#include <algorithm>

namespace lynx::server {
namespace {

int64_t Divided(int64_t rate, double factor) {
  return rate == 0 ? 0 : std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rate) / factor));
}

}  // namespace

bool IsSlow(const Slowness& slowness) {
  constexpr double kSlow = 1.5;
  return slowness.compute > kSlow || slowness.links > kSlow;
}

HardwareProfile Slowed(HardwareProfile profile, const Slowness& slowness) {
  if (slowness.compute != 1) SlowCompute(profile, slowness.compute);
  profile.inter_node.bytes_per_second = Divided(profile.inter_node.bytes_per_second, slowness.links);
  return profile;
}

}  // namespace lynx::server
