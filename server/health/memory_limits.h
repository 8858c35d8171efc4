// Memory limits: what devices of a model count as having for a job that has run out of memory there. Each time they count as
// having less than what the plan took that did not fit, by a margin that grows, so that the next plan takes less for certain.
// Pure; thread-safe.
#ifndef LYNX_SERVER_HEALTH_MEMORY_LIMITS_H_
#define LYNX_SERVER_HEALTH_MEMORY_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "server/values/job.h"

namespace lynx {

// What a rank of this pipeline rank takes of its device by plan: states, activations and, where the device's memory is the
// host's, what is offloaded.
Bytes TakenByPlan(const Plan& plan, int32_t pipeline_rank, DeviceKind kind);

// In percent of what was taken, when a job has run out of memory on a model for the first, second, ... time.
constexpr int32_t MemoryMarginPercent(int32_t times) { return times <= 1 ? 10 : times == 2 ? 20 : 40; }

// Notes that the job has run out of memory on a device of the model, of which its plan took `taken`. What it is from now on.
const MemoryLimit& RunOutOfMemory(std::vector<MemoryLimit>& limits, const std::string& device_model, Bytes taken);
// No plan fits the limit: half of what was taken off `taken` last is given back. False, and nothing is changed, where that
// would leave less than kLeastMemoryCutPercent of it off: the next plan must take clearly less than the one that did not fit.
bool GiveBackMemory(std::vector<MemoryLimit>& limits, const std::string& device_model, Bytes taken);
inline constexpr int32_t kLeastMemoryCutPercent = 5;
// 0 = none.
Bytes MemoryLimitOf(const std::vector<MemoryLimit>& limits, const std::string& device_model);

}  // namespace lynx

#endif  // LYNX_SERVER_HEALTH_MEMORY_LIMITS_H_
