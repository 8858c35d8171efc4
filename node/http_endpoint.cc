// See http_endpoint.h.
#include "node/http_endpoint.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <initializer_list>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 421: return "Misdirected Request";
    case 503: return "Service Unavailable";
    default: return "Internal Server Error";
  }
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

// A body above the limit is read up to this multiple of the limit and dropped, so that a client that is still sending reads the
// answer; beyond it the connection breaks.
constexpr size_t kDroppedMultiple = 16;

enum class BodyEnd { kWhole, kTooLarge, kBroken };

// True if a body follows the head of the request.
bool HasBody(mg_connection* connection, const mg_request_info& info) {
  return info.content_length > 0 || mg_get_header(connection, "Transfer-Encoding") != nullptr;
}

// Reads the body of a request. kBroken: it ended before its Content-Length, or took longer than allowed.
BodyEnd ReadBody(mg_connection* connection, const mg_request_info& info, const HttpLimits& limits, std::string& body) {
  const size_t most = limits.max_body;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limits.body_millis);
  char piece[16 * 1024];
  size_t got = 0;
  while (got <= most * kDroppedMultiple) {
    if (std::chrono::steady_clock::now() > end) return BodyEnd::kBroken;
    const int bytes = mg_read(connection, piece, sizeof piece);
    if (bytes < 0) return BodyEnd::kBroken;
    if (bytes == 0) break;
    got += static_cast<size_t>(bytes);
    if (got <= most) body.append(piece, static_cast<size_t>(bytes));
  }
  if (got > most) return BodyEnd::kTooLarge;
  return info.content_length > static_cast<int64_t>(got) ? BodyEnd::kBroken : BodyEnd::kWhole;
}

// Host and port of one end of a connection, as `name` (getsockname, getpeername) finds it; empty if it finds none.
std::pair<std::string, std::string> EndOf(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  if (name(fd, any, &size) != 0) return {};
  if (::getnameinfo(any, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) return {};
  return {host, port};
}

// The descriptor of the connection that brought a request; -1: it was not found. The library keeps it to itself, so the
// process's descriptors are compared with both ends of the connection, which no other descriptor has.
int SocketOf(const mg_request_info& info) {
  const std::pair peer(std::string(info.remote_addr), absl::StrCat(info.remote_port));
  const std::string own = absl::StrCat(info.server_port);
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    int fd = -1;
    if (!absl::SimpleAtoi(it->path().filename().string(), &fd)) continue;
    if (EndOf(fd, ::getpeername) == peer && EndOf(fd, ::getsockname).second == own) return fd;
  }
  return -1;
}

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

HttpReply HttpEndpoint::ReplyTo(mg_connection* connection, const mg_request_info& info, HttpRequest& request) const {
  if (limits_.max_body == 0 || !HasBody(connection, info)) return answer_(request);
  if (limits_.refuse_body) {
    if (std::optional<HttpReply> refused = limits_.refuse_body(request); refused.has_value()) return *std::move(refused);
  }
  switch (ReadBody(connection, info, limits_, request.body)) {
    case BodyEnd::kTooLarge:
      return {.status = 413, .body = absl::StrCat("the request's body is larger than ", limits_.max_body, " bytes\n")};
    case BodyEnd::kBroken: return {.status = 408, .body = "the request's body did not come whole, or too slowly\n"};
    case BodyEnd::kWhole: break;
  }
  request.socket = SocketOf(info);
  return answer_(request);
}

int HttpEndpoint::OnRequest(mg_connection* connection) {
  const mg_request_info* info = mg_get_request_info(connection);
  const auto* self = static_cast<const HttpEndpoint*>(mg_get_user_data(mg_get_context(connection)));
  const auto header = [&](const char* name) { return Text(mg_get_header(connection, name)); };
  HttpRequest request{.method = Text(info->request_method),
                      .path = Text(info->local_uri),
                      .query = Text(info->query_string),
                      .host = header("Host"),
                      .authorization = header("Authorization"),
                      .from = info->remote_addr,
                      .content_type = header("Content-Type"),
                      .origin = header("Origin"),
                      .fetch_site = header("Sec-Fetch-Site")};
  const HttpReply reply = self->ReplyTo(connection, *info, request);
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
  std::unique_ptr<HttpEndpoint> endpoint(new HttpEndpoint(std::move(answer), limits));
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

std::string HostName(const std::string& header) {
  const std::string host = absl::AsciiStrToLower(header);
  if (absl::StartsWith(host, "[")) {
    return host.substr(1, host.find(']') == std::string::npos ? std::string::npos : host.find(']') - 1);
  }
  return host.substr(0, host.rfind(':'));
}

absl::Status CheckSameOrigin(const HttpRequest& request) {
  const std::string host = absl::AsciiStrToLower(request.host), origin = absl::AsciiStrToLower(request.origin);
  if (!origin.empty() && origin != "http://" + host && origin != "https://" + host) {
    return absl::PermissionDeniedError("the Origin header names another page than this one");
  }
  if (!request.fetch_site.empty() && request.fetch_site != "same-origin") {
    return absl::PermissionDeniedError("the Sec-Fetch-Site header says that another page than this one asks");
  }
  return absl::OkStatus();
}

void AddPageHeaders(const std::string& policy, HttpReply& reply) {
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, std::string>>{{"Cache-Control", "no-store"},
                                                                  {"Content-Security-Policy", policy},
                                                                  {"X-Content-Type-Options", "nosniff"},
                                                                  {"X-Frame-Options", "DENY"},
                                                                  {"Referrer-Policy", "no-referrer"},
                                                                  {"Cross-Origin-Resource-Policy", "same-origin"},
                                                                  {"Cross-Origin-Opener-Policy", "same-origin"}}) {
    reply.headers.emplace_back(name, value);
  }
}

}  // namespace lynx
