// Everything that a plan needs, as texts and values: lynxctl reads them from files and options, other callers have them in
// memory. The functions depend only on the input and on the files that the job's text names; thread-safe.
#ifndef LYNX_CLI_SPEC_PLAN_INPUT_H_
#define LYNX_CLI_SPEC_PLAN_INPUT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/cost/hardware_profile.h"
#include "planner/plan/plan.h"

namespace lynx::cli {

struct PlanInput {
  std::string job;                     // text of a job file
  std::string job_name = "job";        // names the job's text in errors
  std::string folder = "/";            // absolute; relative paths in the job's text start here
  std::vector<std::string> overrides;  // "model.seq=4096"; they replace the values in the job's text

  std::optional<std::string> cluster;    // text of a cluster file; none = a uniform cluster by the fields below
  std::string cluster_name = "cluster";  // names the cluster's text in errors
  // Replaces the stated figures of this kind of device in the cluster's text. For a uniform cluster, it is the profile of all
  // devices; if it is missing, the stated figures of a CPU core are used.
  std::optional<HardwareProfile> profile;
  std::string profile_name = "profile";  // names the profile in errors

  int32_t nodes = 0;                   // 0 = as many as the job's ranks need, or as the cluster's text says
  int32_t devices_per_node = 0;        // for a uniform cluster; 0 = the job's max_ranks
  std::optional<Bytes> device_memory;  // for a uniform cluster: memory of a device
  std::optional<Bytes> host_memory;    // for a uniform cluster: memory of a node to which GPUs may offload
  PlanTarget target = PlanTarget::kLynxEngine;
};

// The request has no exact solver, and all programs of its plan are whole; callers change its fields `exact` and
// `most_program_actions`. InvalidArgument and NotFound: the texts name the place and say what would be right.
absl::StatusOr<PlanRequest> PlanRequestOf(const PlanInput& input);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_PLAN_INPUT_H_
