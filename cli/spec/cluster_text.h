// Writes a cluster file (cluster_file.h) from a topology, such as that of a cluster that runs, with what its agents measured.
// Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_CLUSTER_TEXT_H_
#define LYNX_CLI_SPEC_CLUSTER_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "planner/cost/cluster_topology.h"

namespace lynx::cli {

// In bytes; half of what ParseClusterFile reads, so that the studio's page can send it in a question.
inline constexpr size_t kMaxClusterText = 1 << 19;

// Returns the text of a cluster file that ParseClusterFile reads as `cluster` again. `comment`: one line. The groups must have
// names, all different; rates and sizes below 2^51 are exact. FailedPrecondition: the memory or the kind of a group's devices
// is unknown, which no cluster file can say, or the text would be longer than kMaxClusterText. InvalidArgument: CheckCluster
// refuses the cluster.
absl::StatusOr<std::string> ClusterText(const std::string& name, const std::string& comment, const ClusterTopology& cluster);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_CLUSTER_TEXT_H_
