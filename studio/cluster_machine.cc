#include "studio/cluster_machine.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/spec/cluster_text.h"

namespace lynx {

StudioCluster ClusterMachine(const ClusterTopology& cluster) {
  constexpr char kReady[] = "Choose a ready-made machine meanwhile, and reload this page later.";
  if (cluster.groups.empty()) {
    return {.note = absl::StrCat("No node of this cluster takes ranks now and has told what it measured. ", kReady)};
  }
  const std::string title =
      absl::StrCat("This cluster: ", NodesText(cluster), cluster.devices() == 1 ? " device" : " devices", ", as measured");
  const absl::StatusOr<std::string> text = cli::ClusterText(kThisCluster, title, cluster);
  if (!text.ok()) {
    return {.note = absl::StrCat("This cluster cannot be planned for: ", std::string(text.status().message()), ". ", kReady)};
  }
  const nlohmann::json machines{{{"name", kThisCluster}, {"title", title}, {"text", *text}}};
  return {.machine = kThisCluster, .machines = machines.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace lynx
