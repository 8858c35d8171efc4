// Memory limits: if a job has run out of memory on devices of some model, the job is planned as if devices of this model had
// less memory. The limit is set below the memory that the failed plan took, by a margin that grows each time. So the next plan
// certainly takes less. Pure; thread-safe.
#ifndef LYNX_SERVER_HEALTH_MEMORY_LIMITS_H_
#define LYNX_SERVER_HEALTH_MEMORY_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "server/values/job.h"

namespace lynx::server {

// The device memory that the plan needs for each rank of this pipeline rank: states and activations, and on CPUs also the
// offloaded tensors, because a CPU's device memory is the host's memory.
Bytes TakenByPlan(const Plan& plan, int32_t pipeline_rank, DeviceKind kind);

// The margin in percent of the memory that the plan took. `times`: how often the job has run out of memory on the device model.
constexpr int32_t MemoryMarginPercent(int32_t times) { return times <= 1 ? 10 : times == 2 ? 20 : 40; }

// Records that the job has run out of memory on a device of the model, on which its plan took `taken`. Returns the new limit.
const MemoryLimit& RunOutOfMemory(std::vector<MemoryLimit>& limits, const std::string& device_model, Bytes taken);
// Used when no plan fits the limit: raises the limit halfway towards `taken`, the memory that the last plan took. The next plan
// must take clearly less than `taken`. So if the new limit would be less than kLeastMemoryCutPercent below `taken`, returns
// false and changes nothing.
bool GiveBackMemory(std::vector<MemoryLimit>& limits, const std::string& device_model, Bytes taken);
inline constexpr int32_t kLeastMemoryCutPercent = 5;
// Returns the memory limit for devices of the model; 0: there is no limit.
Bytes MemoryLimitOf(const std::vector<MemoryLimit>& limits, const std::string& device_model);

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_MEMORY_LIMITS_H_
