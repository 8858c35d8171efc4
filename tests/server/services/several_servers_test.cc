// Runs several servers on one PostgreSQL database in this process. Tests which server leads, what the others answer, and what
// happens if the leader ends, pauses or loses its lease.
#include <grpcpp/grpcpp.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/standby.h"
#include "common/version.h"
#include "lynx/v1/admin.grpc.pb.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "node/file.h"
#include "planner/candidates/search.h"
#include "planner/search/make_plan.h"
#include "security/authority.h"
#include "security/context_file.h"
#include "security/credentials.h"
#include "server/server.h"
#include "server/store/store_address.h"
#include "tests/node/http_get.h"
#include "tests/server/access/access_fixture.h"
#include "tests/server/services/service_fixture.h"
#include "tests/server/store/postgres_cluster.h"

namespace lynx::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A signal cannot stop a single server of this process. So a leader that should seem stopped never renews its lease.
constexpr LeaseTimes kShort{
    .life = milliseconds(2'000), .renew = milliseconds(100), .margin = milliseconds(300), .look = milliseconds(20)};

struct Answer {
  grpc::Status status;
  std::map<std::string, std::string> trailing;
  v1::SubmitJobResponse submitted;
};

class SeveralServersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LYNX_SKIP_WITHOUT_POSTGRES();
    cluster_ = PostgresCluster::Get();
    url_ = cluster_->NewDatabase();
    std::string pattern = ::testing::TempDir() + "lynx_several_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    servers_.clear();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  ServerOptions OptionsOf(const std::string& name, const LeaseTimes& lease) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.data_directory = directory_ + "/" + name;
    options.store = url_;
    options.tls = tls_;
    options.metrics_address = "127.0.0.1:0";
    options.lease = lease;
    options.core.controller.wanted_shapes = WantedShapes;
    options.core.planner = MakePlan;
    options.core.loop.tick = Nanos(20'000'000);
    options.core.loop.retry = Nanos(50'000'000);
    options.certificate_life = certificate_life_;
    options.authority_life = authority_life_;
    options.ended = [this, name](ServerEnd why, const absl::Status& status) {
      const std::lock_guard lock(mutex_);
      ended_[name] = {why, status};
    };
    return options;
  }
  absl::Status TryStart(const std::string& name, const LeaseTimes& lease = kShort) {
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(OptionsOf(name, lease), clock_);
    if (server.ok()) servers_[name] = *std::move(server);
    return server.status();
  }
  Server& Start(const std::string& name, const LeaseTimes& lease = kShort) {
    const absl::Status started = TryStart(name, lease);
    EXPECT_TRUE(started.ok()) << started;
    LYNX_CHECK(started.ok());
    return *servers_[name];
  }
  std::optional<std::pair<ServerEnd, absl::Status>> EndOf(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = ended_.find(name);
    return found == ended_.end() ? std::nullopt : std::optional(found->second);
  }
  template <class Condition>
  static void Await(const Condition& condition) {
    while (!condition()) std::this_thread::sleep_for(milliseconds(5));
  }

  std::shared_ptr<grpc::Channel> ChannelTo(const Server& server) {
    if (!tls_) return grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
    return grpc::CreateChannel(server.address(), AuthorityChannelCredentials(context_.authority));
  }
  Answer Submit(const Server& server, const std::string& key) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (tls_) context.AddMetadata("authorization", "Bearer " + context_.token);
    v1::SubmitJobRequest request;
    *request.mutable_spec() = MakeSpec();
    request.set_idempotency_key(key);
    Answer answer;
    answer.status = v1::Jobs::NewStub(ChannelTo(server))->SubmitJob(&context, request, &answer.submitted);
    for (const auto& [name, value] : context.GetServerTrailingMetadata()) {
      answer.trailing[std::string(name.data(), name.size())] = std::string(value.data(), value.size());
    }
    return answer;
  }
  v1::ListServersResponse Listed(const Server& server) {
    grpc::ClientContext context;
    v1::ListServersResponse response;
    const grpc::Status status = v1::Admin::NewStub(ChannelTo(server))->ListServers(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  std::string Page(const Server& server, const std::string& path) {
    const std::string& address = server.metrics_address();
    return HttpGet(std::stoi(address.substr(address.rfind(':') + 1)), path);
  }
  void ReadContext(const std::string& name) {
    const absl::StatusOr<ClientContext> context = ReadContextFile(directory_ + "/" + name + "/" + kAdminContextFile);
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *context;
  }

  PostgresCluster* cluster_ = nullptr;
  std::string url_, directory_;
  bool tls_ = false;
  Nanos certificate_life_{30 * kDay.value}, authority_life_ = Authority::kLife;
  ClientContext context_;
  ShiftedClock clock_;
  std::mutex mutex_;
  std::map<std::string, std::pair<ServerEnd, absl::Status>> ended_;  // guarded by mutex_
  std::map<std::string, std::unique_ptr<Server>> servers_;
};

TEST_F(SeveralServersTest, AServerThatStandsByAnswersNothingAndNamesTheLeader) {
  const Server& leader = Start("a");
  const Server& standby = Start("b");
  EXPECT_TRUE(leader.leads());
  EXPECT_FALSE(standby.leads());
  const std::string text = absl::StrCat("this server stands by; the server at ", leader.address(), " leads");
  Await([&] { return Submit(standby, "k").status.error_message() == text; });
  Answer refused = Submit(standby, "k");
  EXPECT_EQ(refused.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(refused.trailing[kStandbyKey], kStandbyValue);
  EXPECT_EQ(refused.trailing[kLeaderKey], leader.address());
  EXPECT_EQ(cluster_->Query(url_, "SELECT count(*) FROM jobs"), 0);
  EXPECT_TRUE(Submit(leader, "k").status.ok());
  EXPECT_THAT(Page(standby, "/healthz"), HasSubstr("ok: " + text));
  EXPECT_THAT(Page(standby, "/readyz"), HasSubstr(text));
  EXPECT_THAT(Page(standby, "/readyz"), HasSubstr("503"));
  EXPECT_THAT(Page(standby, "/metrics"), HasSubstr("lynx_server_leading 0\n"));
  EXPECT_THAT(Page(standby, "/metrics"), HasSubstr("lynx_server_epoch 1\n"));
  EXPECT_THAT(Page(leader, "/readyz"), HasSubstr("ok\n"));
  EXPECT_THAT(Page(leader, "/metrics"), HasSubstr("lynx_server_leading 1\n"));
}

// Calls every method, including streams.
TEST_F(SeveralServersTest, EveryCallIsRefused) {
  Start("a");
  const Server& standby = Start("b");
  const std::shared_ptr<grpc::Channel> channel = ChannelTo(standby);
  const auto check = [](const grpc::Status& status, grpc::ClientContext& context) {
    EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
    EXPECT_EQ(context.GetServerTrailingMetadata().count(kStandbyKey), 1u);
  };
  {
    grpc::ClientContext context;
    v1::ListNodesResponse response;
    check(v1::Cluster::NewStub(channel)->ListNodes(&context, {}, &response), context);
  }
  {
    grpc::ClientContext context;
    v1::WhoAmIResponse response;
    check(v1::Admin::NewStub(channel)->WhoAmI(&context, {}, &response), context);
  }
  {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_job_id("x");
    check(v1::Jobs::NewStub(channel)->WatchJob(&context, request)->Finish(), context);
  }
  {
    grpc::ClientContext context;
    const auto stream = v1::Cluster::NewStub(channel)->AttachAgent(&context);
    check(stream->Finish(), context);
  }
}

TEST_F(SeveralServersTest, AnotherLeadsOnTheSamePortWhenTheLeaderEnds) {
  Start("a");
  Server& standby = Start("b");
  Start("c");
  const Answer first = Submit(*servers_["a"], "k");
  ASSERT_TRUE(first.status.ok());
  const std::string address = standby.address();
  servers_.erase("a");
  Await([&] { return servers_["b"]->leads() || servers_["c"]->leads(); });
  Server& leader = *servers_[servers_["b"]->leads() ? "b" : "c"];
  Server& other = *servers_[servers_["b"]->leads() ? "c" : "b"];
  Answer again;
  Await([&] { return (again = Submit(leader, "k")).status.ok(); });
  EXPECT_TRUE(again.submitted.existed());
  EXPECT_EQ(again.submitted.job().id(), first.submitted.job().id());
  EXPECT_EQ(standby.address(), address);
  Await([&] { return Submit(other, "k").trailing[kLeaderKey] == leader.address(); });
  EXPECT_FALSE(other.leads());
  EXPECT_EQ(cluster_->Query(url_, "SELECT count(*) FROM jobs"), 1);
}

TEST_F(SeveralServersTest, TheLeaderListsAllServers) {
  const Server& leader = Start("a");
  EXPECT_EQ(Listed(leader).servers(0).address(), leader.address()) << "at once, before it has entered itself";
  Start("b");
  v1::ListServersResponse listed;
  Await([&] { return (listed = Listed(*servers_["a"])).servers_size() == 2; });
  for (const v1::ListedServer& server : listed.servers()) {
    const bool leads = server.address() == leader.address();
    EXPECT_EQ(server.address(), servers_[leads ? "a" : "b"]->address());
    EXPECT_EQ(server.role(), leads ? v1::SERVER_ROLE_LEADS : v1::SERVER_ROLE_STANDS_BY);
    EXPECT_EQ(server.epoch(), leads ? 1 : 0);
    EXPECT_EQ(server.version(), kVersion);
    EXPECT_EQ(server.encrypt_ranks(), "off");
    EXPECT_EQ(server.process(), getpid());
    EXPECT_GE(server.seen_unix_ns(), server.since_unix_ns() - 60'000'000'000);
  }
  servers_.erase("a");
  Await([&] { return servers_["b"]->leads() && Submit(*servers_["b"], "k").status.ok(); });
  listed = Listed(*servers_["b"]);
  for (const v1::ListedServer& server : listed.servers()) {
    if (server.address() != servers_["b"]->address()) continue;
    EXPECT_EQ(server.role(), v1::SERVER_ROLE_LEADS);
    EXPECT_EQ(server.epoch(), 2);
  }
}

TEST_F(SeveralServersTest, AServerThatHasGoneIsSilent) {
  const Server& leader = Start("a");
  Start("b");
  const std::string gone = servers_["b"]->address();
  servers_.erase("b");
  cluster_->Execute(url_, absl::StrCat("UPDATE lynx_servers SET seen_ns=seen_ns-11000000000 WHERE address='", gone, "'"));
  const auto role = [&](const std::string& address) {
    const v1::ListServersResponse listed = Listed(leader);
    for (const v1::ListedServer& server : listed.servers()) {
      if (server.address() == address) return server.role();
    }
    return v1::SERVER_ROLE_UNSPECIFIED;
  };
  Await([&] { return role(gone) == v1::SERVER_ROLE_SILENT; });
  EXPECT_EQ(role(leader.address()), v1::SERVER_ROLE_LEADS);
}

// A server with another policy would change the promises of the cluster when it takes over. So it must refuse to stand by.
TEST_F(SeveralServersTest, AServerWithAnotherPolicyIsRefused) {
  const Server& leader = Start("a");
  ServerOptions options = OptionsOf("b", kShort);
  options.core.controller.encryption = RankEncryption::kOn;
  const absl::Status refused = Server::Start(options, clock_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("--encrypt-ranks is on here, and off on the server at ",
                                                                     leader.address(), " that leads")));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("start this one with --encrypt-ranks off"));
  EXPECT_TRUE(leader.leads());
  // No server leads now. Servers with the policy "off" were seen a moment ago, so one of them may take over: another policy is
  // still refused.
  servers_.erase("a");
  const absl::Status early = Server::Start(options, clock_).status();
  EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition) << early;
  EXPECT_THAT(std::string(early.message()), HasSubstr("and off on the servers that stand by"));
  cluster_->Execute(url_, "UPDATE lynx_servers SET seen_ns=seen_ns-11000000000");
  const auto changed = Server::Start(options, clock_);
  EXPECT_TRUE(changed.ok()) << "no other server is there, so the policy of the cluster is this one's: " << changed.status();
}

TEST_F(SeveralServersTest, AServerThatStandsByEndsWhenALeaderHasAnotherPolicy) {
  Start("a");
  Start("b");
  cluster_->Execute(url_, "UPDATE lynx_lease SET encryption='except-nccl'");
  Await([&] { return EndOf("b").has_value(); });
  EXPECT_EQ(EndOf("b")->first, ServerEnd::kStore);
  EXPECT_THAT(std::string(EndOf("b")->second.message()),
              HasSubstr("--encrypt-ranks is off here, and except-nccl on the server"));
}

// The leader never renews its lease, as if all its threads slept. When the threads continue, it no longer leads.
TEST_F(SeveralServersTest, ALeaderThatSleptWritesAndAnswersNothingMore) {
  LeaseTimes asleep = kShort;
  asleep.renew = milliseconds(3'600'000);
  const Server& old = Start("a", asleep);
  ASSERT_TRUE(Submit(old, "before").status.ok());
  const Server& next = Start("b");
  Await([&] { return next.leads(); });
  EXPECT_FALSE(old.leads());
  Answer refused = Submit(old, "after");
  EXPECT_EQ(refused.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(refused.trailing[kStandbyKey], kStandbyValue);
  Await([&] { return EndOf("a").has_value(); });
  EXPECT_EQ(EndOf("a")->first, ServerEnd::kLeaseLost);
  Await([&] { return Submit(next, "before").submitted.existed(); });
  EXPECT_TRUE(Submit(next, "after").status.ok());
  EXPECT_EQ(cluster_->Query(url_, "SELECT count(*) FROM jobs"), 2);
}

TEST_F(SeveralServersTest, ALeaderPausesWhileTheDatabaseIsAwayAndThenLeadsOn) {
  const Server& leader = Start("a");
  const Server& standby = Start("b");
  ASSERT_TRUE(Submit(leader, "k").status.ok());
  grpc::ClientContext context;
  const auto stream = v1::Cluster::NewStub(ChannelTo(leader))->AttachAgent(&context);
  cluster_->Crash();
  Await([&] { return !leader.leads(); });
  Answer refused = Submit(leader, "other");
  EXPECT_EQ(refused.trailing[kStandbyKey], kStandbyValue);
  EXPECT_EQ(refused.status.error_message(), "this server stands by; no server leads at present");
  EXPECT_EQ(stream->Finish().error_code(), grpc::UNAVAILABLE) << "a node must not wait here for a leader";
  cluster_->Start();
  Await([&] { return leader.leads() || standby.leads(); });
  const Server& now = leader.leads() ? leader : standby;
  Await([&] { return Submit(now, "other").status.ok(); });
  EXPECT_TRUE(Submit(now, "k").submitted.existed());
  EXPECT_EQ(cluster_->Query(url_, "SELECT count(*) FROM jobs"), 2);
}

TEST_F(SeveralServersTest, ALeaderThatIsAloneLeadsOn) {
  ServerOptions options = OptionsOf("a", kShort);
  options.max_pause = milliseconds(60'000);
  servers_["a"] = Server::Start(options, clock_).value();
  const Server& leader = *servers_["a"];
  ASSERT_TRUE(Submit(leader, "k").status.ok());
  for (int outage = 0; outage < 2; ++outage) {
    cluster_->Crash();
    Await([&] { return Submit(leader, "k").trailing[kStandbyKey] == kStandbyValue; });
    cluster_->Start();
    Await([&] { return Submit(leader, "k").submitted.existed(); });
    EXPECT_TRUE(leader.leads());
    EXPECT_TRUE(Submit(leader, absl::StrCat("after outage ", outage)).status.ok());
    grpc::ClientContext context;
    const auto stream = v1::Cluster::NewStub(ChannelTo(leader))->AttachAgent(&context);
    const v1::AgentReport hello;
    EXPECT_TRUE(stream->Write(hello)) << "streams are admitted again";
    context.TryCancel();
    EXPECT_NE(stream->Finish().error_code(), grpc::UNAVAILABLE);
  }
  EXPECT_FALSE(EndOf("a").has_value());
}

TEST_F(SeveralServersTest, ALeaderThatCannotRenewForLongEnds) {
  ServerOptions options = OptionsOf("a", kShort);
  options.max_pause = milliseconds(50);
  servers_["a"] = Server::Start(options, clock_).value();
  cluster_->Crash();
  Await([&] { return EndOf("a").has_value(); });
  EXPECT_EQ(EndOf("a")->first, ServerEnd::kLeaseLost);
  EXPECT_THAT(std::string(EndOf("a")->second.message()), HasSubstr("could not be renewed"));
  cluster_->Start();
}

// The process that holds the store has written no keys to it, like a server of an older version.
TEST_F(SeveralServersTest, AServerThatFindsNoKeysDoesNotWaitForEver) {
  const absl::StatusOr<std::unique_ptr<Store>> other = OpenStore(url_, "");
  ASSERT_TRUE(other.ok()) << other.status();
  ServerOptions options = OptionsOf("b", kShort);
  options.shared_wait = milliseconds(50);
  const absl::Status refused = Server::Start(options, clock_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("is in use by another lynx-server, which has not written there the keys"));
}

TEST_F(SeveralServersTest, ASecondServerOnTheDataDirectoryOfTheLeaderIsRefused) {
  const Server& leader = Start("a");
  const absl::Status refused = Server::Start(OptionsOf("a", kShort), clock_).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the data directory "));
  EXPECT_TRUE(leader.leads());
  EXPECT_EQ(cluster_->Query(url_, "SELECT epoch FROM lynx_lease"), 1) << "the lease was not touched";
}

// A transaction of another client locks a row of the store, so the leader's event loop waits for this transaction. Another
// thread still renews the lease meanwhile, so no other server could lead.
TEST_F(SeveralServersTest, ALeaderWhoseLoopIsStuckGivesItsLeaseUp) {
  ServerOptions options = OptionsOf("a", kShort);
  options.max_silence = Nanos(2'000'000'000);
  servers_["a"] = Server::Start(options, clock_).value();
  const Server& stuck = *servers_["a"];
  const Server& standby = Start("b");
  ASSERT_TRUE(Submit(stuck, "before").status.ok());
  std::unique_ptr<PostgresConnection> other = cluster_->Connect(url_);
  ASSERT_TRUE(other->Execute("BEGIN; UPDATE lynx_store SET epoch=epoch").ok());
  std::thread caller([&] { Submit(stuck, "stuck"); });
  Await([&] { return EndOf("a").has_value(); });
  EXPECT_EQ(EndOf("a")->first, ServerEnd::kLeaseLost);
  EXPECT_THAT(std::string(EndOf("a")->second.message()), HasSubstr("the event loop has not turned for"));
  EXPECT_THAT(std::string(EndOf("a")->second.message()), HasSubstr("so that another one can lead"));
  other.reset();
  servers_.erase("a");
  caller.join();
  Await([&] { return standby.leads() && Submit(standby, "before").submitted.existed(); });
}

// All servers begin on a database without tables. Each must lead or stand by.
TEST_F(SeveralServersTest, ServersThatBeginTogetherOnAnEmptyDatabaseAllRun) {
  for (int round = 0; round < 5; ++round) {
    url_ = cluster_->NewDatabase();
    std::vector<std::string> names;
    for (int n = 0; n < 4; ++n) names.push_back(absl::StrCat("r", round, "s", n));
    std::vector<absl::StatusOr<std::unique_ptr<Server>>> begun(names.size());
    std::vector<std::thread> starts;
    for (size_t n = 0; n < names.size(); ++n) {
      starts.emplace_back([&, n] { begun[n] = Server::Start(OptionsOf(names[n], kShort), clock_); });
    }
    for (std::thread& start : starts) start.join();
    for (size_t n = 0; n < names.size(); ++n) {
      ASSERT_TRUE(begun[n].ok()) << begun[n].status();
      EXPECT_FALSE(EndOf(names[n]).has_value()) << EndOf(names[n])->second;
    }
    const auto leads = [](const auto& server) { return (*server)->leads(); };
    Await([&] { return std::count_if(begun.begin(), begun.end(), leads) == 1; });
  }
}

// The database user of the store may not read one table, for example because another user has restored it.
TEST_F(SeveralServersTest, AServerThatCannotReadWhatIsSharedSaysWhatToDo) {
  const Server& leader = Start("a");
  cluster_->Execute(url_, "ALTER TABLE lynx_shared RENAME COLUMN value TO other");
  ServerOptions options = OptionsOf("b", kShort);
  options.shared_wait = milliseconds(50);
  const absl::Status refused = Server::Start(options, clock_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is led by another lynx-server, and this one cannot stand by"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\"value\" does not exist"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("; check --store, that PostgreSQL runs there"));
  EXPECT_TRUE(leader.leads());
}

TEST_F(SeveralServersTest, WhatKeepsAStandbyFromFollowingIsOnItsPage) {
  Start("a");
  const Server& standby = Start("b");
  Await([&] { return Page(standby, "/healthz").find("leads\n") != std::string::npos; });
  cluster_->Execute(url_, "ALTER TABLE lynx_shared RENAME COLUMN value TO other");
  Await([&] { return Page(standby, "/healthz").find("leads; it cannot take from the database") != std::string::npos; });
  EXPECT_THAT(Page(standby, "/readyz"), HasSubstr("what all servers share: "));
  EXPECT_THAT(Page(standby, "/healthz"), HasSubstr("200")) << "a new start would not mend it";
  cluster_->Execute(url_, "ALTER TABLE lynx_shared RENAME COLUMN other TO value");
  Await([&] { return Page(standby, "/healthz").find("leads\n") != std::string::npos; });
  cluster_->Execute(url_, "ALTER TABLE lynx_servers RENAME TO away");
  Await([&] { return Page(standby, "/healthz").find("it cannot see who leads on the database") != std::string::npos; });
}

// A server that cannot read the shared keys must not take the lease: it would end, and other servers could not lead meanwhile.
TEST_F(SeveralServersTest, AServerThatCannotFollowLeavesTheLeaseUntilItCan) {
  Start("a");
  const Server& standby = Start("b");
  cluster_->Execute(url_, "ALTER TABLE lynx_shared RENAME COLUMN value TO other");
  Await([&] { return Page(standby, "/healthz").find("cannot take from the database") != std::string::npos; });
  servers_.erase("a");
  Await([&] { return Page(standby, "/healthz").find("no server leads") != std::string::npos; });
  const std::string free = "SELECT epoch FROM lynx_lease";
  const auto epoch = cluster_->Query(url_, free);
  std::this_thread::sleep_for(2 * kShort.life);
  EXPECT_EQ(cluster_->Query(url_, free), epoch) << "the lease was taken";
  EXPECT_FALSE(EndOf("b").has_value());
  cluster_->Execute(url_, "ALTER TABLE lynx_shared RENAME COLUMN other TO value");
  Await([&] { return standby.leads(); });
}

// As during an upgrade, a server of a newer version has led and has changed the schema.
TEST_F(SeveralServersTest, AServerThatDoesNotKnowTheSchemaDoesNotLeadAndSaysWhy) {
  Start("a");
  const Server& standby = Start("b");
  const int64_t schema = cluster_->Query(url_, "SELECT schema_version FROM lynx_store");
  cluster_->Execute(url_, "UPDATE lynx_store SET schema_version=1000");
  servers_.erase("a");
  Await([&] { return Page(standby, "/readyz").find("it cannot take over: ") != std::string::npos; });
  EXPECT_FALSE(standby.leads());
  EXPECT_FALSE(EndOf("b").has_value());
  EXPECT_LE(cluster_->Query(url_, "SELECT ends_ns FROM lynx_lease"), 0) << "a newer server may lead at once";
  cluster_->Execute(url_, absl::StrCat("UPDATE lynx_store SET schema_version=", schema));
  Await([&] { return standby.leads() && Submit(standby, "k").status.ok(); });
}

TEST(AdvertisedAddress, IsTheFlagOrTheFirstNameOrWhereTheServerListens) {
  ServerOptions options;
  const ListenAddress here{.host = "10.0.0.1", .port = 7470}, six{.host = "fd00::1", .port = 7470, .ipv6 = true};
  const ListenAddress everywhere{.host = "0.0.0.0", .port = 7470};
  EXPECT_EQ(AdvertisedAt(options, here, 7470), "10.0.0.1:7470");
  EXPECT_EQ(AdvertisedAt(options, six, 7470), "[fd00::1]:7470");
  EXPECT_EQ(AdvertisedAt(options, everywhere, 7470), NamesOf("0.0.0.0").back() + ":7470");
  options.tls_names = {"lynx.example", "other"};
  EXPECT_EQ(AdvertisedAt(options, everywhere, 7470), "lynx.example:7470");
  options.advertise = "a.example:17470";
  EXPECT_EQ(AdvertisedAt(options, everywhere, 7470), "a.example:17470");
}

class SeveralTlsServersTest : public SeveralServersTest {
 protected:
  SeveralTlsServersTest() { tls_ = true; }
};

TEST_F(SeveralTlsServersTest, OneContextIsGoodForAllAndNamesAll) {
  Start("a");
  ReadContext("a");
  const Server& standby = Start("b");
  EXPECT_EQ(Submit(standby, "k").trailing[kStandbyKey], kStandbyValue) << "its certificate is the same authority's";
  ASSERT_TRUE(Submit(*servers_["a"], "k").status.ok());
  const std::string both = absl::StrCat(servers_["a"]->address(), ",", standby.address());
  const auto server_of_new_user = [&](const Server& server, const std::string& name) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + context_.token);
    v1::AddUserRequest request;
    request.set_name(name);
    request.set_role(v1::ROLE_VIEWER);
    v1::AddUserResponse response;
    const grpc::Status status = v1::Admin::NewStub(ChannelTo(server))->AddUser(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.server();
  };
  int n = 0;
  Await([&] { return server_of_new_user(*servers_["a"], absl::StrCat("user", ++n)) == both; });
  servers_.erase("a");
  Await([&] { return standby.leads() && Submit(standby, "k").submitted.existed(); });
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/b/" + kAdminContextFile)) << "there is an admin already";
}

TEST_F(SeveralTlsServersTest, AServerWithAnotherAuthorityIsRefused) {
  Start("a");
  ASSERT_TRUE(Authority::Open(directory_ + "/b/tls", clock_.Wall()).ok());
  const absl::Status refused = TryStart("b");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("/b/tls/ca.key is another key than the one that the database "));
  servers_.erase("a");
  EXPECT_THAT(std::string(TryStart("b").message()), HasSubstr("/b/tls/ca.key is another key")) << "also when it would lead";
}

// The servers' certificates are valid for two seconds, so they read the clock every second. Only the leader renews the
// authority's certificate. In the end both servers must have the same one.
TEST_F(SeveralTlsServersTest, ARenewedAuthorityReachesTheOthers) {
  certificate_life_ = Nanos(2'000'000'000);
  authority_life_ = Nanos(90 * kDay.value);
  Start("a");
  Start("b");
  const auto chain = [&](const std::string& name) { return ReadFile(directory_ + "/" + name + "/tls/ca.pem").value(); };
  const std::string before = chain("a");
  EXPECT_EQ(chain("b"), before);
  clock_.Advance(Nanos(61 * kDay.value));
  Await([&] { return chain("a") != before && chain("b") == chain("a"); });
  EXPECT_EQ(cluster_->Query(url_, absl::StrCat("SELECT count(*) FROM lynx_shared WHERE name='authority.pem' AND "
                                               "convert_from(value, 'UTF8')='",
                                               chain("a"), "'")),
            1);
}

}  // namespace
}  // namespace lynx::server
