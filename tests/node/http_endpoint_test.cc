#include "node/http_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/node/http_get.h"

namespace lynx {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Answers with the request that it received.
HttpReply Echo(const HttpRequest& request) {
  return {.body = request.method + " " + request.path + " " + request.content_type + " " + request.origin + " " +
                  request.fetch_site + " [" + request.body + "]"};
}

std::string Post(int port, const std::string& headers, const std::string& body) {
  return HttpSend(port, "POST /ask HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + body);
}

TEST(HttpEndpoint, ReadsBodiesUpToALimit) {
  const auto endpoint = HttpEndpoint::Start("127.0.0.1:0", Echo, {.threads = 2, .max_body = 10});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  EXPECT_THAT(
      Post(port, "Content-Type: a/b\r\nOrigin: http://x\r\nSec-Fetch-Site: none\r\nContent-Length: 10\r\n", "0123456789"),
      EndsWith("\r\n\r\nPOST /ask a/b http://x none [0123456789]"));
  EXPECT_THAT(Post(port, "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), EndsWith("[abcde]"));
  EXPECT_THAT(Post(port, "Content-Length: 0\r\n", ""), EndsWith("[]"));
  EXPECT_THAT(HttpGet(port, "/ask"), EndsWith("[]"));
  EXPECT_THAT(Post(port, "Content-Length: 11\r\n", "0123456789a"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Post(port, "Content-Length: 160\r\n", std::string(160, 'x')), HasSubstr("larger than 10 bytes"));
  EXPECT_THAT(Post(port, "Content-Length: 10\r\n", "0123"), StartsWith("HTTP/1.1 408 "));
}

TEST(HttpEndpoint, RefusesARequestBeforeItsBodyIsRead) {
  const auto refuse = [](const HttpRequest& head) -> std::optional<HttpReply> {
    if (head.content_type == "good") return std::nullopt;
    return HttpReply{.status = 403, .body = "refused " + head.path + head.body};
  };
  const auto endpoint = HttpEndpoint::Start("127.0.0.1:0", Echo, {.threads = 2, .max_body = 10, .refuse_body = refuse});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  EXPECT_THAT(Post(port, "Content-Type: good\r\nContent-Length: 3\r\n", "abc"), EndsWith("[abc]"));
  // The body never comes, and the reply does not wait for it.
  const std::string refused = Post(port, "Content-Length: 3\r\n", "");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(refused, EndsWith("refused /ask"));
  EXPECT_THAT(Post(port, "Transfer-Encoding: chunked\r\n", ""), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(HttpGet(port, "/ask"), EndsWith("[]")) << "a request without a body is not refused";
}

TEST(HttpEndpoint, WaitsForABodyForALimitedTime) {
  const auto endpoint = HttpEndpoint::Start("127.0.0.1:0", Echo, {.threads = 2, .max_body = 10, .body_millis = -1});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_THAT(Post((*endpoint)->port(), "Content-Length: 3\r\n", "abc"), StartsWith("HTTP/1.1 408 "));
}

TEST(HttpEndpoint, ReadsNoBodiesUnlessAsked) {
  const auto endpoint = HttpEndpoint::Start("127.0.0.1:0", Echo, {.threads = 2});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_THAT(Post((*endpoint)->port(), "Content-Length: 3\r\n", "abc"), EndsWith("[]"));
}

TEST(HttpEndpoint, SaysWhenTheClientClosesItsConnection) {
  const auto answer = [](const HttpRequest& request) -> HttpReply {
    if (request.socket < 0) return {.body = "no socket"};
    pollfd end{.fd = request.socket, .events = POLLRDHUP, .revents = 0};
    const bool open = ::poll(&end, 1, 0) == 0;
    ::poll(&end, 1, -1);
    return {.body = absl::StrCat(open ? "open" : "closed", ", then ", (end.revents & POLLRDHUP) != 0 ? "closed" : "open")};
  };
  const auto endpoint = HttpEndpoint::Start("127.0.0.1:0", answer, {.threads = 2, .max_body = 10});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_THAT(HttpGet((*endpoint)->port(), "/ask"), EndsWith("no socket"));
  // The client says at once that nothing more follows, and reads the answer all the same.
  EXPECT_THAT(Post((*endpoint)->port(), "Content-Length: 3\r\n", "abc"), EndsWith("then closed"));
}

TEST(HttpEndpoint, HostNames) {
  EXPECT_EQ(HostName("Host.example:7472"), "host.example");
  EXPECT_EQ(HostName("localhost"), "localhost");
  EXPECT_EQ(HostName("[::1]:7472"), "::1");
  EXPECT_EQ(HostName("[::1"), "::1");
  EXPECT_EQ(HostName(""), "");
}

}  // namespace
}  // namespace lynx
