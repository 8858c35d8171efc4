#include "node/metrics_endpoint.h"

#include <CivetServer.h>

#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "common/status.h"
#include "prometheus/exposer.h"

namespace lynx {
namespace {

// civetweb's callbacks are plain functions: which pages are meant is known by its context.
class ChecksByContext {
 public:
  void Add(const mg_context* context, HealthChecks checks) {
    const std::lock_guard lock(mutex_);
    checks_[context] = std::move(checks);
  }
  HealthChecks Of(const mg_context* context) {
    const std::lock_guard lock(mutex_);
    return checks_[context];
  }
  static ChecksByContext& All() {
    static auto* all = new ChecksByContext();
    return *all;
  }

 private:
  std::mutex mutex_;
  std::map<const mg_context*, HealthChecks> checks_;  // guarded by mutex_
};

// Of the server that this thread is starting.
thread_local HealthChecks* starting = nullptr;

void TakeContext(const mg_context* context) { ChecksByContext::All().Add(context, std::move(*starting)); }

int Answer(mg_connection* connection, const std::function<std::string()>& check) {
  const std::string wrong = check == nullptr ? "" : check();
  const std::string text = wrong.empty() ? "ok\n" : wrong + "\n";
  const int status = wrong.empty() ? 200 : 503;
  mg_printf(connection, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", status,
            wrong.empty() ? "OK" : "Service Unavailable", text.size(), text.c_str());
  return status;
}

// 0: another page.
int AnswerProbe(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  const std::string path = request->local_uri == nullptr ? "" : request->local_uri;
  if (path == "/healthz") return Answer(connection, ChecksByContext::All().Of(mg_get_context(connection)).alive);
  if (path == "/readyz") return Answer(connection, ChecksByContext::All().Of(mg_get_context(connection)).ready);
  return 0;
}

}  // namespace

absl::StatusOr<int> ServeMetrics(const std::string& address, const std::shared_ptr<prometheus::Registry>& registry, HealthChecks checks) {
  try {
    const std::vector<std::string> options = {"listening_ports", address, "num_threads", "2"};
    CivetCallbacks callbacks;
    callbacks.init_context = TakeContext;
    callbacks.begin_request = AnswerProbe;
    starting = &checks;
    auto* exposer = new prometheus::Exposer(options, &callbacks);
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
