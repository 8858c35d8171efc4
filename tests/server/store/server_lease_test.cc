// Tests the lease by which one of several servers leads, on a real PostgreSQL.
#include "server/store/server_lease.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "server/store/lease_watch.h"
#include "server/store/postgres_engine.h"
#include "server/store/store_address.h"
#include "tests/server/store/postgres_cluster.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A lease that its holder takes but never renews, as if the holder was stopped right after it took the lease.
constexpr LeaseTimes kStopped{.life = milliseconds(300), .renew = milliseconds(3'600'000), .margin = milliseconds(100)};
// A lease that does not end during a test, however slow the machine is.
constexpr LeaseTimes kLong{.life = milliseconds(600'000), .renew = milliseconds(10), .margin = milliseconds(500)};

class ServerLeaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LYNX_SKIP_WITHOUT_POSTGRES();
    cluster_ = PostgresCluster::Get();
    url_ = cluster_->NewDatabase();
  }
  struct Opened {
    std::shared_ptr<Leadership> leadership = std::make_shared<Leadership>();
    std::unique_ptr<Store> store;
    absl::Status status;
  };
  Opened Open(const std::string& address, const LeaseTimes& times, bool wait = false) {
    Opened opened;
    absl::StatusOr<std::unique_ptr<Store>> store =
        OpenStore(url_, "", {.identity = NewIdentity(address), .leadership = opened.leadership, .times = times, .wait = wait});
    opened.status = store.status();
    if (store.ok()) opened.store = *std::move(store);
    return opened;
  }
  static std::vector<Effect> Submission(int64_t n) { return {InsertJob{MakeJob(n)}}; }
  int64_t Renewals() { return cluster_->Query(url_, "SELECT renewals FROM lynx_lease"); }
  void AwaitRenewals(int64_t more) {
    const int64_t before = Renewals();
    while (Renewals() < before + more) std::this_thread::sleep_for(milliseconds(5));
  }
  LeaseWatch Watch(const std::string& address = "", const LeaseTimes& times = {}) {
    return LeaseWatch(url_, NewIdentity(address), times);
  }

  PostgresCluster* cluster_ = nullptr;
  std::string url_;
};

TEST_F(ServerLeaseTest, OneOfTwoLeadsAndTheOtherIsToldWhich) {
  const Opened first = Open("a:7470", kLong);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_TRUE(first.leadership->Leads());
  const Opened second = Open("b:7470", kLong);
  EXPECT_TRUE(IsHeldByAnother(second.status)) << second.status;
  EXPECT_FALSE(second.leadership->Leads());
  LeaseWatch watch = Watch("b:7470", kLong);
  const absl::StatusOr<LeaseWatch::View> view = watch.Look();
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_FALSE(view->free);
  EXPECT_EQ(view->leader, "a:7470");
  EXPECT_EQ(view->epoch, first.store->lease()->epoch());
}

TEST_F(ServerLeaseTest, AnotherErrorIsNotTakenForAnotherServer) {
  EXPECT_FALSE(IsHeldByAnother(OpenStore("postgresql:///db?host=/nowhere", "").status()));
  EXPECT_FALSE(IsHeldByAnother(absl::OkStatus()));
}

TEST_F(ServerLeaseTest, TheHolderRenewsItWithoutTheStoresConnection) {
  const Opened leader = Open("a:7470", kLong);
  std::unique_ptr<PostgresConnection> other = cluster_->Connect(url_);
  ASSERT_TRUE(other->Execute("BEGIN; UPDATE lynx_store SET epoch=epoch").ok());
  absl::Status written;
  std::thread writer([&] { written = leader.store->Commit(Submission(1)); });  // waits for the other transaction
  while (cluster_->Query(url_, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) continue;
  AwaitRenewals(3);
  EXPECT_TRUE(leader.leadership->Leads());
  other.reset();
  writer.join();
  EXPECT_TRUE(written.ok()) << written;
}

TEST_F(ServerLeaseTest, AServerThatEndsGivesItBackAtOnce) {
  Opened first = Open("a:7470", kLong);
  first.store.reset();
  EXPECT_FALSE(first.leadership->Leads());
  const Opened second = Open("b:7470", kLong);
  EXPECT_TRUE(second.status.ok()) << second.status;
}

TEST_F(ServerLeaseTest, AStoppedHolderStopsLeadingBeforeAnotherServerCan) {
  Opened first = Open("a:7470", kStopped);
  ASSERT_TRUE(first.status.ok()) << first.status;
  while (true) {
    const Opened second = Open("b:7470", kLong);
    if (second.status.ok()) break;
    ASSERT_TRUE(IsHeldByAnother(second.status)) << second.status;
  }
  EXPECT_FALSE(first.leadership->Leads());
}

// The first server stops during a transaction, which has locked the row of the store. The second server ends this session, so
// it need not wait. Nothing that the transaction wrote may remain.
TEST_F(ServerLeaseTest, ATransactionOfAStoppedHolderBlocksNobody) {
  Opened first = Open("a:7470", kStopped);
  ASSERT_TRUE(first.store->Commit(Submission(1)).ok());
  Engine& engine = first.store->engine();
  ASSERT_TRUE(engine.Begin().ok());
  ASSERT_TRUE(
      engine.Run("INSERT INTO nodes VALUES(?)", {{.kind = ColumnKind::kText, .bytes = "late"}}, StatementUse::kOnce).ok());
  const Opened second = Open("b:7470", kLong, /*wait=*/true);
  ASSERT_TRUE(second.status.ok()) << second.status;
  EXPECT_GT(second.store->lease()->epoch(), first.store->lease()->epoch());
  EXPECT_EQ(second.store->LoadJobs()->size(), 1u);
  ASSERT_TRUE(second.store->Commit(Submission(2)).ok());
  const absl::Status late = engine.Commit();
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition) << late;
  EXPECT_EQ(first.store->Commit(Submission(3)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.store->LoadJobs()->size(), 2u);
  EXPECT_EQ(cluster_->Query(url_, "SELECT count(*) FROM nodes"), 0);
}

TEST_F(ServerLeaseTest, AHolderFindsOutThatItLostIt) {
  const Opened first = Open("a:7470", kLong);
  cluster_->Execute(url_, "UPDATE lynx_lease SET id='another', epoch=epoch+1");
  while (!first.store->lease()->lost()) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(first.leadership->Leads());
  EXPECT_EQ(first.store->CheckHeld().code(), absl::StatusCode::kFailedPrecondition);
}

// The database was away for longer than the lease lasts. No server took the lease, so the holder's knowledge of the store is
// still true.
TEST_F(ServerLeaseTest, AHolderMayRenewItLate) {
  constexpr LeaseTimes kShort{.life = milliseconds(400), .renew = milliseconds(50), .margin = milliseconds(100)};
  const Opened leader = Open("a:7470", kShort);
  ASSERT_TRUE(leader.store->Commit(Submission(1)).ok());
  cluster_->Crash();
  while (leader.leadership->Leads()) std::this_thread::sleep_for(milliseconds(5));
  cluster_->Start();
  while (!leader.leadership->Leads()) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(leader.store->lease()->lost());
  while (!leader.store->Commit(Submission(2)).ok()) continue;
  EXPECT_EQ(leader.store->LoadJobs()->size(), 2u);
}

TEST_F(ServerLeaseTest, TwoServersThatTakeItAtOnceDoNotBothHaveIt) {
  { ASSERT_TRUE(Open("a:7470", kLong).status.ok()); }
  std::vector<std::unique_ptr<PostgresConnection>> connections;
  constexpr int kServers = 6;
  for (int n = 0; n < kServers; ++n) connections.push_back(cluster_->Connect(url_));
  for (int round = 0; round < 20; ++round) {
    cluster_->Execute(url_, "UPDATE lynx_lease SET ends_ns=0");
    std::atomic<int> taken{0};
    std::vector<std::thread> servers;
    for (auto& connection : connections) {
      servers.emplace_back([&taken, &connection] {
        const absl::StatusOr<int64_t> epoch = TakeLease(*connection, NewIdentity("x:1"), kLong);
        if (epoch.ok() && *epoch > 0) ++taken;
      });
    }
    for (std::thread& server : servers) server.join();
    ASSERT_EQ(taken, 1);
  }
}

// The database user may have only one session, which the store uses. If the lease were taken before the connection that renews
// it exists, no server could lead until the lease ends.
TEST_F(ServerLeaseTest, ItIsNotTakenWithoutAConnectionThatRenewsIt) {
  const std::string database = cluster_->NewDatabase("OWNER guarded");
  const size_t at = database.find("lynx@");
  const std::string guarded =
      absl::StrCat(database.substr(0, at), "guarded:", PostgresCluster::kPassword, database.substr(at + 4));
  const auto open = [&] {
    return OpenStore(guarded, "", {.identity = NewIdentity("a:7470"), .leadership = nullptr, .times = kLong, .wait = false})
        .status();
  };
  cluster_->Execute(database, "ALTER ROLE guarded CONNECTION LIMIT 1");
  const absl::Status first = open();
  EXPECT_THAT(std::string(first.message()), HasSubstr("too many connections"));
  EXPECT_EQ(cluster_->Query(database, "SELECT count(*) FROM pg_tables WHERE tablename='lynx_lease'"), 0);
  cluster_->Execute(database, "ALTER ROLE guarded CONNECTION LIMIT -1");
  EXPECT_TRUE(open().ok());
  while (cluster_->Query(database, "SELECT count(*) FROM pg_stat_activity WHERE usename='guarded'") > 0) continue;
  cluster_->Execute(database, "ALTER ROLE guarded CONNECTION LIMIT 1");
  EXPECT_FALSE(open().ok());
  EXPECT_EQ(cluster_->Query(database, "SELECT epoch FROM lynx_lease"), 1) << "it was not taken a second time";
  EXPECT_EQ(cluster_->Query(database, "SELECT ends_ns FROM lynx_lease"), 0) << "it is free";
  cluster_->Execute(database, "ALTER ROLE guarded CONNECTION LIMIT -1");
  EXPECT_TRUE(open().ok());
}

// When the lease was renewed, the database's clock was an hour ahead. Since then the clock was corrected, and the holder has
// failed.
TEST_F(ServerLeaseTest, AClockThatWasPutBackKeepsNobodyOut) {
  Opened first = Open("a:7470", kStopped);
  cluster_->Execute(url_, "UPDATE lynx_lease SET ends_ns=ends_ns + 3600000000000");
  LeaseWatch watch = Watch("b:7470", kStopped);
  EXPECT_FALSE(watch.Look()->free);
  EXPECT_LE(cluster_->Query(url_,
                            "SELECT ((ends_ns - extract(epoch FROM clock_timestamp()) * 1000000000) / 1000000)::bigint "
                            "FROM lynx_lease"),
            kStopped.life.count());
  const Opened second = Open("b:7470", kStopped, /*wait=*/true);
  EXPECT_TRUE(second.status.ok()) << second.status;
}

TEST_F(ServerLeaseTest, AnEpochIsNeverUsedTwice) {
  std::vector<int64_t> epochs;
  for (int n = 0; n < 3; ++n) epochs.push_back(Open("a:7470", kLong).store->lease()->epoch());
  EXPECT_THAT(epochs, ElementsAre(1, 2, 3));
  EXPECT_EQ(cluster_->Query(url_, "SELECT epoch FROM lynx_store"), 3);
}

TEST_F(ServerLeaseTest, TheLeaderKnowsTheOthers) {
  const Opened leader = Open("", kLong);
  leader.store->lease()->SetAddress("b:7470");
  LeaseWatch watch = Watch("a:7470", kLong);
  ASSERT_TRUE(watch.Look().ok());
  std::vector<std::string> known;
  while (known.size() < 2) {
    known.clear();
    for (const KnownServer& server : leader.store->lease()->servers()) {
      known.push_back(absl::StrCat(server.server.address, server.leads ? " leads" : ""));
    }
  }
  EXPECT_THAT(known, ElementsAre("a:7470", "b:7470 leads"));
  EXPECT_EQ(watch.Look()->leader, "b:7470");
}

TEST_F(ServerLeaseTest, AWatchOutlivesTheDatabase) {
  const Opened leader = Open("a:7470", kLong);
  LeaseWatch watch = Watch("b:7470", kLong);
  ASSERT_TRUE(watch.Look().ok());
  cluster_->Crash();
  EXPECT_FALSE(watch.Look().ok());
  cluster_->Start();
  while (!watch.Look().ok()) continue;
  EXPECT_EQ(watch.Look()->leader, "a:7470");
}

TEST_F(ServerLeaseTest, AnEmptyDatabaseHasNoLeaderAndNothingThatIsShared) {
  LeaseWatch watch = Watch("a:7470");
  EXPECT_TRUE(watch.Look()->free);
  EXPECT_TRUE(watch.LoadShared()->empty());
}

TEST_F(ServerLeaseTest, WhatIsSharedIsReadByBoth) {
  const Opened leader = Open("a:7470", kLong);
  const std::map<std::string, std::string> values = {{"key", std::string("\0\xFFsecret", 8)}, {"other", "text"}};
  ASSERT_TRUE(leader.store->PutShared({{"key", "old"}}).ok());
  ASSERT_TRUE(leader.store->PutShared(values).ok());
  EXPECT_EQ(leader.store->LoadShared().value(), values);
  EXPECT_EQ(Watch().LoadShared().value(), values);
}

}  // namespace
}  // namespace lynx::server
