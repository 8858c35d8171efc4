#include "server/health/memory_limits.h"

#include <algorithm>

namespace lynx::server {

Bytes TakenByPlan(const Plan& plan, int32_t pipeline_rank, DeviceKind kind) {
  const StagePlan& stage = plan.stages[static_cast<size_t>(pipeline_rank)];
  return stage.states.total() + stage.arena + (kind == DeviceKind::kCuda ? Bytes(0) : stage.host);
}

const MemoryLimit& RunOutOfMemory(std::vector<MemoryLimit>& limits, const std::string& device_model, Bytes taken) {
  auto limit =
      std::find_if(limits.begin(), limits.end(), [&](const MemoryLimit& one) { return one.device_model == device_model; });
  if (limit == limits.end()) limit = limits.insert(limits.end(), {.device_model = device_model});
  ++limit->times;
  const Bytes less(taken.value / 100 * (100 - MemoryMarginPercent(limit->times)));
  limit->limit = limit->times == 1 ? less : std::min(limit->limit, less);
  return *limit;
}

bool GiveBackMemory(std::vector<MemoryLimit>& limits, const std::string& device_model, Bytes taken) {
  const auto limit =
      std::find_if(limits.begin(), limits.end(), [&](const MemoryLimit& one) { return one.device_model == device_model; });
  if (limit == limits.end()) return false;
  const Bytes off = (taken - limit->limit) / 2;
  if (off.value < taken.value / 100 * kLeastMemoryCutPercent) return false;
  limit->limit = taken - off;
  return true;
}

Bytes MemoryLimitOf(const std::vector<MemoryLimit>& limits, const std::string& device_model) {
  const auto limit =
      std::find_if(limits.begin(), limits.end(), [&](const MemoryLimit& one) { return one.device_model == device_model; });
  return limit == limits.end() ? Bytes(0) : limit->limit;
}

}  // namespace lynx::server
