// When devices will be free: for whom waits, for whom may pass meanwhile, and who would have to make room. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_AVAILABILITY_H_
#define LYNX_SERVER_SCHEDULING_AVAILABILITY_H_

#include <functional>
#include <optional>
#include <vector>

#include "common/units.h"
#include "server/scheduling/placement.h"
#include "server/values/job.h"

namespace lynx {

// The devices that a job would have of those, or nullopt where they do not do.
using Fit = std::function<std::optional<std::vector<DeviceRef>>(const std::vector<NodeDevices>&)>;

// Devices that someone has and will give back.
struct Release {
  Nanos at;  // monotonic
  std::vector<DeviceRef> devices;
};

struct Expectation {
  Nanos at;
  std::vector<DeviceRef> devices;
};

// `free` in near order (locality_selection.h), with `devices` added to it; of nodes that had none free it is not known where
// they are.
std::vector<NodeDevices> With(std::vector<NodeDevices> free, const std::vector<DeviceRef>& devices);
std::vector<NodeDevices> Without(const std::vector<NodeDevices>& free, const std::vector<DeviceRef>& devices);
std::vector<NodeDevices> WithoutNodes(std::vector<NodeDevices> free, const std::vector<NodeId>& nodes);

// When enough is free, if nobody else takes it: at the time of one of the releases. More devices must not make a fit worse.
// nullopt: never.
std::optional<Expectation> WhenFits(const std::vector<NodeDevices>& free, std::vector<Release> releases, const Fit& fit);

// Of holders in the order in which they are asked first, the indices of those that have to give back what they have, so that it
// fits: none of them can be spared. nullopt: all together do not do.
std::optional<std::vector<size_t>> WhoMakesRoom(const std::vector<NodeDevices>& free,
                                                const std::vector<std::vector<DeviceRef>>& holders, const Fit& fit);

}  // namespace lynx

#endif  // LYNX_SERVER_SCHEDULING_AVAILABILITY_H_
