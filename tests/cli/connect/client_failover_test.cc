// Tests that a client follows the server that leads: past servers that stand by, that do not answer and that say nothing, and
// to a server that leads later.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/connect/client.h"
#include "common/fd.h"
#include "common/standby.h"
#include "tests/node/fake_standby.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kSecond{1'000'000'000};
constexpr char kNobody[] = "127.0.0.1:1";

// A server that leads or stands by. It counts the calls that it reads.
class FakeServer : public v1::Jobs::Service {
 public:
  explicit FakeServer(const std::string& address = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  std::atomic<int> standby_calls{0};  // this number of calls is answered as by a standby
  std::string leader;                 // the leader that these answers name
  grpc::Status answer;                // the answer to the calls that it reads
  std::atomic<int> calls{0};
  std::atomic<bool> hangs{false};  // calls that it reads do not end
  std::function<grpc::Status(grpc::ServerWriter<v1::WatchJobResponse>&)> on_watch;

  grpc::Status ListQueues(grpc::ServerContext* context, const v1::ListQueuesRequest*, v1::ListQueuesResponse*) override {
    return Call(context);
  }
  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest*, v1::SubmitJobResponse*) override {
    return Call(context);
  }
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest*, v1::CancelJobResponse*) override {
    return Call(context);
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    const grpc::Status status = Call(context);
    return status.ok() ? on_watch(*writer) : status;
  }

 private:
  grpc::Status Call(grpc::ServerContext* context) {
    if (standby_calls > 0) {
      --standby_calls;
      context->AddTrailingMetadata(kStandbyKey, kStandbyValue);
      if (!leader.empty()) context->AddTrailingMetadata(kLeaderKey, leader);
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "this server stands by");
    }
    ++calls;
    while (hangs && !context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return answer;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Takes connections and says nothing, like a process that is stopped.
class SilentServer {
 public:
  SilentServer() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_.get(), 16), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  const std::string& address() const { return address_; }

 private:
  UniqueFd fd_;
  std::string address_;
};

Client ClientOf(const std::vector<std::string>& addresses, Nanos timeout = kSecond * 60) {
  std::string text;
  for (const std::string& address : addresses) text += (text.empty() ? "" : ",") + address;
  return Client({.address = text, .source = "the test"}, timeout);
}

v1::WatchJobResponse Message(v1::JobState state) {
  v1::WatchJobResponse response;
  response.mutable_job()->set_id("j1");
  response.mutable_job()->set_state(state);
  return response;
}

TEST(ClientFailoverTest, FollowsTheLeaderThatAStandbyNames) {
  FakeServer leads;
  FakeStandby first(leads.address()), second;
  Client client = ClientOf({first.address(), second.address(), leads.address()});
  EXPECT_EQ(client.present(), first.address());
  EXPECT_TRUE(client.Queues().ok());
  EXPECT_EQ(client.present(), leads.address());
  EXPECT_TRUE(client.Queues().ok());
  EXPECT_EQ(first.refused(), 1) << "the second call goes to the leader at once";
  EXPECT_EQ(second.refused(), 0);
  EXPECT_EQ(leads.calls, 2);
}

// Runs two commands, one after the other.
TEST(ClientFailoverTest, TheNextCommandBeginsWithTheLeader) {
  std::string folder = ::testing::TempDir() + "lynx_leaders_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  FakeServer leads, other;
  FakeStandby standby(leads.address());
  const auto command = [&](const std::string& file) {
    return Client({.address = standby.address() + "," + leads.address() + "," + other.address(),
                   .source = "the test",
                   .leaders_file = file},
                  kSecond * 60);
  };
  const std::string file = folder + "/leaders";
  EXPECT_TRUE(command(file).Queues().ok());
  EXPECT_EQ(standby.refused(), 1);
  EXPECT_EQ(command(file).present(), leads.address());
  EXPECT_TRUE(command(file).Queues().ok());
  EXPECT_EQ(standby.refused(), 1) << "it is not asked again";
  // The earlier leader now stands by, and another server leads.
  leads.standby_calls = 1'000;
  leads.leader = other.address();
  EXPECT_TRUE(command(file).Queues().ok());
  EXPECT_EQ(command(file).present(), other.address());
  EXPECT_EQ(other.calls, 1);
  EXPECT_EQ(standby.refused(), 1);
  EXPECT_EQ(command("").present(), standby.address()) << "without a file nothing is remembered";
  std::filesystem::remove_all(folder);
}

TEST(ClientFailoverTest, PassesAddressesThatDoNotAnswer) {
  FakeServer leads;
  FakeStandby standby;
  const SilentServer silent;
  Client client = ClientOf({kNobody, silent.address(), "nowhere.invalid:1", standby.address(), leads.address()});
  const auto queues = client.Queues();
  EXPECT_TRUE(queues.ok()) << queues.status();
  EXPECT_EQ(leads.calls, 1);
}

TEST(ClientFailoverTest, EveryCallMayBeMadeAgainAfterAStandby) {
  FakeServer leads;
  FakeStandby standby;
  Client client = ClientOf({standby.address(), leads.address()});
  const auto cancelled = client.Cancel({});
  EXPECT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(standby.refused(), 1);
  EXPECT_EQ(leads.calls, 1);
}

// The connection is lost after the server has read the call, so the server may have carried the call out.
TEST(ClientFailoverTest, OnlyWhatMayBeDoneTwiceIsRepeatedAfterALostConnection) {
  FakeServer lost, leads;
  lost.answer = grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection reset");
  Client client = ClientOf({lost.address(), leads.address()});
  const auto cancelled = client.Cancel({});
  EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(cancelled.status().message()), HasSubstr("cannot reach lynx-server at " + lost.address()));
  EXPECT_EQ(leads.calls, 0);
  EXPECT_TRUE(client.Cancel({}).ok()) << "the next call begins elsewhere";
  Client again = ClientOf({lost.address(), leads.address()});
  EXPECT_TRUE(again.Submit({}).ok()) << "it has an idempotency key";
  Client reads = ClientOf({lost.address(), leads.address()});
  EXPECT_TRUE(reads.Queues().ok());
  EXPECT_EQ(lost.calls, 3);
  EXPECT_EQ(leads.calls, 3);
}

// The leader's process is stopped after it has read the call.
TEST(ClientFailoverTest, ALeaderThatHangsIsLeftByCallsThatMayBeMadeTwice) {
  FakeServer hangs, leads;
  hangs.hangs = true;
  Client client = ClientOf({hangs.address(), leads.address()}, kSecond * 3);
  const auto submitted = client.Submit({});
  EXPECT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(client.present(), leads.address());
  Client changes = ClientOf({hangs.address(), leads.address()}, kSecond / 2);
  EXPECT_EQ(changes.Cancel({}).status().code(), absl::StatusCode::kDeadlineExceeded) << "it may have been carried out";
  EXPECT_EQ(leads.calls, 1);
}

TEST(ClientFailoverTest, FollowsALeaderThatMoves) {
  auto first = std::make_unique<FakeServer>();
  FakeServer second;
  second.standby_calls = 3;
  const std::string first_address = first->address();
  Client client = ClientOf({first_address, second.address()});
  EXPECT_TRUE(client.Queues().ok());
  first.reset();
  EXPECT_TRUE(client.Queues().ok()) << "once the second one leads";
  EXPECT_EQ(second.calls, 1);
  EXPECT_EQ(second.standby_calls, 0);
}

TEST(ClientFailoverTest, AServerThatStandsByAloneIsAskedUntilItLeads) {
  FakeServer server;
  server.standby_calls = 2;
  Client client = ClientOf({server.address()});
  EXPECT_TRUE(client.Queues().ok());
  EXPECT_EQ(server.calls, 1);
}

TEST(ClientFailoverTest, SaysWhatEachAddressAnsweredWhenNoneLeads) {
  FakeStandby first("elsewhere:7470"), second;
  const SilentServer silent;
  Client client = ClientOf({first.address(), second.address(), kNobody, silent.address()}, kSecond);
  const absl::Status status = client.Queues().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  const std::string text(status.message());
  EXPECT_THAT(text, HasSubstr("no lynx-server that leads answers at " + first.address() + "," + second.address()));
  EXPECT_THAT(text, HasSubstr("(from the test): " + first.address() +
                              " stands by; the server at elsewhere:7470 leads, which is not "
                              "among the addresses given"));
  EXPECT_THAT(text, HasSubstr(second.address() + " stands by, and no server leads at present"));
  EXPECT_THAT(text, HasSubstr("127.0.0.1:1 does not answer"));
  EXPECT_THAT(text, HasSubstr(silent.address() + " does not answer"));
  EXPECT_THAT(text, HasSubstr("is it running?"));
  EXPECT_GT(first.refused(), 1) << "it is asked round after round";
}

TEST(ClientFailoverTest, ARefusalOfTheLeaderIsFinal) {
  FakeServer leads;
  leads.answer = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such queue");
  FakeStandby standby;
  Client client = ClientOf({leads.address(), standby.address()});
  EXPECT_EQ(client.Queues().status().message(), "no such queue");
  EXPECT_EQ(standby.refused(), 0);
}

TEST(ClientFailoverTest, AWatchGoesOnAtTheNewLeader) {
  FakeServer first, second;
  FakeStandby standby(first.address());
  second.standby_calls = 1;
  first.on_watch = [&](auto& writer) {
    writer.Write(Message(v1::JOB_STATE_RUNNING));
    standby.SetLeader(second.address());
    first.leader = second.address();
    first.standby_calls = 1000;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server is stopping");
  };
  second.on_watch = [](auto& writer) {
    writer.Write(Message(v1::JOB_STATE_SUCCEEDED));
    return grpc::Status::OK;
  };
  Client client = ClientOf({standby.address(), first.address(), second.address()});
  std::vector<v1::JobState> states;
  const absl::Status watched = client.Watch(
      "job", kSecond * 60,
      [&](const v1::WatchJobResponse& response) {
        states.push_back(response.job().state());
        return true;
      },
      [] {});
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_EQ(states, (std::vector{v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED}));
}

TEST(ClientFailoverTest, AWatchThatFindsNoLeaderSaysSo) {
  FakeStandby first, second;
  Client client = ClientOf({first.address(), second.address()}, kSecond / 2);
  const absl::Status watched = client.Watch(
      "job", kSecond * 60, [](const auto&) { return true; }, [] {});
  EXPECT_EQ(watched.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(watched.message()), HasSubstr(second.address() + " stands by, and no server leads at present"));
}

TEST(ClientFailoverTest, LooksAtAllServers) {
  FakeServer leads;
  FakeStandby standby(leads.address());
  Client client = ClientOf({leads.address(), standby.address(), kNobody});
  const std::vector<Client::Seen> seen = client.LookAtAll();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_FALSE(seen[0].leader.has_value());
  EXPECT_EQ(seen[1].leader, leads.address());
  EXPECT_TRUE(seen[1].status.ok());
  EXPECT_EQ(seen[2].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(ClientOf({leads.address()}).LookAtAll().empty());
}

}  // namespace
}  // namespace lynx::cli
