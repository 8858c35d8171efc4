// Tests that a context file gets the renewed certificate of the cluster's authority.
#include "cli/connect/authority_renewal.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>

#include "security/authority.h"
#include "security/certificate.h"
#include "security/context_file.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kDay{86'400'000'000'000};
constexpr Nanos kNow{1'800'000'000'000'000'000};

// An Admin service with only the method that tells callers who they are. The test sets its answer. It uses plain text, so no
// TLS is needed.
class FakeAdmin : public v1::Admin::Service {
 public:
  FakeAdmin() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeAdmin() override { server_->Shutdown(std::chrono::system_clock::now()); }
  grpc::Status WhoAmI(grpc::ServerContext*, const v1::WhoAmIRequest*, v1::WhoAmIResponse* response) override {
    ++calls;
    response->set_authority(authority);
    return status;
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  std::string authority;
  grpc::Status status;
  int calls = 0;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class AuthorityRenewalTest : public ::testing::Test {
 protected:
  AuthorityRenewalTest() {
    std::string pattern = ::testing::TempDir() + "lynx_context_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    const Authority old = Authority::Open(directory_ + "/tls", kNow, kDay * 300).value();
    old_ = old.certificate();
    new_ = old.Renew(directory_ + "/tls", kNow + kDay * 200, kDay * 300)->certificate();
    file_ = directory_ + "/alice.json";
    EXPECT_TRUE(WriteContextFile(file_, {.server = "lynx:7470", .authority = old_, .token = "secret"}).ok());
    admin_.authority = new_;
  }
  ~AuthorityRenewalTest() override { std::filesystem::remove_all(directory_); }
  std::string Renew(int days) {
    Client client({.address = admin_.address(), .source = "the test"}, Nanos(60'000'000'000));
    return RenewAuthority(client, file_, kNow + kDay * days);
  }
  std::string Kept() { return ReadContextFile(file_)->authority; }

  std::string directory_, file_, old_, new_;
  FakeAdmin admin_;
};

TEST_F(AuthorityRenewalTest, AFileGetsTheRenewedCertificateWhenTheOldOneIsDue) {
  EXPECT_EQ(Renew(190), "");
  EXPECT_EQ(admin_.calls, 0) << "nobody asks before that";
  EXPECT_EQ(Kept(), old_);
  EXPECT_THAT(Renew(201), HasSubstr(file_ + " has it now"));
  const ClientContext context = ReadContextFile(file_).value();
  EXPECT_EQ(context.authority, new_);
  EXPECT_EQ(context.server, "lynx:7470");
  EXPECT_EQ(context.token, "secret");
  EXPECT_EQ(Renew(202), "");
  EXPECT_EQ(admin_.calls, 1);
}

TEST_F(AuthorityRenewalTest, TheFileThatALinkNamesIsWrittenAndTheLinkStays) {
  std::string link = directory_ + "/context.json";
  std::filesystem::create_symlink(file_, link);
  std::swap(file_, link);
  EXPECT_NE(Renew(201), "");
  EXPECT_TRUE(std::filesystem::is_symlink(file_));
  EXPECT_EQ(ReadContextFile(link)->authority, new_);
}

TEST_F(AuthorityRenewalTest, AnAuthorityWithAnotherKeyIsNotTaken) {
  admin_.authority = Authority::Open(directory_ + "/other", kNow + kDay * 200)->certificate();
  EXPECT_EQ(Renew(201), "");
  EXPECT_EQ(Kept(), old_);
}

TEST_F(AuthorityRenewalTest, AServerThatDoesNotAnswerLeavesTheFileAlone) {
  admin_.status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "who?");
  EXPECT_EQ(Renew(201), "");
  EXPECT_EQ(Kept(), old_);
}

TEST_F(AuthorityRenewalTest, AFileThatCannotBeWrittenIsSaid) {
  std::filesystem::permissions(directory_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const std::string note = Renew(201);
  const bool written = Kept() == new_;  // root may write into every folder
  std::filesystem::permissions(directory_, std::filesystem::perms::owner_all);
  EXPECT_THAT(note, HasSubstr(written ? "has it now" : "cannot be written to " + file_));
}

TEST_F(AuthorityRenewalTest, AContextWithoutTlsHasNoAuthority) {
  ASSERT_TRUE(WriteContextFile(file_, {.server = "lynx:7470", .authority = "", .token = ""}).ok());
  EXPECT_EQ(Renew(201), "");
  EXPECT_EQ(admin_.calls, 0);
}

}  // namespace
}  // namespace lynx::cli
