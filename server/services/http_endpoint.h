// HttpEndpoint: a few threads that accept HTTP requests at one address and pass them to a function. Thread-safe.
#ifndef LYNX_SERVER_SERVICES_HTTP_ENDPOINT_H_
#define LYNX_SERVER_SERVICES_HTTP_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/services/live_page.h"

struct mg_connection;
struct mg_context;

namespace lynx {

class HttpEndpoint {
 public:
  using Answer = std::function<HttpReply(const HttpRequest&)>;

  // `address`: "host:port" with a numeric host; port 0: a free port. `answer` is called on any of kThreads threads, with
  // requests of at most kMaxRequest bytes that arrive within kRequestMillis. Unavailable: the address is in use or does not
  // belong to this machine.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(const std::string& address, Answer answer);
  // Waits for answers in progress.
  ~HttpEndpoint();

  int port() const { return port_; }

  static constexpr int kThreads = 16;
  static constexpr int kMaxRequest = 8192;
  static constexpr int kRequestMillis = 10'000;

 private:
  explicit HttpEndpoint(Answer answer) : answer_(std::move(answer)) {}
  static int OnRequest(mg_connection* connection);

  const Answer answer_;
  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace lynx

#endif  // LYNX_SERVER_SERVICES_HTTP_ENDPOINT_H_
