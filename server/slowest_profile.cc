// See slowest_profile.h.
#include "server/slowest_profile.h"

#include <algorithm>

namespace lynx {
namespace {

const ShapeTimes* FindShape(const HardwareProfile& profile, const LayerShape& shape) {
  for (const ShapeTimes& times : profile.measured) {
    if (times.shape == shape) return &times;
  }
  return nullptr;
}

void TakeSlower(OpTimes& to, const OpTimes& from) {
  to.forward = std::max(to.forward, from.forward);
  to.backward = std::max(to.backward, from.backward);
  to.weight = std::max(to.weight, from.weight);
}

void TakeSlower(LinkCost& to, const LinkCost& from) {
  to.latency = std::max(to.latency, from.latency);
  to.bytes_per_second = std::min(to.bytes_per_second, from.bytes_per_second);
}

void TakeSlower(HardwareProfile& to, const HardwareProfile& from) {
  std::vector<ShapeTimes> shared;
  for (ShapeTimes& times : to.measured) {
    const ShapeTimes* other = FindShape(from, times.shape);
    if (other == nullptr) continue;
    for (size_t op = 0; op < times.ops.size(); ++op) TakeSlower(times.ops[op], other->ops[op]);
    times.optimizer_per_mega_parameter =
        std::max(times.optimizer_per_mega_parameter, other->optimizer_per_mega_parameter);
    shared.push_back(times);
  }
  to.measured = std::move(shared);
  if (to.device_kind != from.device_kind) to.device_kind = "mixed";
  to.flops_per_second = std::min(to.flops_per_second, from.flops_per_second);
  to.memory_bytes_per_second = std::min(to.memory_bytes_per_second, from.memory_bytes_per_second);
  to.op_overhead = std::max(to.op_overhead, from.op_overhead);
  TakeSlower(to.intra_node, from.intra_node);
  TakeSlower(to.inter_node, from.inter_node);
  to.overlap_slowdown_permille = std::max(to.overlap_slowdown_permille, from.overlap_slowdown_permille);
  to.communication_compute_permille =
      std::max(to.communication_compute_permille, from.communication_compute_permille);
}

}  // namespace

HardwareProfile SlowestProfile(const std::vector<std::shared_ptr<const HardwareProfile>>& profiles) {
  HardwareProfile slowest;
  bool any = false;
  for (const std::shared_ptr<const HardwareProfile>& profile : profiles) {
    if (profile == nullptr) continue;
    if (!any) {
      slowest = *profile;
    } else {
      TakeSlower(slowest, *profile);
    }
    any = true;
  }
  return any ? slowest : StatedCpuProfile();
}

}  // namespace lynx
