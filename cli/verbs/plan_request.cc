#include "cli/verbs/plan_request.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/output/exit_code.h"
#include "cli/spec/job_file.h"
#include "cli/spec/plan_input.h"
#include "cli/spec/profile_file.h"
#include "cli/spec/scalar_text.h"
#include "common/status.h"
#include "node/solver_process.h"
#include "planner/search/arrangement.h"

namespace lynx::cli {
namespace {

// With this number of actions, planning takes seconds and less than a gigabyte.
constexpr int64_t kMaxProgramActions = 6'000'000;

absl::StatusOr<std::optional<Bytes>> OptionalSize(const std::string& text, const char* option) {
  if (text.empty()) return std::nullopt;
  const auto size = ParseByteSize(text);
  if (!size.ok()) return Annotate(size.status(), option);
  return *size;
}

// Reads what the options name. An error says which option or file.
absl::StatusOr<PlanInput> ReadInput(const PlanOptions& options) {
  PlanInput input;
  const absl::StatusOr<std::string> job = ReadTextFile(options.file);
  if (!job.ok()) return Annotate(job.status(), "job file");
  std::error_code error;
  input.job = *job;
  input.job_name = options.file;
  input.folder = std::filesystem::absolute(options.file, error).parent_path().string();
  input.overrides = options.overrides;
  input.nodes = options.nodes;
  if (options.target == "any") input.target = PlanTarget::kAnyFramework;
  if (!options.cluster.empty()) {
    const absl::StatusOr<std::string> cluster = ReadTextFile(options.cluster);
    if (!cluster.ok()) return Annotate(cluster.status(), "cluster file");
    input.cluster = *cluster;
    input.cluster_name = options.cluster;
  } else {
    input.devices_per_node = options.devices_per_node;
    LYNX_ASSIGN_OR_RETURN(input.device_memory, OptionalSize(options.device_memory, "--device-memory"));
    LYNX_ASSIGN_OR_RETURN(input.host_memory, OptionalSize(options.host_memory, "--host-memory"));
  }
  if (!options.profile.empty()) {
    LYNX_ASSIGN_OR_RETURN(input.profile, ReadProfileFile(options.profile));
    input.profile_name = absl::StrCat("--profile ", options.profile);
  }
  return input;
}

}  // namespace

absl::StatusOr<PlanRequest> ReadPlanRequest(const PlanOptions& options) {
  LYNX_ASSIGN_OR_RETURN(const PlanInput input, ReadInput(options));
  LYNX_ASSIGN_OR_RETURN(PlanRequest request, PlanRequestOf(input));
  request.most_program_actions = kMaxProgramActions;
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
