#include "server/metrics/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "node/metrics_endpoint.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"
#include "server/metrics/trouble_log.h"
#include "tests/node/http_get.h"

namespace lynx::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ServerHealthTest, ALoopThatDoesNotTurnIsToldOfAndSoIsAServerThatDoesNotListen) {
  SimulatedClock clock;
  ServerHealth health(clock);
  EXPECT_EQ(health.Alive(), "");
  EXPECT_EQ(health.Ready(), "the server takes no calls");
  health.SetListening(true);
  EXPECT_EQ(health.Ready(), "");
  clock.Advance(ServerHealth::kMaxSilence);
  EXPECT_EQ(health.Alive(), "");
  clock.Advance(Nanos(1));
  EXPECT_EQ(health.Alive(), "the event loop has not turned for 2m00s");
  EXPECT_EQ(health.Ready(), health.Alive());
  health.Ticked();
  EXPECT_EQ(health.Alive(), "");
  health.SetListening(false);
  EXPECT_EQ(health.Ready(), "the server takes no calls");
}

TEST(MetricsEndpointTest, EachServerHasItsOwnPages) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("lynx_test_total").Register(*registry).Add({}).Increment();
  const int well = ServeMetrics("127.0.0.1:0", registry, {}).value();
  const int ill = ServeMetrics("127.0.0.1:0", registry,
                               {.alive = [] { return std::string(); }, .ready = [] { return std::string("not yet"); }})
                      .value();
  for (const char* path : {"/healthz", "/readyz"}) {
    EXPECT_THAT(HttpGet(well, path), StartsWith("HTTP/1.1 200 ")) << path;
    EXPECT_THAT(HttpGet(well, path), EndsWith("\r\n\r\nok\n")) << path;
  }
  EXPECT_THAT(HttpGet(ill, "/healthz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(HttpGet(ill, "/readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(HttpGet(ill, "/readyz"), EndsWith("\r\n\r\nnot yet\n"));
  EXPECT_THAT(HttpGet(ill, "/metrics"), HasSubstr("lynx_test_total 1"));
  EXPECT_THAT(HttpGet(ill, "/healthz/x"), HasSubstr(" 404 Not Found"));
}

// Returns a connection that sends nothing. It stays open until the other side closes it.
UniqueFd Connected(int port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

bool IsOpen(const UniqueFd& fd) {
  char byte;
  return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

TEST(MetricsEndpointTest, ConnectionsThatAskNothingKeepNobodyWaiting) {
  const int port = ServeMetrics("127.0.0.1:0", std::make_shared<prometheus::Registry>(), {}).value();
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(Connected(port));
  EXPECT_THAT(HttpGet(port, "/healthz"), StartsWith("HTTP/1.1 200 "));
  // The server has answered without closing any of the idle connections.
  for (const UniqueFd& fd : idle) EXPECT_TRUE(IsOpen(fd));
}

TEST(MetricsEndpointTest, AnAddressWithoutAHostIsRefused) {
  const auto registry = std::make_shared<prometheus::Registry>();
  for (const char* address : {"7473", "0", ":7473", "node0:7473", "127.0.0.1:0,127.0.0.1:0", "127.0.0.1:0s"}) {
    const absl::Status refused = ServeMetrics(address, registry, {}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(refused.message()), StartsWith("--metrics-address: \"")) << address;
  }
  EXPECT_GT(ServeMetrics("localhost:0", registry, {}).value(), 0);
}

TEST(MetricsEndpointTest, ANodesDaemonIsReadyWhileAServerIsAttached) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::Gauge& attached = prometheus::BuildGauge().Name("lynx_test_attached").Register(*registry).Add({});
  const int port = ServeMetrics("127.0.0.1:0", registry, ReadyWhileAttached(registry, attached)).value();
  EXPECT_THAT(HttpGet(port, "/readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(HttpGet(port, "/readyz"), EndsWith("\r\n\r\nno server is attached; the log says why\n"));
  EXPECT_THAT(HttpGet(port, "/healthz"), StartsWith("HTTP/1.1 200 "));
  attached.Set(1);
  EXPECT_THAT(HttpGet(port, "/readyz"), StartsWith("HTTP/1.1 200 "));
}

TEST(TroubleLogTest, EachTroubleIsLoggedAndNoneTooOften) {
  constexpr Nanos kSecond{1'000'000'000};
  TroubleLog log;
  Nanos now = kSecond * 1000;
  EXPECT_EQ(log.Next("", now), std::nullopt);
  EXPECT_EQ(log.Next("a", now), "a");
  EXPECT_EQ(log.Next("a", now + kSecond * 2), std::nullopt) << "it is the same";
  EXPECT_EQ(log.Next("a", now + TroubleLog::kAgain), "a") << "and it is still there";
  now += TroubleLog::kAgain;
  EXPECT_EQ(log.Next("b", now + TroubleLog::kApart), "b") << "another one";
  now += TroubleLog::kApart;
  EXPECT_EQ(log.Next("", now + kSecond * 5), std::nullopt);
  EXPECT_EQ(log.Next("b", now + kSecond * 6), "b") << "it was over, and is there again";
  now += kSecond * 6;
  EXPECT_EQ(log.Next("c", now + Nanos(1)), std::nullopt) << "at once after the line before";
  EXPECT_EQ(log.Next("d", now + Nanos(2)), std::nullopt);
  EXPECT_EQ(log.Next("e", now + Nanos(3)), std::nullopt);
  EXPECT_EQ(log.Next("e", now + TroubleLog::kApart), "e (and 2 other troubles since the line before)");
  EXPECT_EQ(log.Next("e", now + TroubleLog::kApart * 3), std::nullopt);
}

}  // namespace
}  // namespace lynx::server
