#include "node/stream.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/fd.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "tests/node/fake_standby.h"

namespace lynx {
namespace {

using AgentStream = NodeStream<v1::AgentReport, v1::AgentDesired>;

// A server that answers every report with a desired state that names the report. It ends a stream after `reports_per_stream`
// reports.
class EchoServer : public v1::Cluster::Service {
 public:
  explicit EchoServer(int reports_per_stream) : reports_per_stream_(reports_per_stream) {}

  grpc::Status AttachAgent(grpc::ServerContext*, grpc::ServerReaderWriter<v1::AgentDesired, v1::AgentReport>* stream) override {
    v1::AgentReport report;
    int seen = 0;
    while (stream->Read(&report)) {
      v1::AgentDesired desired;
      desired.set_heartbeat_ns(std::stoll(report.failure()));
      stream->Write(desired);
      if (++seen == reports_per_stream_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "enough");
    }
    ended_cleanly_ = true;
    return grpc::Status::OK;
  }

  bool ended_cleanly() const { return ended_cleanly_; }

 private:
  const int reports_per_stream_;
  std::atomic<bool> ended_cleanly_{false};
};

std::unique_ptr<grpc::Server> Serve(grpc::Service& service, int& port) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  return builder.BuildAndStart();
}

NodeStreamOptions OptionsFor(const std::string& servers) {
  return {.servers = *ServerAddresses::Parse(servers), .backoff = {.first = Nanos(10'000'000), .most = Nanos(50'000'000)}};
}

std::string AddressOf(int port) { return "127.0.0.1:" + std::to_string(port); }

NodeStreamOptions OptionsFor(int port) { return OptionsFor(AddressOf(port)); }

std::unique_ptr<AgentStream::Wire> OpenAgent(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
  return v1::Cluster::NewStub(channel)->AttachAgent(context);
}

void WaitForWake(WakeEvent& wake) {
  pollfd fd{.fd = wake.fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&fd, 1, 30'000), 1) << "nothing happened";
  wake.Clear();
}

void WaitForAttachment(AgentStream& stream, WakeEvent& wake, int64_t other_than) {
  while (stream.attachment() == 0 || stream.attachment() == other_than) WaitForWake(wake);
}

// Sends a report with this number and waits for the answer to it.
void Exchange(AgentStream& stream, WakeEvent& wake, int64_t number) {
  v1::AgentReport report;
  report.set_failure(std::to_string(number));
  while (!stream.TrySend(report)) WaitForWake(wake);
  while (true) {
    for (const v1::AgentDesired& desired : stream.TakeDesired()) {
      if (desired.heartbeat_ns() == number) return;
    }
    WaitForWake(wake);
  }
}

TEST(NodeStream, CarriesReportsAndDesiredStatesAndEndsCleanly) {
  EchoServer service(1000);
  int port = 0;
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  WakeEvent wake;
  AgentStream stream(OptionsFor(port), OpenAgent, wake);
  WaitForAttachment(stream, wake, 0);
  for (int i = 1; i <= 20; ++i) Exchange(stream, wake, i);
  stream.Stop();
  EXPECT_EQ(stream.attachment(), 0);
  EXPECT_TRUE(service.ended_cleanly());
}

// A server that answers the first report with a desired state of many megabytes, as a node with large programs gets it.
class LargeServer : public v1::Cluster::Service {
 public:
  static constexpr int kShapes = 400'000;

  grpc::Status AttachAgent(grpc::ServerContext*, grpc::ServerReaderWriter<v1::AgentDesired, v1::AgentReport>* stream) override {
    v1::AgentReport report;
    if (stream->Read(&report)) {
      v1::AgentDesired desired;
      for (int i = 0; i < kShapes; ++i) {
        v1::LayerShape& shape = *desired.add_shapes();
        shape.set_hidden(1 << 28);
        shape.set_vocab(1 << 28);
      }
      stream->Write(desired);
    }
    while (stream->Read(&report)) {}
    return grpc::Status::OK;
  }
};

TEST(NodeStream, TakesMessagesBeyondTheDefaultLimit) {
  LargeServer service;
  int port = 0;
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  WakeEvent wake;
  AgentStream stream(OptionsFor(port), OpenAgent, wake);
  WaitForAttachment(stream, wake, 0);
  v1::AgentReport hello;
  while (!stream.TrySend(hello)) WaitForWake(wake);
  std::vector<v1::AgentDesired> desired;
  while (desired.empty()) {
    WaitForWake(wake);
    desired = stream.TakeDesired();
    ASSERT_LE(stream.attachment(), 1) << "the stream broke";
  }
  EXPECT_EQ(desired[0].shapes_size(), LargeServer::kShapes);
  EXPECT_GT(desired[0].ByteSizeLong(), size_t{5} << 20);
  stream.Stop();
}

TEST(NodeStream, DialsAgainWhenTheServerEndsTheStream) {
  EchoServer service(2);
  int port = 0;
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  WakeEvent wake;
  AgentStream stream(OptionsFor(port), OpenAgent, wake);
  int64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    WaitForAttachment(stream, wake, last);
    last = stream.attachment();
    Exchange(stream, wake, 100 + i);
    v1::AgentReport goodbye;
    goodbye.set_failure("0");
    while (!stream.TrySend(goodbye)) WaitForWake(wake);
  }
  EXPECT_EQ(last, 3);
  stream.Stop();
}

TEST(NodeStream, FindsAServerThatStartsLate) {
  EchoServer service(1000);
  int port = 0;
  { const std::unique_ptr<grpc::Server> finds_port = Serve(service, port); }
  WakeEvent wake;
  AgentStream stream(OptionsFor(port), OpenAgent, wake);
  v1::AgentReport report;
  EXPECT_FALSE(stream.TrySend(report));
  EXPECT_EQ(stream.attachment(), 0);
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  ASSERT_NE(server, nullptr);
  WaitForAttachment(stream, wake, 0);
  Exchange(stream, wake, 1);
  stream.Stop();
}

TEST(NodeStream, StopsAtOnceWithoutAServer) {
  WakeEvent wake;
  AgentStream stream(OptionsFor(1), OpenAgent, wake);
  stream.Stop();
  EXPECT_EQ(stream.attachment(), 0);
}

// A server that never reads. Writes then wait, but the owner of the stream and Stop must not wait for them.
class DeafServer : public v1::Cluster::Service {
 public:
  grpc::Status AttachAgent(grpc::ServerContext* context,
                           grpc::ServerReaderWriter<v1::AgentDesired, v1::AgentReport>*) override {
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return grpc::Status::CANCELLED;
  }
};

TEST(NodeStream, AServerThatDoesNotReadHoldsNothingUp) {
  DeafServer service;
  int port = 0;
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  WakeEvent wake;
  AgentStream stream(OptionsFor(port), OpenAgent, wake);
  WaitForAttachment(stream, wake, 0);
  v1::AgentReport report;
  report.set_failure(std::string(3 << 20, 'x'));
  // All reports together are larger than any window. So at some time a report must wait until another one is written.
  int refused = 0;
  for (int i = 0; i < 1000 && refused < 20; ++i) {
    v1::AgentReport copy = report;
    if (!stream.TrySend(copy)) {
      ++refused;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  EXPECT_EQ(refused, 20);
  stream.Stop();
}

// Exchanges a report as a daemon does: sends the report again on each new stream until a server answers it.
void ExchangeWithLeader(AgentStream& stream, WakeEvent& wake, int64_t number) {
  int64_t sent_on = 0;
  while (!::testing::Test::HasFatalFailure()) {
    for (const v1::AgentDesired& desired : stream.TakeDesired()) {
      if (desired.heartbeat_ns() == number) return;
    }
    v1::AgentReport report;
    report.set_failure(std::to_string(number));
    const int64_t attachment = stream.attachment();
    if (attachment != 0 && attachment != sent_on && stream.TrySend(report)) sent_on = attachment;
    WaitForWake(wake);
  }
}

TEST(NodeStreamFailover, FollowsTheLeaderThatAStandbyNames) {
  EchoServer service(1000);
  int port = 0;
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  FakeStandby first, second;
  first.SetLeader(AddressOf(port));
  WakeEvent wake;
  AgentStream stream(OptionsFor(first.address() + "," + second.address() + "," + AddressOf(port)), OpenAgent, wake);
  ExchangeWithLeader(stream, wake, 1);
  EXPECT_TRUE(stream.accepted());
  EXPECT_EQ(first.refused(), 1);
  EXPECT_EQ(second.refused(), 0) << "the first one named the leader";
  stream.Stop();
}

TEST(NodeStreamFailover, TriesTheNextAddressAfterOneThatDoesNotAnswer) {
  EchoServer service(1000);
  int port = 0;
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  FakeStandby standby;
  WakeEvent wake;
  AgentStream stream(OptionsFor("127.0.0.1:1,nowhere.invalid:1," + standby.address() + "," + AddressOf(port)), OpenAgent, wake);
  ExchangeWithLeader(stream, wake, 1);
  EXPECT_EQ(standby.refused(), 1);
  stream.Stop();
}

// The socket of a stopped process still accepts connections.
TEST(NodeStreamFailover, TriesTheNextAddressAfterOneThatTakesConnectionsAndSaysNothing) {
  const UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(silent.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(silent.get(), 4), 0);
  ASSERT_EQ(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EchoServer service(1000);
  int port = 0;
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  WakeEvent wake;
  NodeStreamOptions options = OptionsFor(AddressOf(ntohs(address.sin_port)) + "," + AddressOf(port));
  options.connect_limit = Nanos(3'600'000'000'000);  // with this limit, the stream would never try the other address
  options.try_limit = Nanos(50'000'000);
  AgentStream stream(std::move(options), OpenAgent, wake);
  ExchangeWithLeader(stream, wake, 1);
  stream.Stop();
}

TEST(NodeStreamFailover, GoesOnWhileAllStandByUntilOneLeads) {
  EchoServer service(1000);
  int port = 0;
  { const std::unique_ptr<grpc::Server> finds_port = Serve(service, port); }
  FakeStandby first, second;
  WakeEvent wake;
  AgentStream stream(OptionsFor(first.address() + "," + AddressOf(port) + "," + second.address()), OpenAgent, wake);
  while (first.refused() < 3 || second.refused() < 3) WaitForWake(wake);
  EXPECT_FALSE(stream.accepted());
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  ASSERT_NE(server, nullptr);
  ExchangeWithLeader(stream, wake, 1);
  stream.Stop();
}

TEST(NodeStreamFailover, FollowsALeaderThatMovesThereAndBack) {
  EchoServer service(1000);
  int one = 0, other = 0;
  std::unique_ptr<grpc::Server> server = Serve(service, one);
  { const std::unique_ptr<grpc::Server> finds_port = Serve(service, other); }
  WakeEvent wake;
  AgentStream stream(OptionsFor(AddressOf(one) + "," + AddressOf(other)), OpenAgent, wake);
  for (int move = 1; move <= 4; ++move) {
    ExchangeWithLeader(stream, wake, move);
    const int64_t before = stream.attachment();
    server->Shutdown(std::chrono::system_clock::now());
    server = Serve(service, move % 2 == 1 ? other : one);
    ASSERT_NE(server, nullptr);
    WaitForAttachment(stream, wake, before);
  }
  ExchangeWithLeader(stream, wake, 5);
  stream.Stop();
}

// A leader that loses its lease. It ends its streams with the status of a standby.
class StepsDown : public v1::Cluster::Service {
 public:
  grpc::Status AttachAgent(grpc::ServerContext* context,
                           grpc::ServerReaderWriter<v1::AgentDesired, v1::AgentReport>* stream) override {
    v1::AgentReport report;
    if (stream->Read(&report)) {
      v1::AgentDesired desired;
      desired.set_heartbeat_ns(std::stoll(report.failure()));
      stream->Write(desired);
    }
    context->AddTrailingMetadata("lynx-standby", "1");
    context->AddTrailingMetadata("lynx-leader", leader);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "this server stands by");
  }
  std::string leader;
};

TEST(NodeStreamFailover, FollowsTheLeaderThatItsOwnLeaderNamesAtTheEnd) {
  EchoServer service(1000);
  int port = 0, old_port = 0;
  const std::unique_ptr<grpc::Server> server = Serve(service, port);
  StepsDown steps_down;
  steps_down.leader = AddressOf(port);
  const std::unique_ptr<grpc::Server> old = Serve(steps_down, old_port);
  FakeStandby third;
  WakeEvent wake;
  AgentStream stream(OptionsFor(AddressOf(old_port) + "," + third.address() + "," + AddressOf(port)), OpenAgent, wake);
  ExchangeWithLeader(stream, wake, 1);
  WaitForAttachment(stream, wake, 1);
  ExchangeWithLeader(stream, wake, 2);
  EXPECT_EQ(third.refused(), 0);
  stream.Stop();
}

TEST(NodeStreamFailover, StopsWhileAllStandBy) {
  FakeStandby first, second;
  WakeEvent wake;
  AgentStream stream(OptionsFor(first.address() + "," + second.address()), OpenAgent, wake);
  while (second.refused() < 2) WaitForWake(wake);
  stream.Stop();
  EXPECT_EQ(stream.attachment(), 0);
}

}  // namespace
}  // namespace lynx
