// HttpEndpoint: a few threads that accept HTTP requests at one address and pass them to a function. Thread-safe.
#ifndef LYNX_NODE_HTTP_ENDPOINT_H_
#define LYNX_NODE_HTTP_ENDPOINT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct mg_connection;
struct mg_context;
struct mg_request_info;

namespace lynx {

struct HttpRequest {
  std::string method;         // "GET"
  std::string path;           // "/api/job": without the query
  std::string query;          // "id=j1": as it was sent
  std::string host;           // value of the Host header
  std::string authorization;  // the Authorization header; empty: there is none
  std::string from;           // numeric address of the client
  std::string content_type;   // these headers, too, are empty if there are none: Content-Type,
  std::string origin;         // Origin,
  std::string fetch_site;     // and Sec-Fetch-Site
  std::string body;           // empty if HttpLimits::max_body is 0
  // The connection's descriptor, only to be polled while the request is answered: POLLRDHUP says that the client has closed it
  // and waits no longer. -1 if there is no body, or if the descriptor was not found.
  int socket = -1;
};

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // in addition to Content-Type, Content-Length and Connection
};

// The limits of an endpoint. Each thread waits for the request of one connection at a time. So idle connections delay other
// requests only if there are as many of them as threads; they are closed after `request_millis`.
struct HttpLimits {
  int threads = 16;
  int max_request = 8192;  // largest number of bytes of a request's head
  int request_millis = 10'000;
  // Largest number of bytes of a body. A request with a larger body is answered 413, and `answer` is not called. 0: bodies are
  // not read.
  size_t max_body = 0;
  // How long the whole body may take to arrive. A request whose body takes longer is answered 408.
  int body_millis = 30'000;
  // Called before a body is read, on any of the threads, with the request's head. If it returns a reply, the body is not read,
  // and `answer` is not called. So strangers cannot keep a thread with a slow body. May be empty.
  std::function<std::optional<HttpReply>(const HttpRequest&)> refuse_body = {};
};

class HttpEndpoint {
 public:
  using Answer = std::function<HttpReply(const HttpRequest&)>;

  // Starts the endpoint. `address`: "host:port" with a numeric host; port 0: a free port. `answer` is called on any of the
  // threads, with requests within the limits. Unavailable: the address is in use or does not belong to this machine.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(const std::string& address, Answer answer, HttpLimits limits = {});
  // Waits for answers in progress, which can take seconds. An endpoint at an IPv6 address takes up to two seconds more,
  // because only IPv4 connections can wake its thread early.
  ~HttpEndpoint();

  int port() const { return port_; }

 private:
  HttpEndpoint(Answer answer, HttpLimits limits) : answer_(std::move(answer)), limits_(std::move(limits)) {}
  static int OnRequest(mg_connection* connection);
  HttpReply ReplyTo(mg_connection* connection, const mg_request_info& info, HttpRequest& request) const;

  const Answer answer_;
  const HttpLimits limits_;
  mg_context* context_ = nullptr;
  std::string host_;
  int port_ = 0;
};

// ---- What pages for browsers check of a request, and the headers of their replies. Pure. ----

// The lower-case host of a Host header: "Host.example:7472" gives "host.example", "[::1]:7472" gives "::1". A page that answers
// only its own names cannot be read by an attacker's web page whose domain name resolves to this machine (DNS rebinding).
std::string HostName(const std::string& header);

// Checks that no other web page made the browser send the request: the Origin header, if there is one, names the host of the
// Host header, and Sec-Fetch-Site, if there is one, is "same-origin". Programs other than browsers send neither.
// PermissionDenied names the header.
absl::Status CheckSameOrigin(const HttpRequest& request);

// Adds the headers that keep a page to itself: no copies, no frames, no other origins. `policy`: its Content-Security-Policy.
void AddPageHeaders(const std::string& policy, HttpReply& reply);

}  // namespace lynx

#endif  // LYNX_NODE_HTTP_ENDPOINT_H_
