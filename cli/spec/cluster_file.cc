#include "cli/spec/cluster_file.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/spec/cluster_fields.h"
#include "cli/spec/job_file.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

// The device that a group names, or describes in place.
absl::StatusOr<const DeviceEntry*> DeviceOf(const ClusterEntry& entry, size_t index, const YamlReader& reader) {
  const GroupEntry& group = entry.groups[index];
  if (!group.inline_device.empty()) return &group.inline_device.front();
  std::vector<std::string> names;
  for (const DeviceEntry& device : entry.devices) {
    if (device.name == group.device) return &device;
    names.push_back(device.name);
  }
  const std::string path = absl::StrCat("nodeGroups[", index, "].device");
  return absl::InvalidArgumentError(
      absl::StrCat(reader.PlaceOf(path), ": ", path, ": no device is called '", group.device, "'",
                   names.empty() ? "; the file has no devices" : DidYouMean(group.device, names)));
}

absl::StatusOr<NodeGroup> GroupOf(const GroupEntry& entry, const DeviceEntry& device, const std::string& path,
                                  const YamlReader& reader) {
  NodeGroup group = entry.group;
  const HostLink host = group.profile.host;
  const int32_t adapters = group.profile.adapters, pod_nodes = group.profile.pod_nodes;
  const int32_t oversubscription = group.profile.oversubscription_permille;
  group.profile = device.profile;
  if (group.profile.device_kind.empty()) group.profile.device_kind = device.name.empty() ? group.name : device.name;
  group.profile.host = host;
  group.profile.intra_node = entry.node_link.cost();
  group.profile.inter_node = entry.network_link.cost();
  group.profile.adapters = adapters;
  group.profile.pod_nodes = pod_nodes;
  group.profile.oversubscription_permille = oversubscription;
  for (const LinkEntry& link : entry.inner_links) group.profile.inner_links.push_back({link.devices, link.cost()});
  group.memory_per_device = device.memory - device.reserved_memory;
  if (group.memory_per_device.value <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(reader.PlaceOf(path), ": ", path, ": reservedMemory of its device is ",
                                                   FormatBytes(device.reserved_memory), ", all of its ",
                                                   FormatBytes(device.memory), "; leave some"));
  }
  return group;
}

absl::Status CheckNames(const ClusterEntry& entry, const YamlReader& reader) {
  const auto twice = [&](const char* list, size_t index, const std::string& name) {
    const std::string path = absl::StrCat(list, "[", index, "].name");
    return absl::InvalidArgumentError(
        absl::StrCat(reader.PlaceOf(path), ": ", path, ": '", name, "' is the name of another one; give each its own"));
  };
  for (size_t i = 0; i < entry.devices.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (entry.devices[i].name == entry.devices[j].name) return twice("devices", i, entry.devices[i].name);
    }
  }
  for (size_t i = 0; i < entry.groups.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (entry.groups[i].group.name == entry.groups[j].group.name) {
        return twice("nodeGroups", i, entry.groups[i].group.name);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClusterFile> ParseClusterFile(const std::string& text, const std::string& file) {
  LYNX_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(text, file));
  if (root.kind == YamlKind::kNull) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": the file is empty; see examples/clusters/"));
  }
  YamlReader reader(file, YamlReader::Scalars::kSourced);
  LYNX_RETURN_IF_ERROR(reader.CheckHeader(root, "Cluster"));
  ClusterEntry entry;
  LYNX_RETURN_IF_ERROR(reader.Read(root, "", ClusterFields(), entry));
  LYNX_RETURN_IF_ERROR(CheckNames(entry, reader));
  ClusterFile cluster{.name = entry.name, .sources = reader.sources()};
  for (size_t i = 0; i < entry.groups.size(); ++i) {
    const std::string path = absl::StrCat("nodeGroups[", i, "]");
    LYNX_ASSIGN_OR_RETURN(const DeviceEntry* device, DeviceOf(entry, i, reader));
    LYNX_ASSIGN_OR_RETURN(NodeGroup group, GroupOf(entry.groups[i], *device, absl::StrCat(path, ".device"), reader));
    const absl::Status valid = CheckCluster({{group}});
    if (!valid.ok()) {
      std::string message(valid.message());
      const size_t advice = message.rfind("; measure the nodes again");  // this advice does not help for a file
      if (advice != std::string::npos) message.resize(advice);
      return absl::InvalidArgumentError(absl::StrCat(reader.PlaceOf(absl::StrCat(path, ".name")), ": ", path, ": ", message));
    }
    cluster.cluster.groups.push_back(std::move(group));
  }
  cluster.cluster.shared_cores = std::move(entry.shared_cores);
  LYNX_RETURN_IF_ERROR(Annotate(CheckCluster(cluster.cluster), file));
  return cluster;
}

absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return Annotate(text.status(), "cluster file");
  return ParseClusterFile(*text, path);
}

absl::Status UseMeasured(const HardwareProfile& measured, ClusterTopology& cluster) {
  std::vector<std::string> kinds;
  bool found = false;
  for (NodeGroup& group : cluster.groups) {
    kinds.push_back(absl::StrCat("'", group.profile.device_kind, "'"));
    if (group.profile.device_kind != measured.device_kind) continue;
    HardwareProfile stated = std::exchange(group.profile, measured);
    HardwareProfile& now = group.profile;
    const auto keep = [](auto& to, auto& from) {
      if (to == std::remove_reference_t<decltype(to)>{}) to = std::move(from);
    };
    keep(now.efficiency, stated.efficiency);
    keep(now.gemm_tiles, stated.gemm_tiles);
    keep(now.inner_links, stated.inner_links);
    keep(now.host, stated.host);
    // Agents do not count network adapters, and do not find out how the switches are joined.
    if (now.adapters == 1) now.adapters = stated.adapters;
    if (now.pod_nodes == 0) {
      now.pod_nodes = stated.pod_nodes;
      now.oversubscription_permille = stated.oversubscription_permille;
    }
    keep(now.bfloat16_flops_per_second, stated.bfloat16_flops_per_second);
    keep(now.float8_flops_per_second, stated.float8_flops_per_second);
    keep(now.float4_flops_per_second, stated.float4_flops_per_second);
    found = true;
  }
  if (found) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("it is of '", measured.device_kind,
                                                 "', but the cluster's devices are of kind ", absl::StrJoin(kinds, ", "),
                                                 "; set 'kind' in the cluster file to what agents report"));
}

absl::Status SetNodes(int32_t nodes, const std::string& where, ClusterTopology& cluster) {
  if (cluster.groups.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has ", cluster.groups.size(), " groups of nodes; change their counts in the file"));
  }
  cluster.groups[0].nodes = nodes;
  return absl::OkStatus();
}

std::string ClusterFileReference() {
  const auto part = [](const std::string& title, const std::string& rows) {
    return absl::StrCat(title, "\n\n", kReferenceHead, rows);
  };
  const ClusterEntry cluster;
  return absl::StrCat(
      part("## The file", ReferenceRows(ClusterFields(), cluster)), "\n",
      part("## A kind of device", ReferenceRows(DeviceFields(), DeviceEntry(), "devices[].")), "\n",
      part("## A group of nodes", ReferenceRows(GroupFields(), GroupEntry(), "nodeGroups[].") +
                                      ReferenceRows(InnerLinkFields(), LinkEntry(), "nodeGroups[].links.inner[].")),
      "\n", part("## Cores that ranks share", ReferenceRows(SharedCoresFields(), SharedCores(), "sharedCores[].")), "\n",
      part("## Op times of a shape", ReferenceRows(MeasuredFields(), ShapeTimes(), "devices[].measured[].")), "\n",
      part("## A point of an efficiency",
           ReferenceRows(PointFields(OpClass::kGemm), EfficiencyPoint(), "efficiency.gemm.points[].") +
               ReferenceRows(PointFields(OpClass::kAttention), EfficiencyPoint(), "efficiency.attention.points[].") +
               ReferenceRows(PointFields(OpClass::kMemory), EfficiencyPoint(), "efficiency.memory.points[].")));
}

}  // namespace lynx::cli
