// ServeMetrics: the /metrics page of a daemon, in Prometheus' text format, on threads of its own.
#ifndef LYNX_NODE_METRICS_ENDPOINT_H_
#define LYNX_NODE_METRICS_ENDPOINT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "prometheus/registry.h"

namespace lynx {

// Serves `registry` at ADDRESS/metrics until the process ends; returns the port. ADDRESS is "host:port" with a
// numeric host; port 0 takes a free one. Unavailable when the address is in use or not of this machine. The server is
// never destroyed: its destructor can take seconds, which an exit path must not.
absl::StatusOr<int> ServeMetrics(const std::string& address, const std::shared_ptr<prometheus::Registry>& registry);

}  // namespace lynx

#endif  // LYNX_NODE_METRICS_ENDPOINT_H_
