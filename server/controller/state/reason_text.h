// Phrases for the controller's reason texts. Pure; thread-safe.
#ifndef LYNX_SERVER_CONTROLLER_STATE_REASON_TEXT_H_
#define LYNX_SERVER_CONTROLLER_STATE_REASON_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/problem/job_spec.h"
#include "server/scheduling/placement.h"
#include "server/values/job.h"

namespace lynx::server {

// A count with its noun, such as "1 job", "3 jobs".
std::string Plural(int64_t count, const std::string& one);
// A number of devices as text, such as "3 devices", "1 GPU".
std::string CountText(int32_t count, DeviceKind kind);
// The names of the devices' nodes, such as "n0, n3": each node once, in order. If there are more than 16 nodes: the first 15,
// then "and 1009 more".
std::string NodeNames(const std::vector<DeviceRef>& devices);
std::string NodeNames(const std::vector<NodeId>& nodes);
int32_t CountDevices(const std::vector<NodeDevices>& nodes);

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_REASON_TEXT_H_
