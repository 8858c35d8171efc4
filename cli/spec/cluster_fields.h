// The tables of a cluster file's fields. Immutable; thread-safe.
#ifndef LYNX_CLI_SPEC_CLUSTER_FIELDS_H_
#define LYNX_CLI_SPEC_CLUSTER_FIELDS_H_

#include <string>
#include <vector>

#include "cli/spec/yaml_record.h"
#include "planner/cost/cluster_topology.h"

namespace lynx::cli {

// A kind of device and its own properties. The links in `profile` come from the node group.
struct DeviceEntry {
  std::string name;
  Bytes memory, reserved_memory;
  HardwareProfile profile;
};

// A link. The latency and the bandwidth, in bytes per second, are those of its data sheet; the share is the part of the
// bandwidth that a ring collective reaches.
struct LinkEntry {
  int32_t devices = 0;  // for inner links: the number of devices that the link joins
  Nanos latency;
  int64_t bandwidth = 0;
  int32_t share_permille = 1000;
  LinkCost cost() const;
};

struct GroupEntry {
  NodeGroup group;                         // without its device, which comes from `device` or `inline_device`
  std::string device;                      // a name from `devices`; "" = `inline_device`
  std::vector<DeviceEntry> inline_device;  // the description in place; at most one
  LinkEntry node_link, network_link;
  std::vector<LinkEntry> inner_links;
};

struct ClusterEntry {
  std::string name;
  std::vector<DeviceEntry> devices;
  std::vector<GroupEntry> groups;
  std::vector<SharedCores> shared_cores;
};

const std::vector<Field<ClusterEntry>>& ClusterFields();
const std::vector<Field<DeviceEntry>>& DeviceFields();
const std::vector<Field<GroupEntry>>& GroupFields();
const std::vector<Field<LinkEntry>>& InnerLinkFields();
const std::vector<Field<ShapeTimes>>& MeasuredFields();
const std::vector<Field<SharedCores>>& SharedCoresFields();
// The fields of a point of an efficiency curve. The class of op decides whether the point's size is in FLOPs, tokens or bytes.
const std::vector<Field<EfficiencyPoint>>& PointFields(OpClass op_class);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_CLUSTER_FIELDS_H_
