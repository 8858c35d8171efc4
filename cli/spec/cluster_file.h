// The cluster file: strict, versioned YAML (`apiVersion: lynx/v1`, `kind: Cluster`) that describes machines to plan
// for: kinds of device with their rates, and groups of nodes with their links. Any value may be written as `{value:
// 80GiB, source: "data sheet"}`. Tables of fields drive reading and the reference in docs/. Pure functions of text,
// but for ReadClusterFile; thread-safe.
#ifndef LYNX_CLI_SPEC_CLUSTER_FILE_H_
#define LYNX_CLI_SPEC_CLUSTER_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/spec/yaml_record.h"
#include "planner/cost/cluster_topology.h"

namespace lynx {

struct ClusterFile {
  std::string name;
  ClusterTopology cluster;  // groups in the file's order; CheckCluster accepts it
  std::vector<NumberSource> sources;
};

// InvalidArgument: "FILE:LINE:COLUMN: FIELD: what is wrong; what would be right".
absl::StatusOr<ClusterFile> ParseClusterFile(const std::string& text, const std::string& file);
// Reads the file; NotFound / InvalidArgument with its name.
absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& path);

// Puts what was measured in place of what is stated for the groups whose devices are of that kind; what was not
// measured (curves, tiles, inner links, copies to the host) stays. InvalidArgument that lists the kinds where none
// is.
absl::Status UseMeasured(const HardwareProfile& measured, ClusterTopology& cluster);

// Markdown tables of all fields with their defaults and meanings.
std::string ClusterFileReference();

}  // namespace lynx

#endif  // LYNX_CLI_SPEC_CLUSTER_FILE_H_
