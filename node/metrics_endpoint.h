// ServeMetrics: a daemon's pages for monitoring, on their own threads: /metrics in Prometheus' text format, and /healthz and
// /readyz for programs that restart the daemon or route calls to it.
#ifndef LYNX_NODE_METRICS_ENDPOINT_H_
#define LYNX_NODE_METRICS_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/gauge.h"

namespace lynx {

// The checks behind /healthz and /readyz. Each function returns what is wrong; then the page is this text with status 503. If
// the function returns an empty text, the page is "ok". Each function is called on any thread, as long as the process runs. A
// null function means that nothing is ever wrong.
struct HealthChecks {
  // For /healthz. It does not report problems elsewhere, because restarting the daemon would not help against them.
  std::function<std::string()> alive;
  std::function<std::string()> ready;  // for /readyz
  // If the daemon is healthy, /healthz returns "ok" and this text; empty or null: only "ok".
  std::function<std::string()> role;
};

// The checks for a node's daemon. The daemon is not ready while `attached` is 0. Keeps `owner` alive, because the gauge belongs
// to it.
HealthChecks ReadyWhileAttached(std::shared_ptr<prometheus::Collectable> owner, const prometheus::Gauge& attached);

// Serves ADDRESS/metrics with `metrics`, and the two other pages, until the process ends. Returns the port. ADDRESS is
// "host:port" as for ParseListenAddress (a port alone would mean all addresses of the machine); port 0: a free port.
// InvalidArgument: an invalid address. Unavailable: the address is in use or does not belong to this machine. Both name
// --metrics-address. Idle connections delay nobody while they are fewer than the threads, and are closed after ten seconds. The
// server is never destroyed, because its destructor can take seconds, which is too long when the process exits.
absl::StatusOr<int> ServeMetrics(const std::string& address, std::shared_ptr<prometheus::Collectable> metrics,
                                 HealthChecks checks);

}  // namespace lynx

#endif  // LYNX_NODE_METRICS_ENDPOINT_H_
