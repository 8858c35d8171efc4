// Tests nodes that join, people with roles, and the record of their calls. The calls use TLS, and the server is in this
// process.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

#include "common/version.h"
#include "security/authority.h"
#include "security/node_identity.h"
#include "security/secret.h"
#include "tests/node/fake_standby.h"
#include "tests/server/access/access_fixture.h"

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using JoinTest = AccessTest;
using PeopleTest = AccessTest;
using AuditTest = AccessTest;
using ForgottenTest = AccessTest;

// Connects as the worker daemon of `node`, and waits until the stream ends, at the latest at the deadline. Returns the status
// of the stream.
grpc::Status Report(const std::shared_ptr<grpc::Channel>& channel, const std::string& node,
                    const std::function<void()>& accepted = nullptr) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto stub = v1::Cluster::NewStub(channel);
  const auto stream = stub->AttachWorker(&context);
  v1::WorkerReport report;
  report.set_node(node);
  report.set_boot_id("boot");
  report.set_version(kVersion);
  report.set_address("127.0.0.1");
  v1::WorkerDesired desired;
  bool first = true;
  while (stream->Write(report) && (!first || stream->Read(&desired))) {
    if (first && accepted != nullptr) accepted();
    first = false;
  }
  stream->WritesDone();
  while (stream->Read(&desired)) continue;
  return stream->Finish();
}

TEST_F(JoinTest, ATokenIsForOneNodeOnce) {
  StartServer();
  const std::string secret = MakeJoinSecret();
  ASSERT_TRUE(Join(secret, "n0", "n0").ok());
  const grpc::Status again = Join(secret, "n1", "n1");
  EXPECT_EQ(again.error_code(), grpc::UNAUTHENTICATED);
  EXPECT_THAT(again.error_message(), HasSubstr("has been used"));
  EXPECT_EQ(Join(std::string(64, '0'), "n1", "n1").error_code(), grpc::UNAUTHENTICATED);
  EXPECT_EQ(NodeOf(*ReadCertificate(IdentityIn("n0").Read()->certificate)), "n0");
}

TEST_F(JoinTest, ATokenThatIsNotUsedEnds) {
  StartServer();
  const std::string short_lived = MakeJoinSecret("", Nanos(3'600'000'000'000));
  const std::string forgotten = MakeJoinSecret("", Nanos(30 * kDay.value));
  clock_.Advance(Nanos(3'601'000'000'000));
  EXPECT_EQ(Join(short_lived, "n0", "n0").error_code(), grpc::UNAUTHENTICATED);
  v1::RevokeJoinTokensResponse response;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::RevokeJoinTokens, v1::RevokeJoinTokensRequest(), &response).ok());
  EXPECT_EQ(Join(forgotten, "n0", "n0").error_code(), grpc::UNAUTHENTICATED);
}

TEST_F(JoinTest, ATokenForOneNodeIsForNoOther) {
  StartServer();
  const std::string secret = MakeJoinSecret("n7");
  EXPECT_EQ(Join(secret, "n0", "n0").error_code(), grpc::PERMISSION_DENIED);
  EXPECT_TRUE(Join(secret, "n7", "n7").ok()) << "a wrong attempt does not use it up";
}

// A stranger with a token for any node must not be able to take the name of an existing node.
TEST_F(JoinTest, ANameThatIsTakenNeedsATokenForIt) {
  StartServer();
  ASSERT_TRUE(Join(MakeJoinSecret(), "n0", "old").ok());
  const grpc::Status taken = Join(MakeJoinSecret(), "n0", "stranger");
  EXPECT_EQ(taken.error_code(), grpc::ALREADY_EXISTS);
  EXPECT_THAT(taken.error_message(), HasSubstr("--node n0"));
  ASSERT_TRUE(Join(MakeJoinSecret("n0"), "n0", "new").ok());
  EXPECT_EQ(Report(NodeChannel("old"), "n0").error_code(), grpc::UNAUTHENTICATED) << "the old certificate has ended";
}

// If many nodes begin at the same time behind one address, they exceed the limit of calls. A node that is refused must try
// again later.
TEST_F(JoinTest, ANodeThatIsToldToComeLaterDoes) {
  StartServer();
  const std::string other = MakeJoinSecret(), early = MakeJoinSecret();
  v1::CreateJoinTokenResponse token;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::CreateJoinToken, v1::CreateJoinTokenRequest(), &token).ok());
  options_.limits.changes = {.per_second = 0.5, .burst = 1};
  StartServer();
  ASSERT_TRUE(Join(other, "n1", "n1").ok());
  EXPECT_EQ(Join(early, "n2", "n2").error_code(), grpc::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(WriteSecretFile(directory_ + "/token", token.token()).ok());
  const IdentityFlags flags{.directory = directory_ + "/n0", .join_token_file = directory_ + "/token"};
  const auto joined = NodeIdentity::Open(flags, "n0", *ServerAddresses::Parse(server_->address()), clock_);
  EXPECT_TRUE(joined.ok()) << joined.status();
}

// A node joins and renews its certificate at the server that leads, past an address without a server and past a standby.
TEST_F(JoinTest, ANodeFindsTheServerThatLeads) {
  StartServer();
  v1::CreateJoinTokenResponse token;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::CreateJoinToken, v1::CreateJoinTokenRequest(), &token).ok());
  ASSERT_TRUE(WriteSecretFile(directory_ + "/token", token.token()).ok());
  const IdentityDirectory keys(options_.data_directory + "/" + kTlsDirectory);
  FakeStandby standby(server_->address(), ListenCredentials(keys, ClientCertificate::kOptional));
  const IdentityFlags flags{.directory = directory_ + "/n0", .join_token_file = directory_ + "/token"};
  const auto servers = ServerAddresses::Parse("127.0.0.1:1," + standby.address() + "," + server_->address());
  {
    const auto joined = NodeIdentity::Open(flags, "n0", *servers, clock_);
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_EQ(standby.refused(), 1);
  }
  const std::string first = IdentityIn("n0").Read()->certificate;
  ShiftedClock late;
  late.Advance(Nanos(25 * kDay.value));
  auto node = NodeIdentity::Open(flags, "n0", *servers, late);
  ASSERT_TRUE(node.ok()) << node.status();
  while (IdentityIn("n0").Read()->certificate == first) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  node->reset();
  EXPECT_GE(standby.refused(), 2);
}

// If the leader refuses a token, the refusal is final. The error names the addresses at which no leader answered.
TEST_F(JoinTest, ANodeThatMayNotJoinIsToldByTheServerThatLeads) {
  StartServer();
  v1::CreateJoinTokenResponse token;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::CreateJoinToken, v1::CreateJoinTokenRequest(), &token).ok());
  v1::RevokeJoinTokensResponse revoked;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::RevokeJoinTokens, v1::RevokeJoinTokensRequest(), &revoked).ok());
  ASSERT_TRUE(WriteSecretFile(directory_ + "/token", token.token()).ok());
  const IdentityDirectory keys(options_.data_directory + "/" + kTlsDirectory);
  FakeStandby standby(server_->address(), ListenCredentials(keys, ClientCertificate::kOptional));
  const IdentityFlags flags{.directory = directory_ + "/n0", .join_token_file = directory_ + "/token"};
  const absl::Status forgotten =
      NodeIdentity::Open(flags, "n0", *ServerAddresses::Parse(standby.address() + "," + server_->address()), clock_).status();
  EXPECT_EQ(forgotten.code(), absl::StatusCode::kUnauthenticated) << forgotten;
  // All servers are of another cluster, or do not use TLS. Trying again would not help.
  FakeStandby plain;
  const absl::Status strange = NodeIdentity::Open(flags, "n0", *ServerAddresses::Parse(plain.address()), clock_).status();
  EXPECT_EQ(strange.code(), absl::StatusCode::kFailedPrecondition) << strange;
  EXPECT_THAT(std::string(strange.message()), HasSubstr("who answers at " + plain.address() + " does not speak TLS"));
}

TEST_F(JoinTest, ANodeReportsAsItselfOnly) {
  StartServer();
  ASSERT_TRUE(Join(MakeJoinSecret(), "n0", "n0").ok());
  const grpc::Status status = Report(NodeChannel("n0"), "n1");
  EXPECT_EQ(status.error_code(), grpc::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("node n0 reports as node n1"));
}

TEST_F(JoinTest, ADaemonOfAnotherReleaseIsRefusedAndToldWhatToUpgrade) {
  StartServer();
  ASSERT_TRUE(Join(MakeJoinSecret(), "n0", "n0").ok());
  const auto refusal = [](auto stream, auto report) {
    report.set_node("n0");
    report.set_boot_id("boot");
    report.set_version("99.1.0");
    stream->Write(report);
    return stream->Finish();
  };
  grpc::ClientContext worker, agent;
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(60);
  worker.set_deadline(deadline);
  agent.set_deadline(deadline);
  const auto stub = v1::Cluster::NewStub(NodeChannel("n0"));
  const grpc::Status statuses[] = {refusal(stub->AttachWorker(&worker), v1::WorkerReport()),
                                   refusal(stub->AttachAgent(&agent), v1::AgentReport())};
  for (const grpc::Status& status : statuses) {
    EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), HasSubstr(std::string(" 99.1.0 does not work with lynx-server ") + kVersion));
    EXPECT_THAT(status.error_message(), HasSubstr("upgrade lynx-server first"));
  }
}

TEST_F(JoinTest, ARevokedNodeIsOutAtOnceAndStaysOut) {
  StartServer();
  ASSERT_TRUE(Join(MakeJoinSecret(), "n0", "n0").ok());
  const grpc::Status status = Report(NodeChannel("n0"), "n0", [&] {
    v1::RevokeNodeRequest request;
    request.set_node("n0");
    v1::RevokeNodeResponse response;
    EXPECT_TRUE(Admin(admin_token_, &v1::Admin::Stub::RevokeNode, request, &response).ok());
    EXPECT_EQ(response.revoked(), 1);
    EXPECT_EQ(Admin(admin_token_, &v1::Admin::Stub::RevokeNode, request, &response).error_code(), grpc::NOT_FOUND);
  });
  EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED);
  EXPECT_EQ(Report(NodeChannel("n0"), "n0").error_code(), grpc::UNAUTHENTICATED);
  StartServer();
  EXPECT_EQ(Report(NodeChannel("n0"), "n0").error_code(), grpc::UNAUTHENTICATED) << "the store knows it, too";
}

// A stream must not outlive the certificate with which it was opened.
TEST_F(JoinTest, ACertificateCountsToItsEndAndNoLonger) {
  StartServer();
  ASSERT_TRUE(Join(MakeJoinSecret(), "n0", "n0").ok());
  const grpc::Status status = Report(NodeChannel("n0"), "n0", [&] { clock_.Advance(Nanos(30 * kDay.value)); });
  EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED);
}

TEST_F(JoinTest, ACertificateIsRenewedByTheOneBefore) {
  StartServer();
  ASSERT_TRUE(Join(MakeJoinSecret(), "n0", "n0").ok());
  const std::string first = IdentityIn("n0").Read()->certificate;
  for (int i = 0; i < 6; ++i) {
    const std::string key = NewPrivateKey().value();
    grpc::ClientContext context;
    Prepare(context, "");
    v1::RotateCertificateRequest request;
    request.set_request(NewRequest(key).value());
    v1::RotateCertificateResponse response;
    const grpc::Status status = v1::Admin::NewStub(NodeChannel("n0"))->RotateCertificate(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_NE(response.certificate(), first);
    EXPECT_EQ(NodeOf(*ReadCertificate(response.certificate())), "n0");
    ASSERT_TRUE(i > 0 || IdentityIn("before").Replace(IdentityIn("n0").Read().value()).ok());
    ASSERT_TRUE(IdentityIn("n0").Replace({authority_, response.certificate(), key}).ok());
    clock_.Advance(Nanos(1'000'000));
  }
  grpc::ClientContext context;
  Prepare(context, "");
  v1::RotateCertificateResponse response;
  EXPECT_EQ(v1::Admin::NewStub(NodeChannel("before"))
                ->RotateCertificate(&context, v1::RotateCertificateRequest(), &response)
                .error_code(),
            grpc::UNAUTHENTICATED)
      << "only the newest few of a node go on";
}

TEST_F(PeopleTest, ARevokedTokenIsRefusedAndStaysRefused) {
  StartServer();
  const std::string alice = AddUser("alice", v1::ROLE_VIEWER);
  v1::AddTokenRequest more;
  more.set_user("alice");
  v1::AddTokenResponse second;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::AddToken, more, &second).ok());
  v1::WhoAmIResponse who;
  ASSERT_TRUE(Admin(alice, &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).ok());
  EXPECT_EQ(who.name(), "alice");
  EXPECT_EQ(who.role(), v1::ROLE_VIEWER);
  v1::RevokeTokenRequest revoke;
  revoke.set_id(second.token_id());
  v1::RevokeTokenResponse revoked;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::RevokeToken, revoke, &revoked).ok());
  EXPECT_EQ(Admin(second.token(), &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).error_code(), grpc::UNAUTHENTICATED);
  EXPECT_TRUE(Admin(alice, &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).ok()) << "the other one goes on";
  v1::RevokeUserRequest user;
  user.set_name("alice");
  v1::RevokeUserResponse gone;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::RevokeUser, user, &gone).ok());
  StartServer();
  const grpc::Status refused = Admin(alice, &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who);
  EXPECT_EQ(refused.error_code(), grpc::UNAUTHENTICATED);
  EXPECT_THAT(refused.error_message(), HasSubstr("does not know this token"));
}

TEST_F(PeopleTest, ATokenEndsWithItsLife) {
  StartServer();
  v1::AddUserRequest request;
  request.set_name("bob");
  request.set_role(v1::ROLE_VIEWER);
  request.set_life_ns(kDay.value);
  v1::AddUserResponse made;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::AddUser, request, &made).ok());
  v1::WhoAmIResponse who;
  EXPECT_TRUE(Admin(made.token(), &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).ok());
  clock_.Advance(kDay);
  EXPECT_EQ(Admin(made.token(), &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).error_code(), grpc::UNAUTHENTICATED);
}

TEST_F(PeopleTest, TheLastAdminStays) {
  StartServer();
  v1::RevokeUserRequest request;
  request.set_name(kFirstAdmin);
  v1::RevokeUserResponse response;
  const grpc::Status status = Admin(admin_token_, &v1::Admin::Stub::RevokeUser, request, &response);
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("the last admin"));
  v1::ListUsersResponse users;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::ListUsers, v1::ListUsersRequest(), &users).ok());
  v1::RevokeTokenRequest token;
  token.set_id(users.users(0).tokens(0).id());
  v1::RevokeTokenResponse revoked;
  EXPECT_EQ(Admin(admin_token_, &v1::Admin::Stub::RevokeToken, token, &revoked).error_code(), grpc::FAILED_PRECONDITION);
  const std::string other = AddUser("other", v1::ROLE_ADMIN);
  EXPECT_TRUE(Admin(other, &v1::Admin::Stub::RevokeUser, request, &response).ok());
}

TEST_F(PeopleTest, BadRequestsNameTheField) {
  StartServer();
  const auto add = [&](const std::string& name, v1::Role role, int64_t life) {
    v1::AddUserRequest request;
    request.set_name(name);
    request.set_role(role);
    request.set_life_ns(life);
    v1::AddUserResponse response;
    return Admin(admin_token_, &v1::Admin::Stub::AddUser, request, &response);
  };
  EXPECT_THAT(add("a b", v1::ROLE_VIEWER, 0).error_message(), HasSubstr("name is \"a b\""));
  EXPECT_THAT(add("a", v1::ROLE_UNSPECIFIED, 0).error_message(), HasSubstr("role"));
  EXPECT_THAT(add("a", v1::ROLE_VIEWER, 5).error_message(), HasSubstr("life_ns is 5"));
  EXPECT_EQ(add(kFirstAdmin, v1::ROLE_VIEWER, 0).error_code(), grpc::ALREADY_EXISTS);
}

TEST_F(PeopleTest, TheFirstAdminsTokenIsMadeOnceAndAgainWhenAsked) {
  StartServer();
  const std::string first = admin_token_;
  StartServer();
  EXPECT_EQ(admin_token_, first);
  options_.new_admin = true;
  StartServer();
  EXPECT_NE(admin_token_, first);
  v1::WhoAmIResponse who;
  EXPECT_TRUE(Admin(admin_token_, &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).ok());
  EXPECT_TRUE(Admin(first, &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).ok());
}

TEST_F(PeopleTest, ATokenComesWithTheAddressThatOtherMachinesReach) {
  StartServer();
  const std::string here = server_->address();
  const std::string port = here.substr(here.rfind(':'));
  int users = 0;
  const auto told = [&](const std::string& listen, const std::vector<std::string>& names) {
    options_.listen = listen + port;
    options_.tls_names = names;
    StartServer();
    if (HasFatalFailure()) return std::string("no server");
    people_ = grpc::CreateChannel(here, AuthorityChannelCredentials(authority_));
    v1::AddUserRequest request;
    request.set_name("user" + std::to_string(++users));
    request.set_role(v1::ROLE_VIEWER);
    v1::AddUserResponse added;
    EXPECT_TRUE(Admin(admin_token_, &v1::Admin::Stub::AddUser, request, &added).ok());
    v1::AddTokenRequest second;
    second.set_user(request.name());
    v1::AddTokenResponse token;
    EXPECT_TRUE(Admin(admin_token_, &v1::Admin::Stub::AddToken, second, &token).ok());
    EXPECT_EQ(added.server(), token.server());
    return added.server();
  };
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  EXPECT_EQ(told("127.0.0.1", {"lynx.example.org"}), "") << "no other machine does";
  EXPECT_EQ(told("0.0.0.0", {}), host + port);
  EXPECT_EQ(told("0.0.0.0", {"lynx.example.org", "other"}), "lynx.example.org" + port);
  EXPECT_EQ(told("0.0.0.0", {"2001:db8::1"}), "[2001:db8::1]" + port);
}

TEST_F(PeopleTest, PlainTextIsRefused) {
  StartServer();
  people_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  v1::WhoAmIResponse who;
  EXPECT_EQ(Admin(admin_token_, &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).error_code(), grpc::UNAVAILABLE);
}

TEST_F(PeopleTest, OtherAddressesThanLoopbackHaveTlsUnlessToldOtherwise) {
  options_.listen = "0.0.0.0:0";
  options_.tls = false;
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options_, clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string port = (*server)->address().substr((*server)->address().rfind(':'));
  people_ = grpc::CreateChannel("127.0.0.1" + port, grpc::InsecureChannelCredentials());
  v1::WhoAmIResponse who;
  EXPECT_EQ(Admin("", &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).error_code(), grpc::UNAVAILABLE);
  const ClientContext context = ReadContextFile(options_.data_directory + "/" + kAdminContextFile).value();
  EXPECT_EQ(context.server, "127.0.0.1" + port);
  people_ = grpc::CreateChannel(context.server, AuthorityChannelCredentials(context.authority));
  EXPECT_EQ(Admin("", &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).error_code(), grpc::UNAUTHENTICATED);
  server->reset();
  options_.tls = options_.insecure = true;
  EXPECT_THAT(std::string(Server::Start(options_, clock_).status().message()), HasSubstr("are opposites"));
  options_.tls = false;
  server = Server::Start(options_, clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string open = (*server)->address().substr((*server)->address().rfind(':'));
  people_ = grpc::CreateChannel("127.0.0.1" + open, grpc::InsecureChannelCredentials());
  EXPECT_TRUE(Admin("", &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).ok());
  EXPECT_EQ(who.name(), "local");
}

TEST_F(AuditTest, SaysWhoChangedWhat) {
  StartServer();
  const std::string alice = AddUser("alice", v1::ROLE_SUBMITTER);
  v1::SubmitJobResponse job;
  ASSERT_TRUE(Submit(alice, "key", &job).ok());
  EXPECT_EQ(Submit(alice, "", &job).error_code(), grpc::INVALID_ARGUMENT);
  v1::SubmitJobResponse again;
  ASSERT_TRUE(Submit(alice, "key", &again).ok());
  grpc::ClientContext context;
  Prepare(context, alice);
  v1::CancelJobRequest cancel;
  cancel.set_job_id("gpt");
  v1::CancelJobResponse cancelled;
  ASSERT_TRUE(v1::Jobs::NewStub(people_)->CancelJob(&context, cancel, &cancelled).ok());
  std::vector<std::string> lines;
  const v1::ListAuditResponse audit = Audit();
  for (const v1::AuditRecord& record : audit.records()) {
    EXPECT_GT(record.time_unix_ns(), 0);
    lines.push_back(record.who() + "@" + record.from() + " " + record.what() + " " + record.target() + " " + record.outcome());
  }
  const std::string id = job.job().id();
  EXPECT_THAT(lines, ElementsAre("alice@127.0.0.1 Jobs.CancelJob " + id + " OK", "alice@127.0.0.1 Jobs.SubmitJob " + id + " OK",
                                 "alice@127.0.0.1 Jobs.SubmitJob " + id + " OK", "admin@127.0.0.1 Admin.AddUser alice OK",
                                 "lynx-server@ start admin OK"));
  StartServer();
  EXPECT_EQ(Audit().records_size(), 5) << "it outlives the server";
  EXPECT_EQ(Audit(false, 2).records_size(), 2);
}

TEST_F(AuditTest, RefusedCallsAreRecordedAndTooManyAreCounted) {
  StartServer();
  const std::string alice = AddUser("alice", v1::ROLE_VIEWER);
  v1::SubmitJobResponse job;
  EXPECT_EQ(Submit(alice, "key", &job).error_code(), grpc::PERMISSION_DENIED);
  v1::ListAuditResponse refused = Audit(/*refused_only=*/true);
  ASSERT_EQ(refused.records_size(), 1);
  EXPECT_EQ(refused.records(0).who(), "alice");
  EXPECT_EQ(refused.records(0).outcome(), "PERMISSION_DENIED");
  EXPECT_THAT(refused.records(0).detail(), HasSubstr("alice is a viewer"));
  const int before = 300;
  for (int i = 0; i < before; ++i) EXPECT_EQ(Submit("", "key", &job).error_code(), grpc::UNAUTHENTICATED);
  clock_.Advance(Nanos(10'000'000'000));
  EXPECT_EQ(Submit("", "key", &job).error_code(), grpc::UNAUTHENTICATED);
  refused = Audit(/*refused_only=*/true, 1000);
  EXPECT_LT(refused.records_size(), before);
  EXPECT_THAT(refused.records(0).detail(), HasSubstr("refusals before it were not recorded"));
}

TEST_F(AuditTest, SecretsAreNowhere) {
  StartServer();
  const std::string alice = AddUser("alice", v1::ROLE_VIEWER);
  const std::string unused = MakeJoinSecret();
  const std::string used = MakeJoinSecret();
  ASSERT_TRUE(Join(used, "n0", "n0").ok());
  EXPECT_EQ(Join(used, "n1", "n1").error_code(), grpc::UNAUTHENTICATED);
  v1::RevokeTokenRequest mistaken;
  mistaken.set_id(alice);
  v1::RevokeTokenResponse revoked;
  EXPECT_EQ(Admin(admin_token_, &v1::Admin::Stub::RevokeToken, mistaken, &revoked).error_code(), grpc::NOT_FOUND);
  Audit();
  for (const char* file : {"/lynx.db", "/lynx.db-wal"}) {
    std::ifstream in(options_.data_directory + file, std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    ASSERT_FALSE(bytes.str().empty() && std::string(file) == "/lynx.db-wal");
    for (const std::string& secret : {alice, unused, used, admin_token_})
      EXPECT_THAT(bytes.str(), Not(HasSubstr(secret))) << file;
  }
}

TEST_F(AuditTest, WithoutTlsEverybodyIsLocal) {
  options_.tls = false;
  StartServer();
  v1::SubmitJobResponse job;
  ASSERT_TRUE(Submit("", "key", &job).ok());
  const v1::ListAuditResponse records = Audit();
  ASSERT_EQ(records.records_size(), 1);
  EXPECT_EQ(records.records(0).who(), "local");
  v1::AddUserRequest request;
  v1::AddUserResponse response;
  const grpc::Status status = Admin("", &v1::Admin::Stub::AddUser, request, &response);
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("--tls"));
}

// When the server starts, two thirds of the lifetime of the authority's certificate are over.
class RenewedAuthorityTest : public AccessTest {
 protected:
  RenewedAuthorityTest() {
    const Nanos then = clock_.Wall() - Nanos(Authority::kLife.value / 10 * 8);
    old_ = Authority::Open(options_.data_directory + "/" + kTlsDirectory, then)->certificate();
  }
  std::string New() {
    v1::WhoAmIResponse who;
    EXPECT_TRUE(Admin(admin_token_, &v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest(), &who).ok());
    return who.authority();
  }
  std::string old_;
};

TEST_F(RenewedAuthorityTest, TheServerRenewsItAndThoseWhoTrustEitherReachIt) {
  StartServer();
  const std::string renewed = authority_;
  EXPECT_EQ(SuccessorOf(old_, renewed), renewed) << "new contexts have the new one";
  EXPECT_EQ(New(), renewed);
  people_ = grpc::CreateChannel(server_->address(), AuthorityChannelCredentials(old_));
  EXPECT_EQ(New(), renewed) << "and old contexts are told it";
  StartServer();
  EXPECT_EQ(New(), renewed) << "it is renewed once";
}

TEST_F(RenewedAuthorityTest, AJoinTokenOfBeforeIsGood) {
  StartServer();
  const std::string text = JoinTokenText({MakeJoinSecret(), CertificateDigest(old_).value()});
  ASSERT_TRUE(WriteSecretFile(directory_ + "/token", text).ok());
  const IdentityFlags flags{.directory = directory_ + "/n0", .join_token_file = directory_ + "/token"};
  const auto joined = NodeIdentity::Open(flags, "n0", *ServerAddresses::Parse(server_->address()), clock_);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(Report(NodeChannel("n0"), "n1").error_code(), grpc::PERMISSION_DENIED) << "the server knows it";
}

TEST_F(RenewedAuthorityTest, ANodeGetsItWithItsNextCertificate) {
  StartServer();
  ASSERT_TRUE(Join(MakeJoinSecret(), "n0", "n0").ok());
  Identity identity = IdentityIn("n0").Read().value();
  identity.authority = old_;
  ASSERT_TRUE(IdentityIn("n0").Replace(identity).ok());
  // By this clock the node's certificate must be renewed. By the server's clock it is new.
  ShiftedClock late;
  late.Advance(Nanos(25 * kDay.value));
  auto node = NodeIdentity::Open({.directory = directory_ + "/n0"}, "n0", *ServerAddresses::Parse(server_->address()), late);
  ASSERT_TRUE(node.ok()) << node.status();
  while (IdentityIn("n0").ReadAuthority().value() == old_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  node->reset();  // otherwise it renews its certificate again and again, because of its clock
  EXPECT_EQ(IdentityIn("n0").ReadAuthority().value(), authority_);
  EXPECT_EQ(Report(NodeChannel("n0"), "n1").error_code(), grpc::PERMISSION_DENIED) << "the server knows it";
}

// The server's own certificate is valid for two seconds, so the renewing thread reads the clock every second.
TEST_F(RenewedAuthorityTest, ARunningServerRenewsItToo) {
  const std::string path = directory_ + "/tls";
  const auto tls = ServerTls::Open(path, {"localhost"}, {Nanos(2'000'000'000), Nanos(90 * kDay.value)}, clock_);
  ASSERT_TRUE(tls.ok()) << tls.status();
  const std::string first = (*tls)->authority()->certificate();
  EXPECT_EQ(CertificatesIn(IdentityDirectory(path).Read()->certificate).size(), 2u);
  clock_.Advance(Nanos(61 * kDay.value));
  const auto presented = [&] { return CertificatesIn(IdentityDirectory(path).Read()->certificate); };
  while (presented().size() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string second = (*tls)->authority()->certificate();
  EXPECT_EQ(SuccessorOf(first, second), second);
  EXPECT_THAT(presented(), ElementsAre(testing::_, second, first));
  EXPECT_EQ(IdentityDirectory(path).ReadAuthority().value(), second + first);
}

// The wall clock was turned back. So each job that ends now seems to have ended before all others, and is forgotten first.
TEST_F(ForgottenTest, AWatchOfAJobThatIsForgottenAsItEndsEndsToo) {
  options_.tls = false;
  options_.core.controller.kept_jobs = 1;
  StartServer();
  const auto cancel = [&](const std::string& id) {
    grpc::ClientContext context;
    Prepare(context, "");
    v1::CancelJobRequest request;
    request.set_job_id(id);
    v1::CancelJobResponse response;
    return v1::Jobs::NewStub(people_)->CancelJob(&context, request, &response);
  };
  v1::SubmitJobResponse kept, forgotten;
  ASSERT_TRUE(Submit("", "first", &kept).ok());
  ASSERT_TRUE(cancel(kept.job().id()).ok());
  ASSERT_TRUE(Submit("", "second", &forgotten).ok());
  clock_.TurnBack(kDay);
  grpc::ClientContext context;
  Prepare(context, "");
  v1::WatchJobRequest request;
  request.set_job_id(forgotten.job().id());
  const auto reader = v1::Jobs::NewStub(people_)->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(reader->Read(&response));
  cancel(forgotten.job().id());
  while (reader->Read(&response)) continue;
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("--keep-jobs"));
}

}  // namespace
}  // namespace lynx::server
