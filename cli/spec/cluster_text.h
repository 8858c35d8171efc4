// Writes a cluster file (cluster_file.h) from a topology, such as that of a cluster that runs, with what its agents measured.
// Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_CLUSTER_TEXT_H_
#define LYNX_CLI_SPEC_CLUSTER_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/cost/cluster_topology.h"

namespace lynx::cli {

// Returns the text of a cluster file that ParseClusterFile reads as `cluster` again. `comment`: one line. The groups must have
// names, all different; rates and sizes below 2^51 are exact. FailedPrecondition: the memory of a group's devices is unknown,
// which no cluster file can say. InvalidArgument: CheckCluster refuses the cluster.
absl::StatusOr<std::string> ClusterText(const std::string& name, const std::string& comment, const ClusterTopology& cluster);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_CLUSTER_TEXT_H_
