#include <algorithm>
#include <cstdio>

#include "cli/cluster_file.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/job_file.h"
#include "cli/profile_file.h"
#include "cli/render.h"
#include "cli/scalar_text.h"
#include "common/status.h"
#include "planner/plan.h"
#include "planner/plan_table.h"
#include "proto/convert.h"

namespace lynx {
namespace {

absl::StatusOr<HardwareProfile> ReadProfile(const std::string& path) {
  if (path.empty()) return StatedCpuProfile();
  return ReadProfileFile(path);
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
  LYNX_ASSIGN_OR_RETURN(group.profile, ReadProfile(options.profile));
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

int PrintActions(const Plan& plan, int32_t rank) {
  if (rank >= plan.layout.ranks()) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("--actions ", rank, ": the plan has ranks 0 to ", plan.layout.ranks() - 1, " (", LayoutText(plan.layout), ")")));
  }
  const auto& stage = plan.stages[static_cast<size_t>(CoordinatesOf(plan.layout, rank).stage)];
  std::fputs(ProgramText(stage.program).c_str(), stdout);
  return kExitOk;
}

}  // namespace

int PlanJob(const GlobalOptions& global, const PlanOptions& options) {
  auto spec = ReadJobFile(options.file, options.overrides);
  if (!spec.ok()) return Fail(spec.status());
  PlanRequest request;
  request.spec = *spec;
  auto cluster = TopologyOf(options, *spec);
  if (!cluster.ok()) return Fail(cluster.status());
  request.cluster = *cluster;
  auto result = MakePlan(request);
  if (!result.ok()) return Fail(result.status());
  if (const auto* infeasible = std::get_if<Infeasible>(&*result)) {
    std::fprintf(stderr, "lynxctl: this job cannot fit: %s\n", infeasible->reason.c_str());
    if (!infeasible->suggestion.empty()) std::fprintf(stderr, "the smallest change that fits: %s\n", infeasible->suggestion.c_str());
    return kExitJobFailed;
  }
  const Plan& plan = std::get<Plan>(*result);
  if (options.actions_rank >= 0) return PrintActions(plan, options.actions_rank);
  if (global.output == OutputFormat::kJson) {
    std::fputs(JsonText(ToProto(plan)).c_str(), stdout);
    return kExitOk;
  }
  std::fputs(PlanTable(plan).c_str(), stdout);
  if (!plan.measured_profile) {
    const char* source = !options.profile.empty()   ? "the profile's rates"
                         : !options.cluster.empty() ? "the cluster file's figures"
                                                    : "stated figures for one CPU core";
    std::printf("times come from %s; on a cluster the agents measure them\n", source);
  }
  return kExitOk;
}

int Defaults(const std::string& file, const std::vector<std::string>& overrides, ReferencePage reference) {
  if (reference != ReferencePage::kNone) {
    const bool job = reference == ReferencePage::kJobFile;
    std::fputs((job ? JobFileReference() : ClusterFileReference()).c_str(), stdout);
    return kExitOk;
  }
  JobSpec spec;
  if (!file.empty()) {
    auto read = ReadJobFile(file, overrides);
    if (!read.ok()) return Fail(read.status());
    spec = *read;
  }
  std::fputs(JobFileText(spec).c_str(), stdout);
  return kExitOk;
}

}  // namespace lynx
