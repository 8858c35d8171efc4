#include "cli/connect/unary_call.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "lynx/v1/jobs.grpc.pb.h"
#include "proto/message_limit.h"
#include "tests/node/fake_standby.h"

namespace lynx::cli {
namespace {

constexpr Nanos kPatience{30'000'000'000};
constexpr char kSubmit[] = "/lynx.v1.Jobs/SubmitJob";

// A real server of the gRPC library. The test sets its answers.
class UnaryCallTest : public ::testing::Test, public v1::Jobs::Service {
 protected:
  void Serve(const std::string& host = "127.0.0.1") {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(host + ":0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.RegisterService(static_cast<v1::Jobs::Service*>(this));
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = host + ":" + std::to_string(port_);
  }
  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override {
    deadline_ = context->deadline();
    return answer_(*request, *response);
  }
  std::optional<std::string> Call(const v1::SubmitJobRequest& request) {
    return CallUnary(address_, kSubmit, request.SerializeAsString(), kPatience, kPatience).message;
  }

  int port_ = 0;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  std::chrono::system_clock::time_point deadline_;
  std::function<grpc::Status(const v1::SubmitJobRequest&, v1::SubmitJobResponse&)> answer_ = [](const auto& request,
                                                                                                auto& response) {
    response.mutable_job()->set_id(request.idempotency_key());
    return grpc::Status::OK;
  };
};

TEST_F(UnaryCallTest, BringsTheAnswer) {
  Serve();
  v1::SubmitJobRequest request;
  request.set_idempotency_key("key");
  const auto before = std::chrono::system_clock::now();
  const std::optional<std::string> answer = Call(request);
  ASSERT_TRUE(answer.has_value());
  v1::SubmitJobResponse response;
  ASSERT_TRUE(response.ParseFromString(*answer));
  EXPECT_EQ(response.job().id(), "key");
  // The server knows how long the caller waits.
  EXPECT_LE(deadline_, std::chrono::system_clock::now() + std::chrono::nanoseconds(kPatience.value));
  EXPECT_GE(deadline_, before);
}

TEST_F(UnaryCallTest, ReachesIpv6) {
  Serve("[::1]");
  if (port_ == 0) GTEST_SKIP() << "this machine has no IPv6";
  v1::SubmitJobRequest request;
  request.set_idempotency_key("six");
  EXPECT_TRUE(Call(request).has_value());
}

// The message is larger than every initial window of the two sides.
TEST_F(UnaryCallTest, CarriesLargeMessagesBothWays) {
  Serve();
  answer_ = [](const auto& request, auto& response) {
    response.mutable_job()->set_reason(request.idempotency_key());
    return grpc::Status::OK;
  };
  v1::SubmitJobRequest request;
  request.set_idempotency_key(std::string(9 << 20, 'x'));
  const std::optional<std::string> answer = Call(request);
  ASSERT_TRUE(answer.has_value());
  v1::SubmitJobResponse response;
  ASSERT_TRUE(response.ParseFromString(*answer));
  EXPECT_EQ(response.job().reason(), request.idempotency_key());
}

TEST_F(UnaryCallTest, AnEmptyMessageIsAnAnswer) {
  Serve();
  answer_ = [](const auto&, auto&) { return grpc::Status::OK; };
  EXPECT_EQ(Call({}), "");
}

TEST_F(UnaryCallTest, ARefusalIsNoAnswer) {
  Serve();
  answer_ = [](const auto&, auto& response) {
    response.mutable_job()->set_id("refused");
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no");
  };
  EXPECT_FALSE(Call({}).has_value());
  EXPECT_FALSE(CallUnary(address_, "/lynx.v1.Jobs/NoSuchMethod", "", kPatience, kPatience).message.has_value());
}

TEST_F(UnaryCallTest, NobodyListens) {
  Serve();
  server_->Shutdown();
  server_.reset();
  EXPECT_FALSE(Call({}).has_value());
}

TEST(UnaryCallStandbyTest, AServerThatStandsByNamesTheLeader) {
  FakeStandby standby;
  UnaryAnswer answer = CallUnary(standby.address(), kSubmit, std::string(9 << 20, 'x'), kPatience, kPatience);
  EXPECT_FALSE(answer.message.has_value());
  EXPECT_TRUE(answer.ended);
  EXPECT_EQ(answer.leader, "");
  standby.SetLeader("10.0.0.1:7470");
  answer = CallUnary(standby.address(), kSubmit, "message", kPatience, kPatience);
  EXPECT_EQ(answer.leader, "10.0.0.1:7470");
}

TEST_F(UnaryCallTest, OnlyAddressesInNumbers) {
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", "host.invalid:1",
                              "::1:7470", "[::1", "[::1]", "[localhost]:1", "unix:/tmp/socket"}) {
    EXPECT_FALSE(CallUnary(address, kSubmit, "", kPatience, kPatience).message.has_value()) << address;
    EXPECT_FALSE(IsCalledUnary(address)) << address;
  }
  for (const char* address : {"127.0.0.1:1", "[::1]:65535"}) EXPECT_TRUE(IsCalledUnary(address)) << address;
}

// Listens on a free port of 127.0.0.1. Accept returns the next connection. Until then nobody answers the caller.
class OtherServer {
 public:
  OtherServer() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 4), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~OtherServer() { ::close(fd_); }
  int Accept() const { return ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }
  const std::string& address() const { return address_; }

 private:
  int fd_;
  std::string address_;
};

TEST(UnaryCallPatienceTest, AServerThatSaysNothingIsLeft) {
  const OtherServer server;  // the kernel accepts the connection, but nobody answers
  EXPECT_FALSE(CallUnary(server.address(), kSubmit, "message", Nanos(50'000'000), kPatience).message.has_value());
}

TEST(UnaryCallPatienceTest, AServerThatDoesNotSpeakAtAllIsLeftSooner) {
  const OtherServer server;
  const UnaryAnswer answer = CallUnary(server.address(), kSubmit, "message", Nanos(INT64_MAX / 4), Nanos(50'000'000));
  EXPECT_FALSE(answer.message.has_value());
  EXPECT_FALSE(answer.ended);
}

TEST(UnaryCallPatienceTest, AServerThatSpeaksSomethingElseIsLeft) {
  const OtherServer server;
  std::thread other([&] {
    const int fd = server.Accept();
    const std::string text = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    char byte = 0;
    while (::recv(fd, &byte, 1, 0) > 0) {}
    ::close(fd);
  });
  EXPECT_FALSE(CallUnary(server.address(), kSubmit, "message", kPatience, kPatience).message.has_value());
  other.join();
}

TEST(UnaryCallPatienceTest, AServerThatHangsUpIsLeft) {
  const OtherServer server;
  std::thread other([&] { ::close(server.Accept()); });
  EXPECT_FALSE(CallUnary(server.address(), kSubmit, "message", kPatience, kPatience).message.has_value());
  other.join();
}

}  // namespace
}  // namespace lynx::cli
