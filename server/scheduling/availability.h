// Availability: when devices will be free for a job that waits, and which jobs would have to give way. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_AVAILABILITY_H_
#define LYNX_SERVER_SCHEDULING_AVAILABILITY_H_

#include <functional>
#include <optional>
#include <vector>

#include "common/units.h"
#include "server/scheduling/placement.h"
#include "server/values/job.h"

namespace lynx::server {

// Returns the devices that a job would get if the given devices were free; nullopt: they are not enough.
using Fit = std::function<std::optional<std::vector<DeviceRef>>(const std::vector<NodeDevices>&)>;

// Devices that a job holds and will give back.
struct Release {
  Nanos at;  // monotonic time
  std::vector<DeviceRef> devices;
};

struct Expectation {
  Nanos at;
  std::vector<DeviceRef> devices;
};

// Returns what is known about a node, without free devices.
using NodeFacts = std::function<NodeDevices(const NodeId&)>;

// The free devices `free` together with `devices`, in locality order (locality_selection.h). `facts`: of nodes that have no
// free devices.
std::vector<NodeDevices> With(std::vector<NodeDevices> free, const std::vector<DeviceRef>& devices, const NodeFacts& facts);
std::vector<NodeDevices> Without(const std::vector<NodeDevices>& free, const std::vector<DeviceRef>& devices);
std::vector<NodeDevices> WithoutNodes(std::vector<NodeDevices> free, const std::vector<NodeId>& nodes);

// The time at which enough devices are free if no other job takes them: the time `at` of one of the releases. If `fit` succeeds
// with some devices, it must also succeed with more. nullopt: there are never enough devices.
std::optional<Expectation> WhenFits(const std::vector<NodeDevices>& free, std::vector<Release> releases, const NodeFacts& facts,
                                    const Fit& fit);

// Which holders must give back their devices so that `fit` succeeds. `holders`: the devices of each holder, in the order in
// which the holders are asked. Returns indices into `holders`; each of the returned holders is necessary. nullopt: even the
// devices of all holders are not enough.
std::optional<std::vector<size_t>> WhoMakesRoom(const std::vector<NodeDevices>& free,
                                                const std::vector<std::vector<DeviceRef>>& holders, const NodeFacts& facts,
                                                const Fit& fit);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_AVAILABILITY_H_
