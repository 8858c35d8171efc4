#include "studio/cluster_machine.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/spec/cluster_text.h"

namespace lynx {

StudioCluster ClusterMachine(const ClusterTopology& cluster, int32_t left_out) {
  constexpr char kReady[] = "Choose a ready-made machine meanwhile, and reload this page later.";
  if (cluster.groups.empty()) {
    return {.note = absl::StrCat("No node of this cluster takes ranks now and has told what it measured. ", kReady)};
  }
  const std::string title = absl::StrCat(
      "This cluster: ",
      cluster.groups.size() <= 2 ? NodesText(cluster) : absl::StrCat(cluster.nodes(), " nodes with ", cluster.devices()),
      cluster.devices() == 1 ? " device" : " devices", ", as measured");
  const absl::StatusOr<std::string> text = cli::ClusterText(kThisCluster, title, cluster);
  if (!text.ok()) {
    return {.note = absl::StrCat("This cluster cannot be planned for: ", std::string(text.status().message()), ". ", kReady)};
  }
  const nlohmann::json machines{{{"name", kThisCluster}, {"title", title}, {"text", *text}}};
  StudioCluster made{.machine = kThisCluster,
                     .machines = machines.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  if (left_out > 0) {
    made.note = absl::StrCat("Left out of this cluster: ", left_out, left_out == 1 ? " node" : " nodes",
                             " without measurements, or whose ranks must be alone.");
  }
  return made;
}

}  // namespace lynx
