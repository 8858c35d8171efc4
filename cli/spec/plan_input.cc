#include "cli/spec/plan_input.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/spec/cluster_file.h"
#include "cli/spec/job_file.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

// A job that accepts any kind of device uses the kind in the profile.
bool OnGpus(DeviceKind wanted, const HardwareProfile& profile) {
  if (wanted != DeviceKind::kAny) return wanted == DeviceKind::kCuda;
  return profile.device_kind.starts_with(EnumName(DeviceKind::kCuda));
}

ClusterTopology UniformTopology(const PlanInput& input, const JobSpec& spec) {
  NodeGroup group;
  const int32_t ranks = spec.resources.max_ranks;
  group.devices_per_node = input.devices_per_node > 0 ? input.devices_per_node : ranks;
  group.nodes = input.nodes > 0 ? input.nodes : std::max(1, (ranks + group.devices_per_node - 1) / group.devices_per_node);
  if (input.device_memory) group.memory_per_device = *input.device_memory;
  if (input.host_memory) group.host_memory = *input.host_memory;
  group.profile = input.profile ? *input.profile : StatedCpuProfile();
  // For Lynx's own engine, the memory of a CPU rank is the host's memory. The server plans in the same way.
  group.host_is_device = input.target == PlanTarget::kLynxEngine && !OnGpus(spec.resources.device, group.profile);
  return ClusterTopology{{std::move(group)}};
}

absl::StatusOr<ClusterTopology> TopologyOf(const PlanInput& input, const JobSpec& spec) {
  if (!input.cluster) return UniformTopology(input, spec);
  LYNX_ASSIGN_OR_RETURN(ClusterFile file, ParseClusterFile(*input.cluster, input.cluster_name));
  if (input.nodes > 0) {
    LYNX_RETURN_IF_ERROR(
        Annotate(SetNodes(input.nodes, input.cluster_name, file.cluster), absl::StrCat("nodes ", input.nodes)));
  }
  if (input.profile) LYNX_RETURN_IF_ERROR(Annotate(UseMeasured(*input.profile, file.cluster), input.profile_name));
  return file.cluster;
}

}  // namespace

absl::StatusOr<PlanRequest> PlanRequestOf(const PlanInput& input) {
  PlanRequest request;
  LYNX_ASSIGN_OR_RETURN(request.spec, ParseJobFile(input.job, input.job_name, input.folder, input.overrides));
  LYNX_ASSIGN_OR_RETURN(request.cluster, TopologyOf(input, request.spec));
  request.target = input.target;
  return request;
}

}  // namespace lynx::cli
