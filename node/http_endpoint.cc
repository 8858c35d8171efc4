// See http_endpoint.h.
#include "node/http_endpoint.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

const char* Words(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 421: return "Misdirected Request";
    case 503: return "Service Unavailable";
    default: return "Internal Server Error";
  }
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

// Connects to this port of `host` and closes the connection, without waiting.
void Knock(const std::string& host, int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  if (inet_pton(AF_INET, host.c_str(), &to.sin_addr) == 1) ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);
  ::close(fd);
}

}  // namespace

int HttpEndpoint::OnRequest(mg_connection* connection) {
  const mg_request_info* info = mg_get_request_info(connection);
  const auto* self = static_cast<const HttpEndpoint*>(mg_get_user_data(mg_get_context(connection)));
  const HttpRequest request{.method = Text(info->request_method),
                            .path = Text(info->local_uri),
                            .query = Text(info->query_string),
                            .host = Text(mg_get_header(connection, "Host")),
                            .authorization = Text(mg_get_header(connection, "Authorization")),
                            .from = info->remote_addr};
  const HttpReply reply = self->answer_(request);
  std::string head = absl::StrCat("HTTP/1.1 ", reply.status, " ", Words(reply.status), "\r\nContent-Type: ", reply.type,
                                  "\r\nContent-Length: ", reply.body.size(), "\r\nConnection: close\r\n");
  for (const auto& [name, value] : reply.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  absl::StrAppend(&head, "\r\n");
  mg_write(connection, head.data(), head.size());
  if (!reply.body.empty()) mg_write(connection, reply.body.data(), reply.body.size());
  return reply.status;
}

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(const std::string& address, Answer answer,
                                                                  HttpLimits limits) {
  static std::once_flag library;
  std::call_once(library, [] { mg_init_library(0); });
  std::unique_ptr<HttpEndpoint> endpoint(new HttpEndpoint(std::move(answer)));
  const std::string threads = absl::StrCat(limits.threads), longest = absl::StrCat(limits.max_request),
                    millis = absl::StrCat(limits.request_millis);
  const char* options[] = {"listening_ports", address.c_str(),      "num_threads",  threads.c_str(), "max_request_size",
                           longest.c_str(),   "request_timeout_ms", millis.c_str(), nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = OnRequest;
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };  // drops the library's message
  endpoint->context_ = mg_start(&callbacks, endpoint.get(), options);
  mg_server_port port{};
  if (endpoint->context_ == nullptr || mg_get_server_ports(endpoint->context_, 1, &port) != 1) {
    return absl::UnavailableError(absl::StrCat(address, " is in use or not an address of this machine"));
  }
  endpoint->port_ = port.port;
  endpoint->host_ = address.substr(0, address.rfind(':'));
  return endpoint;
}

HttpEndpoint::~HttpEndpoint() {
  if (context_ == nullptr) return;
  // The library's thread that accepts connections checks only every two seconds, or when a connection arrives, whether it must
  // stop. So connections are made until the thread has stopped.
  std::atomic<bool> stopped = false;
  std::thread knocking([this, &stopped] {
    while (!stopped) {
      Knock(host_, port_);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  mg_stop(context_);
  stopped = true;
  knocking.join();
}

}  // namespace lynx
