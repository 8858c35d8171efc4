// ServeMetrics: the pages of a daemon for those who watch over it, on threads of its own: /metrics in Prometheus' text format,
// /healthz and /readyz for what starts it again or sends calls to it.
#ifndef LYNX_NODE_METRICS_ENDPOINT_H_
#define LYNX_NODE_METRICS_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/gauge.h"

namespace lynx {

// Each says what is wrong, "" where nothing is: the page is "ok" then, else status 503 with that text. Called by any thread, as
// long as the process runs. Null: nothing is ever wrong.
struct HealthChecks {
  std::function<std::string()> alive;  // /healthz: starting the daemon again would not help against what is wrong elsewhere
  std::function<std::string()> ready;  // /readyz
};

// Of a node's daemon: not ready while `attached` is 0. Keeps `owner`, whose gauge it is.
HealthChecks ReadyWhileAttached(std::shared_ptr<prometheus::Collectable> owner, const prometheus::Gauge& attached);

// Serves ADDRESS/metrics with `metrics`, and the two pages, until the process ends; returns the port. ADDRESS is "host:port" as
// ParseListenAddress takes it (a port alone would be one of all addresses of the machine); port 0 takes a free one.
// InvalidArgument for another text, Unavailable when the address is in use or not of this machine; both name --metrics-address.
// Connections on which nothing is asked keep nobody waiting while they are fewer than the threads, and are closed after ten
// seconds. The server is never destroyed: its destructor can take seconds, which an exit path must not.
absl::StatusOr<int> ServeMetrics(const std::string& address, std::shared_ptr<prometheus::Collectable> metrics,
                                 HealthChecks checks);

}  // namespace lynx

#endif  // LYNX_NODE_METRICS_ENDPOINT_H_
