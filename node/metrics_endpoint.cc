#include "node/metrics_endpoint.h"

#include <CivetServer.h>

#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "common/status.h"
#include "node/listen_address.h"
#include "prometheus/exposer.h"
#include "prometheus/text_serializer.h"

namespace lynx {
namespace {

// Each thread waits for one connection's request at a time. With few threads or long waits, two idle connections would block
// the page for the program that restarts the daemon when it does not answer.
constexpr const char* kThreads = "16";
constexpr const char* kRequestMillis = "10000";

struct Pages {
  std::shared_ptr<prometheus::Collectable> metrics;
  HealthChecks checks;
};

// Callbacks of civetweb are plain functions, so the context tells which pages are meant.
class PagesByContext {
 public:
  void Add(const mg_context* context, Pages pages) {
    const std::lock_guard lock(mutex_);
    pages_[context] = std::move(pages);
  }
  Pages Of(const mg_context* context) {
    const std::lock_guard lock(mutex_);
    return pages_[context];
  }
  // Keeps a pointer to a server that is never destroyed, so that it does not count as a leak.
  void Keep(const prometheus::Exposer* server) {
    const std::lock_guard lock(mutex_);
    servers_.push_back(server);
  }
  static PagesByContext& All() {
    static auto* all = new PagesByContext();
    return *all;
  }

 private:
  std::mutex mutex_;
  std::map<const mg_context*, Pages> pages_;         // guarded by mutex_
  std::vector<const prometheus::Exposer*> servers_;  // guarded by mutex_
};

// The pages of the server that this thread is starting.
thread_local Pages* starting = nullptr;

void TakeContext(const mg_context* context) { PagesByContext::All().Add(context, std::move(*starting)); }

int Answer(mg_connection* connection, int status, const char* type, const std::string& text) {
  mg_printf(connection, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status,
            status == 200 ? "OK" : "Service Unavailable", type, text.size());
  mg_write(connection, text.data(), text.size());
  return status;
}

int AnswerProbe(mg_connection* connection, const std::function<std::string()>& check) {
  const std::string wrong = check == nullptr ? "" : check();
  return Answer(connection, wrong.empty() ? 200 : 503, "text/plain", wrong.empty() ? "ok\n" : wrong + "\n");
}

// 0: not one of these pages. The library's own /metrics would add metrics about itself.
int AnswerPage(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  const std::string path = request->local_uri == nullptr ? "" : request->local_uri;
  if (path != "/healthz" && path != "/readyz" && path != "/metrics") return 0;
  const Pages pages = PagesByContext::All().Of(mg_get_context(connection));
  if (path == "/healthz") return AnswerProbe(connection, pages.checks.alive);
  if (path == "/readyz") return AnswerProbe(connection, pages.checks.ready);
  return Answer(connection, 200, "text/plain; version=0.0.4; charset=utf-8",
                prometheus::TextSerializer().Serialize(pages.metrics->Collect()));
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
  try {
    const std::vector<std::string> options = {
        "listening_ports", AddressText(*listen, listen->port), "num_threads", kThreads, "request_timeout_ms", kRequestMillis};
    CivetCallbacks callbacks;
    callbacks.init_context = TakeContext;
    callbacks.begin_request = AnswerPage;
    Pages pages{std::move(metrics), std::move(checks)};
    starting = &pages;
    auto* exposer = new prometheus::Exposer(options, &callbacks);
    PagesByContext::All().Keep(exposer);
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (!ports.empty()) return ports.front();
  } catch (const std::exception&) {
    // The exception's text is only "null context when constructing CivetServer".
  }
  return absl::UnavailableError(
      absl::StrCat("cannot serve metrics on ", address,
                   ": the port is in use or the address is not of this machine; give another --metrics-address"));
}

}  // namespace lynx
