#include "cli/verbs/plan_request.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/output/exit_code.h"
#include "cli/spec/cluster_file.h"
#include "cli/spec/job_file.h"
#include "cli/spec/profile_file.h"
#include "cli/spec/scalar_text.h"
#include "common/status.h"
#include "node/solver_process.h"
#include "planner/search/arrangement.h"

namespace lynx::cli {
namespace {

// With this number of actions, planning takes seconds and less than a gigabyte.
constexpr int64_t kMaxProgramActions = 6'000'000;

absl::StatusOr<HardwareProfile> ReadProfile(const std::string& path) {
  if (path.empty()) return StatedCpuProfile();
  return ReadProfileFile(path);
}

// A job that accepts any kind of device uses the kind in the profile.
bool OnGpus(DeviceKind wanted, const HardwareProfile& profile) {
  if (wanted != DeviceKind::kAny) return wanted == DeviceKind::kCuda;
  return profile.device_kind.starts_with(EnumName(DeviceKind::kCuda));
}

absl::StatusOr<ClusterTopology> UniformTopology(const PlanOptions& options, const JobSpec& spec) {
  NodeGroup group;
  const int32_t ranks = spec.resources.max_ranks;
  group.devices_per_node = options.devices_per_node > 0 ? options.devices_per_node : ranks;
  group.nodes = options.nodes > 0 ? options.nodes : std::max(1, (ranks + group.devices_per_node - 1) / group.devices_per_node);
  if (!options.device_memory.empty()) {
    auto memory = ParseByteSize(options.device_memory);
    if (!memory.ok()) return Annotate(memory.status(), "--device-memory");
    group.memory_per_device = *memory;
  }
  if (!options.host_memory.empty()) {
    auto memory = ParseByteSize(options.host_memory);
    if (!memory.ok()) return Annotate(memory.status(), "--host-memory");
    group.host_memory = *memory;
  }
  LYNX_ASSIGN_OR_RETURN(group.profile, ReadProfile(options.profile));
  // For Lynx's own engine, the memory of a CPU rank is the host's memory. The server plans in the same way.
  group.host_is_device = options.target != "any" && !OnGpus(spec.resources.device, group.profile);
  return ClusterTopology{{std::move(group)}};
}

absl::StatusOr<ClusterTopology> TopologyOf(const PlanOptions& options, const JobSpec& spec) {
  if (options.cluster.empty()) return UniformTopology(options, spec);
  LYNX_ASSIGN_OR_RETURN(ClusterFile file, ReadClusterFile(options.cluster));
  if (options.nodes > 0) {
    if (file.cluster.groups.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat("--nodes ", options.nodes, ": ", options.cluster, " has ",
                                                     file.cluster.groups.size(),
                                                     " groups of nodes; change their counts in the file"));
    }
    file.cluster.groups[0].nodes = options.nodes;
  }
  if (!options.profile.empty()) {
    LYNX_ASSIGN_OR_RETURN(const HardwareProfile measured, ReadProfile(options.profile));
    LYNX_RETURN_IF_ERROR(Annotate(UseMeasured(measured, file.cluster), absl::StrCat("--profile ", options.profile)));
  }
  return file.cluster;
}

}  // namespace

absl::StatusOr<PlanRequest> ReadPlanRequest(const PlanOptions& options) {
  PlanRequest request;
  LYNX_ASSIGN_OR_RETURN(request.spec, ReadJobFile(options.file, options.overrides));
  LYNX_ASSIGN_OR_RETURN(request.cluster, TopologyOf(options, request.spec));
  request.most_program_actions = kMaxProgramActions;
  if (options.target == "any") request.target = PlanTarget::kAnyFramework;
  if (options.opt || request.spec.recompute == RecomputeMode::kOpt) {
    LYNX_ASSIGN_OR_RETURN(request.exact, SolverInProcess({.seconds = options.opt_seconds}));
  }
  return request;
}

void ArrangeNodes(const PlanOptions& options, PlanRequest& request) {
  if (!options.keep_node_order) request.cluster = FastestArrangement(request);
}

int PrintInfeasible(const Infeasible& infeasible) {
  std::fprintf(stderr, "lynxctl: this job cannot fit: %s\n", infeasible.reason.c_str());
  if (!infeasible.suggestion.empty()) {
    std::fprintf(stderr, "the smallest change that fits: %s\n", infeasible.suggestion.c_str());
  }
  return kExitJobFailed;
}

}  // namespace lynx::cli
