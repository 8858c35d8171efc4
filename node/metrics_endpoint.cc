#include "node/metrics_endpoint.h"

#include <mutex>
#include <utility>
#include <vector>

#include "common/status.h"
#include "node/http_endpoint.h"
#include "node/listen_address.h"
#include "prometheus/text_serializer.h"

namespace lynx {
namespace {

// Requests for these pages may have many headers, because proxies add some.
const HttpLimits kLimits{.max_request = 16384};

// Keeps the endpoint until the process ends. It is never destroyed, but stays reachable, so leak checkers do not report it.
void KeepForever(std::unique_ptr<HttpEndpoint> endpoint) {
  static std::mutex mutex;
  static auto* endpoints = new std::vector<std::unique_ptr<HttpEndpoint>>();
  const std::lock_guard lock(mutex);
  endpoints->push_back(std::move(endpoint));
}

std::string Ask(const std::function<std::string()>& question) { return question == nullptr ? "" : question(); }

HttpReply AnswerProbe(const std::string& wrong, const std::string& role) {
  if (!wrong.empty()) return {.status = 503, .type = "text/plain", .body = wrong + "\n"};
  return {.status = 200, .type = "text/plain", .body = role.empty() ? "ok\n" : "ok: " + role + "\n"};
}

HttpReply AnswerPage(const HttpRequest& request, prometheus::Collectable& metrics, const HealthChecks& checks) {
  if (request.path == "/healthz") return AnswerProbe(Ask(checks.alive), Ask(checks.role));
  if (request.path == "/readyz") return AnswerProbe(Ask(checks.ready), "");
  if (request.path != "/metrics") return {.status = 404, .body = "there are /metrics, /healthz and /readyz\n"};
  return {.type = "text/plain; version=0.0.4; charset=utf-8",
          .body = prometheus::TextSerializer().Serialize(metrics.Collect())};
}

}  // namespace

HealthChecks ReadyWhileAttached(std::shared_ptr<prometheus::Collectable> owner, const prometheus::Gauge& attached) {
  return {.ready = [owner = std::move(owner), &attached] {
    return std::string(attached.Value() != 0 ? "" : "no server is attached; the log says why");
  }};
}

absl::StatusOr<int> ServeMetrics(const std::string& address, std::shared_ptr<prometheus::Collectable> metrics,
                                 HealthChecks checks) {
  const absl::StatusOr<ListenAddress> listen = ParseListenAddress(address);
  if (!listen.ok()) return Annotate(listen.status(), "--metrics-address");
  auto endpoint = HttpEndpoint::Start(
      AddressText(*listen, listen->port),
      [metrics = std::move(metrics), checks = std::move(checks)](const HttpRequest& request) {
        return AnswerPage(request, *metrics, checks);
      },
      kLimits);
  if (endpoint.ok()) {
    const int port = (*endpoint)->port();
    KeepForever(*std::move(endpoint));
    return port;
  }
  return absl::UnavailableError(
      absl::StrCat("cannot serve metrics on ", address,
                   ": the port is in use or the address is not of this machine; give another --metrics-address"));
}

}  // namespace lynx
