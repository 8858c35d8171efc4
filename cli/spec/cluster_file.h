// The cluster file: strict, versioned YAML (`apiVersion: lynx/v1`, `kind: Cluster`) that describes machines to plan
// for: kinds of device with their rates, and groups of nodes with their links. Any value may be written as `{value:
// 80GiB, source: "data sheet"}`. The tables of fields are used for reading and for the reference in docs/. The
// functions are pure except ReadClusterFile; thread-safe.
#ifndef LYNX_CLI_SPEC_CLUSTER_FILE_H_
#define LYNX_CLI_SPEC_CLUSTER_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/spec/yaml_record.h"
#include "planner/cost/cluster_topology.h"

namespace lynx::cli {

struct ClusterFile {
  std::string name;
  ClusterTopology cluster;  // the groups are in the file's order; CheckCluster accepts the cluster
  std::vector<NumberSource> sources;
};

// Parses the text of a cluster file. InvalidArgument: "FILE:LINE:COLUMN: FIELD: what is wrong; what would be right".
absl::StatusOr<ClusterFile> ParseClusterFile(const std::string& text, const std::string& file);
// Reads and parses a cluster file. NotFound and InvalidArgument name the file.
absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& path);

// For the groups whose devices are of the measured kind, replaces the stated figures by the measured ones. If one of these was
// not measured, its stated value stays: curves, tiles, inner links, copies to the host, network adapters, bfloat16 rate.
// InvalidArgument: no group has this kind; the text lists the kinds that there are.
absl::Status UseMeasured(const HardwareProfile& measured, ClusterTopology& cluster);

// Sets the number of nodes of the cluster's only group. InvalidArgument: there are several groups; `where` names the cluster in
// the text.
absl::Status SetNodes(int32_t nodes, const std::string& where, ClusterTopology& cluster);

// Markdown tables of all fields with their defaults and meanings.
std::string ClusterFileReference();

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_CLUSTER_FILE_H_
