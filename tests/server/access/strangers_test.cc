// Tests that the server reads no large message of a caller whom it does not know. The calls go through a relay that counts the
// bytes which clients send to the server. A client of gRPC sends the parts of a message only as the server makes room for them,
// so what the server does not read stays with the client.
#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <thread>

#include <gmock/gmock.h>

#include "security/node_identity.h"
#include "security/secret.h"
#include "tests/server/access/access_fixture.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLarge = 1 << 20;
// The largest number of bytes that are sent although no message is read: gRPC's first window (64 KiB), a TLS handshake, and the
// headers of some calls.
constexpr int64_t kMaxUnread = 160 << 10;

// Passes bytes between clients and the server at 127.0.0.1:PORT, and counts those that clients send.
class Relay {
 public:
  explicit Relay(int port) : port_(port), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Loopback(0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
    for (const auto& [client, server] : pairs_) {
      ::close(client);
      ::close(server);
    }
    ::close(listener_);
  }
  const std::string& address() const { return address_; }
  int64_t sent() const { return sent_; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  // Passes on the bytes that `from` has. Returns false if one of the ends has closed the connection.
  static bool Pass(int from, int to, std::atomic<int64_t>* count) {
    char bytes[64 << 10];
    const ssize_t got = ::recv(from, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    if (count != nullptr) *count += got;
    for (ssize_t done = 0; done < got;) {
      const ssize_t wrote = ::send(to, bytes + done, static_cast<size_t>(got - done), MSG_NOSIGNAL);
      if (wrote <= 0) return false;
      done += wrote;
    }
    return true;
  }
  void Run() {
    while (!stop_) {
      std::vector<pollfd> waits = {{.fd = listener_, .events = POLLIN, .revents = 0}};
      for (const auto& [client, server] : pairs_) {
        waits.push_back({.fd = client, .events = POLLIN, .revents = 0});
        waits.push_back({.fd = server, .events = POLLIN, .revents = 0});
      }
      ::poll(waits.data(), waits.size(), 20);
      size_t at = 1;
      for (auto pair = pairs_.begin(); pair != pairs_.end();) {
        bool open = waits[at].revents == 0 || Pass(pair->first, pair->second, &sent_);
        open = (waits[at + 1].revents == 0 || Pass(pair->second, pair->first, nullptr)) && open;
        at += 2;
        if (open) {
          ++pair;
          continue;
        }
        ::close(pair->first);
        ::close(pair->second);
        pair = pairs_.erase(pair);
      }
      if (waits[0].revents == 0) continue;
      const int client = ::accept(listener_, nullptr, nullptr);
      const int server = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address = Loopback(port_);
      EXPECT_EQ(::connect(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
      pairs_.emplace_back(client, server);
    }
  }

  const int port_, listener_;
  std::string address_;
  std::atomic<int64_t> sent_{0};
  std::atomic<bool> stop_{false};
  std::list<std::pair<int, int>> pairs_;  // used only by thread_, and by the destructor after it
  std::thread thread_;
};

class StrangersTest : public AccessTest {
 protected:
  void Begin() {
    StartServer();
    const std::string address = server_->address();
    relay_ = std::make_unique<Relay>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  // Makes a new connection for each call, because connections that have been used have larger windows.
  std::shared_ptr<grpc::Channel> Dial() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        relay_->address(), options_.tls ? AuthorityChannelCredentials(authority_) : grpc::InsecureChannelCredentials(),
        arguments);
  }
  // Sends one large message to the method with this metadata. Returns the status, and sets the number of bytes that were sent.
  grpc::Status SendLarge(const std::string& path, const std::string& authorization, int64_t& sent) {
    const int64_t before = relay_->sent();
    grpc::GenericStub stub(Dial());
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    const auto call = stub.PrepareCall(&context, path, &queue);
    const auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    wait();
    // A field of text with a number that no message has: 1000, of the wire type 2.
    const std::string text(kLarge, 'x');
    const std::string field = std::string("\xC2\x3E\x80\x80\x40") + text;
    const grpc::Slice slice(field);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    wait();
    grpc::ByteBuffer buffer;
    do call->Read(&buffer, nullptr);
    while (wait());
    grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    sent = relay_->sent() - before;
    return status;
  }
  std::unique_ptr<Relay> relay_;
};

const char* const kPaths[] = {"/lynx.v1.Jobs/SubmitJob",      "/lynx.v1.Jobs/GetJob",
                              "/lynx.v1.Jobs/WatchJob",       "/lynx.v1.Cluster/AttachWorker",
                              "/lynx.v1.Cluster/ListNodes",   "/lynx.v1.Admin/Join",
                              "/lynx.v1.Admin/WhoAmI",        "/grpc.health.v1.Health/Check",
                              "/grpc.health.v1.Health/Watch", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};

TEST_F(StrangersTest, ALargeMessageOfAStrangerIsRefusedUnread) {
  Begin();
  for (const char* path : kPaths) {
    for (const std::string& authorization : {std::string(), "Bearer " + std::string(64, '0'), "Join " + std::string(64, '0')}) {
      int64_t sent = 0;
      const grpc::Status status = SendLarge(path, authorization, sent);
      EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << path << ": " << status.error_message();
      EXPECT_LT(sent, kMaxUnread) << path << " " << authorization.substr(0, 6);
    }
  }
}

TEST_F(StrangersTest, ACallThatTheRoleDoesNotAllowIsRefusedUnreadToo) {
  Begin();
  int64_t sent = 0;
  const std::string viewer = "Bearer " + AddUser("victor", v1::ROLE_VIEWER);
  EXPECT_EQ(SendLarge("/lynx.v1.Jobs/SubmitJob", viewer, sent).error_code(), grpc::PERMISSION_DENIED);
  EXPECT_LT(sent, kMaxUnread);
}

TEST_F(StrangersTest, ALargeMessageOfAKnownCallerIsRead) {
  Begin();
  int64_t sent = 0;
  const grpc::Status listed = SendLarge("/lynx.v1.Jobs/ListJobs", "Bearer " + admin_token_, sent);
  EXPECT_TRUE(listed.ok()) << listed.error_message();
  EXPECT_GT(sent, static_cast<int64_t>(kLarge));
  const grpc::Status watched = SendLarge("/lynx.v1.Jobs/WatchJob", "Bearer " + admin_token_, sent);
  EXPECT_EQ(watched.error_code(), grpc::NOT_FOUND) << watched.error_message();
  EXPECT_GT(sent, static_cast<int64_t>(kLarge));
  const grpc::Status health = SendLarge("/grpc.health.v1.Health/Check", "Bearer " + admin_token_, sent);
  EXPECT_TRUE(health.ok()) << health.error_message();
  EXPECT_GT(sent, static_cast<int64_t>(kLarge));
}

// With a join token, the server knows the caller, but only for the call that joins.
TEST_F(StrangersTest, AJoinTokenIsForJoiningOnly) {
  Begin();
  int64_t sent = 0;
  const std::string join = "Join " + MakeJoinSecret();
  EXPECT_EQ(SendLarge("/lynx.v1.Admin/Join", join, sent).error_code(), grpc::INVALID_ARGUMENT) << "it names no node";
  EXPECT_EQ(SendLarge("/lynx.v1.Jobs/ListJobs", join, sent).error_code(), grpc::UNAUTHENTICATED);
  EXPECT_LT(sent, kMaxUnread);
  EXPECT_EQ(SendLarge("/grpc.health.v1.Health/Check", join, sent).error_code(), grpc::UNAUTHENTICATED);
}

TEST_F(StrangersTest, ARefusalIsRecordedWithTheAddress) {
  Begin();
  int64_t sent = 0;
  SendLarge("/lynx.v1.Jobs/SubmitJob", "", sent);
  const v1::ListAuditResponse refused = Audit(/*refused_only=*/true);
  ASSERT_EQ(refused.records_size(), 1);
  EXPECT_EQ(refused.records(0).what(), "Jobs.SubmitJob");
  EXPECT_EQ(refused.records(0).from(), "127.0.0.1");
}

TEST_F(StrangersTest, WithoutTlsEverybodyIsKnown) {
  options_.tls = false;
  Begin();
  int64_t sent = 0;
  EXPECT_TRUE(SendLarge("/lynx.v1.Jobs/ListJobs", "", sent).ok());
  EXPECT_TRUE(SendLarge("/grpc.health.v1.Health/Check", "", sent).ok());
}

// A call without a request must get an answer, and so must a call whose request is not a message.
TEST_F(StrangersTest, ACallWithoutARequestIsRefused) {
  Begin();
  grpc::GenericStub stub(people_);
  for (const char* path : {"/lynx.v1.Jobs/GetJob", "/lynx.v1.Jobs/WatchJob"}) {
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    Prepare(context, admin_token_);
    const auto call = stub.PrepareCall(&context, path, &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    call->WritesDone(nullptr);
    queue.Next(&tag, &ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << path << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("has no request"));
  }
}

}  // namespace
}  // namespace lynx::server
