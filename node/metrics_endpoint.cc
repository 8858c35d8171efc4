#include "node/metrics_endpoint.h"

#include <exception>
#include <vector>

#include "common/status.h"
#include "prometheus/exposer.h"

namespace lynx {

absl::StatusOr<int> ServeMetrics(const std::string& address, const std::shared_ptr<prometheus::Registry>& registry) {
  try {
    const std::vector<std::string> options = {"listening_ports", address, "num_threads", "2"};
    auto* exposer = new prometheus::Exposer(options);
    exposer->RegisterCollectable(registry);
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (!ports.empty()) return ports.front();
  } catch (const std::exception&) {
    // Its text is only "null context when constructing CivetServer".
  }
  return absl::UnavailableError(
      absl::StrCat("cannot serve metrics on ", address,
                   ": the port is in use or the address is not of this machine; give another --metrics-address"));
}

}  // namespace lynx
