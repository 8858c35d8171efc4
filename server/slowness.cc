// See slowness.h.
#include "server/slowness.h"

#include <algorithm>

namespace lynx {
namespace {

Nanos Times(Nanos time, double factor) {
  return std::min(kLongestTime, Nanos(static_cast<int64_t>(static_cast<double>(time.value) * factor)));
}

int64_t Divided(int64_t rate, double factor) {
  return rate == 0 ? 0 : std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rate) / factor));
}

void SlowCompute(HardwareProfile& profile, double factor) {
  for (ShapeTimes& times : profile.measured) {
    for (OpTimes& op : times.ops) op = {Times(op.forward, factor), Times(op.backward, factor), Times(op.weight, factor)};
    times.optimizer_per_mega_parameter = Times(times.optimizer_per_mega_parameter, factor);
  }
  profile.flops_per_second = Divided(profile.flops_per_second, factor);
  profile.bfloat16_flops_per_second = Divided(profile.bfloat16_flops_per_second, factor);
  profile.memory_bytes_per_second = Divided(profile.memory_bytes_per_second, factor);
  profile.op_overhead = Times(profile.op_overhead, factor);
}

}  // namespace

HardwareProfile Slowed(HardwareProfile profile, const Slowness& slowness) {
  if (slowness.compute != 1) SlowCompute(profile, slowness.compute);
  profile.inter_node.bytes_per_second = Divided(profile.inter_node.bytes_per_second, slowness.links);
  return profile;
}

}  // namespace lynx
