// Tests two nodes that talk to each other. Each must know that the other one belongs to the cluster, and the called node must
// know who calls.
#include "security/credentials.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/clock.h"
#include "lynx/v1/witness.grpc.pb.h"
#include "security/authority.h"
#include "security/presented.h"
#include "tests/security/folder.h"

namespace lynx {
namespace {

constexpr Nanos kDay{86'400'000'000'000};
constexpr Nanos kLimit{20'000'000'000};

// A service that answers with what it knows about the caller.
class FakeWitness : public v1::Witness::Service {
 public:
  grpc::Status WhenRenewed(grpc::ServerContext* context, const v1::WhenRenewedRequest*, v1::WhenRenewedResponse*) override {
    const std::optional<CertificateFacts> peer = PeerCertificate(*context->auth_context());
    return grpc::Status(grpc::StatusCode::ABORTED, peer.has_value() ? NodeOf(*peer).value_or("no node") : "nobody");
  }
};

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() : authority_(Authority::Open(folder_.path + "/tls", RealClock().Wall()).value()) {}

  IdentityDirectory Join(const Authority& authority, const std::string& node, const std::string& name) {
    const IdentityDirectory directory(folder_.path + "/" + name);
    const std::string key = NewPrivateKey().value();
    const auto issued = authority.IssueNode(NewRequest(key).value(), node, RealClock().Wall(), kDay).value();
    EXPECT_TRUE(directory.Replace({authority.certificate(), issued.pem, key}).ok());
    return directory;
  }
  IdentityDirectory Join(const std::string& node) { return Join(authority_, node, node); }

  void Listen(const IdentityDirectory& directory) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", ListenCredentials(directory, ClientCertificate::kRequired), &port);
    builder.RegisterService(&witness_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  grpc::Status Ask(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::WhenRenewedResponse response;
    return v1::Witness::NewStub(grpc::CreateChannel(address_, credentials))
        ->WhenRenewed(&context, v1::WhenRenewedRequest(), &response);
  }

  Folder folder_;
  const Authority authority_;
  FakeWitness witness_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(CredentialsTest, NodesKnowEachOther) {
  Listen(Join("n1"));
  const grpc::Status status = Ask(PeerChannelCredentials(Join("n0"), "n1").value());
  EXPECT_EQ(status.error_code(), grpc::ABORTED) << status.error_message();
  EXPECT_EQ(status.error_message(), "n0");
}

TEST_F(CredentialsTest, AnyNodeWillDoWhereNoneIsNamedAndOnlyANode) {
  Listen(Join("n1"));
  EXPECT_EQ(Ask(PeerChannelCredentials(Join("n0")).value()).error_code(), grpc::ABORTED);
  server_->Shutdown();
  // The same authority has issued the server's certificate, but it is not a node's certificate.
  const IdentityDirectory server(folder_.path + "/server");
  const std::string key = NewPrivateKey().value();
  const auto issued = authority_.IssueServer(NewRequest(key).value(), {"127.0.0.1"}, RealClock().Wall(), kDay).value();
  ASSERT_TRUE(server.Replace({authority_.certificate(), issued.pem, key}).ok());
  Listen(server);
  EXPECT_EQ(Ask(PeerChannelCredentials(Join("n0")).value()).error_code(), grpc::UNAVAILABLE);
}

TEST_F(CredentialsTest, AnotherNodeAtTheAddressIsNotTakenForTheOneMeant) {
  Listen(Join("n1"));
  EXPECT_EQ(Ask(PeerChannelCredentials(Join("n0"), "n2").value()).error_code(), grpc::UNAVAILABLE);
}

TEST_F(CredentialsTest, NobodyElseIsLetIn) {
  Listen(Join("n1"));
  Folder elsewhere;
  const Authority other = Authority::Open(elsewhere.path, RealClock().Wall()).value();
  EXPECT_EQ(Ask(PeerChannelCredentials(Join(other, "n0", "other"), "n1").value()).error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(Ask(AuthorityChannelCredentials(authority_.certificate())).error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(Ask(grpc::InsecureChannelCredentials()).error_code(), grpc::UNAVAILABLE);
}

TEST_F(CredentialsTest, TheServerShowsItsAuthorityAndNoOther) {
  Listen(Join("n1"));
  EXPECT_EQ(PresentedCertificates(address_, kLimit)->size(), 2u);
  EXPECT_EQ(PresentedAuthority(address_, authority_.digest(), kLimit).value(), authority_.certificate());
  EXPECT_EQ(PresentedAuthority(address_, std::string(64, '0'), kLimit).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(CredentialsTest, AServerWithoutTlsIsToldFromNone) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&witness_);
  server_ = builder.BuildAndStart();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  EXPECT_EQ(PresentedCertificates(address, kLimit).status().code(), absl::StatusCode::kFailedPrecondition);
  server_->Shutdown();
  server_.reset();
  EXPECT_EQ(PresentedCertificates(address, kLimit).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(PresentedCertificates("nonsense", kLimit).status().code(), absl::StatusCode::kInvalidArgument);
}

// The server watches its files. If they are replaced, a client that connects later must see the new certificate, without a
// restart.
TEST_F(CredentialsTest, AServerFollowsItsFiles) {
  const IdentityDirectory directory = Join("n1");
  Listen(directory);
  const std::string first = PresentedCertificates(address_, kLimit)->front();
  Join("n1");
  while (PresentedCertificates(address_, kLimit)->front() == first) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(ReadCertificate(PresentedCertificates(address_, kLimit)->front())->serial,
            ReadCertificate(directory.Read()->certificate)->serial);
}

}  // namespace
}  // namespace lynx
