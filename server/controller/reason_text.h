// Phrases that the controller's reasons are made of. Pure; thread-safe.
#ifndef LYNX_SERVER_CONTROLLER_REASON_TEXT_H_
#define LYNX_SERVER_CONTROLLER_REASON_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/problem/job_spec.h"
#include "server/scheduling/placement.h"
#include "server/values/job.h"

namespace lynx {

// "1 job", "3 jobs".
std::string Plural(int64_t count, const std::string& one);
// "3 devices", "1 GPU".
std::string CountText(int32_t count, DeviceKind kind);
// "n0, n3": each once, in order; of more than 16 the first 15, "and 1009 more".
std::string NodeNames(const std::vector<DeviceRef>& devices);
std::string NodeNames(const std::vector<NodeId>& nodes);
int32_t CountDevices(const std::vector<NodeDevices>& nodes);

}  // namespace lynx

#endif  // LYNX_SERVER_CONTROLLER_REASON_TEXT_H_
