// Tests features that only a store on PostgreSQL has: the lock, lost connections, and passwords. store_test.cc tests everything
// else.
#include "server/store/postgres_engine.h"

#include <unistd.h>

#include <array>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/server/store/postgres_cluster.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

// The lease of a server that is stopped right after it has taken the lease.
constexpr LeaseTimes kNeverRenewed{.life = milliseconds(200), .renew = milliseconds(3'600'000), .margin = milliseconds(50)};

std::string Said(const absl::Status& status) { return std::string(status.message()); }

class PostgresEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LYNX_SKIP_WITHOUT_POSTGRES();
    cluster_ = PostgresCluster::Get();
    url_ = cluster_->NewDatabase();
  }
  std::unique_ptr<Store> Open(const PostgresLimits& limits = {}, const LeaseTimes& times = {}) {
    absl::StatusOr<std::unique_ptr<Store>> store =
        Store::Open(std::make_unique<PostgresEngine>(url_, limits, LeaseClaim{.times = times}));
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static size_t Jobs(Store& store) { return store.LoadJobs().value().size(); }
  int64_t AuditRecords() { return cluster_->Query(url_, "SELECT count(*) FROM audit"); }

  // From now on, each session that commits a new job runs `first`, and then ends itself during the COMMIT, before anything is
  // durable.
  void EndSessionsAtCommit(const std::string& first = "") {
    cluster_->Execute(url_, absl::StrCat("CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ", first,
                                         " PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NULL; "
                                         "END $$; CREATE CONSTRAINT TRIGGER die AFTER INSERT ON jobs DEFERRABLE INITIALLY "
                                         "DEFERRED FOR EACH ROW EXECUTE FUNCTION die()"));
  }
  // From now on, each COMMIT becomes durable but gets no answer, because it waits for a standby that does not exist.
  void AnswerNoCommit() {
    cluster_->Execute(url_, "ALTER SYSTEM SET synchronous_standby_names='nobody'");
    Reload("nobody");
  }
  void AnswerCommits() {
    cluster_->Execute(url_, "ALTER SYSTEM RESET synchronous_standby_names");
    Reload("");
  }
  void Reload(const std::string& expected) {
    cluster_->Execute(url_, "SELECT pg_reload_conf()");
    while (cluster_->Query(url_, absl::StrCat("SELECT (current_setting('synchronous_standby_names')='", expected, "')::int")) !=
           1) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  void AwaitUnansweredCommit() {
    while (cluster_->Query(url_, "SELECT count(*) FROM pg_stat_activity WHERE wait_event='SyncRep'") == 0) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  // Returns the effects of a submission, with its audit record.
  static std::vector<Effect> Submission(int64_t n) {
    const JobRecord job = MakeJob(n);
    return {InsertJob{job}, InsertEvent{job.id, {.sequence = 1, .kind = "submitted"}}, InsertAudit{{.who = "alice"}, job.id}};
  }

  PostgresCluster* cluster_ = nullptr;
  std::string url_;
};

TEST_F(PostgresEngineTest, ASecondServerIsToldWhoHasTheStore) {
  const std::unique_ptr<Store> store = Open();
  const absl::Status second = OpenStore(url_, "").status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  EXPECT_THAT(Said(second), HasSubstr(absl::StrCat("(process ", ::getpid(), " on host ", host.data(), ", since 20")));
  EXPECT_THAT(Said(second), HasSubstr("stop that one, or give this one another --store"));
  ASSERT_TRUE(store->Commit(Submission(1)).ok()) << "the first is not disturbed";
}

// Each schema of a database can contain its own store.
TEST_F(PostgresEngineTest, StoresInTwoSchemasDoNotDisturbEachOther) {
  cluster_->Execute(url_, "CREATE SCHEMA other");
  const std::unique_ptr<Store> first = Open();
  ASSERT_TRUE(first->Commit(Submission(1)).ok());
  absl::StatusOr<std::unique_ptr<Store>> other = OpenStore(url_ + "&options=-csearch_path%3Dother", "");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE((*other)->is_new());
  EXPECT_EQ(Jobs(**other), 0u);
}

TEST_F(PostgresEngineTest, AConnectionThatWasLostBetweenTransactionsIsMadeAgain) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->Commit(Submission(1)).ok());
  EXPECT_GE(cluster_->EndSessions(url_), 1);
  EXPECT_TRUE(store->Commit(Submission(2)).ok());
  EXPECT_GE(cluster_->EndSessions(url_), 1);
  EXPECT_EQ(Jobs(*store), 2u);
}

// The trigger ends the session in the middle of the transaction.
TEST_F(PostgresEngineTest, AConnectionThatIsLostInATransactionLosesOnlyThis) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->Commit(Submission(1)).ok());
  cluster_->Execute(
      url_,
      "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM "
      "pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NULL; END $$; CREATE TRIGGER die AFTER "
      "INSERT ON events EXECUTE FUNCTION die()");
  const absl::Status lost = store->Commit(Submission(2));
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable) << lost;
  EXPECT_THAT(Said(lost), HasSubstr("cannot write to the database postgresql://lynx@/"));
  cluster_->Execute(url_, "DROP TRIGGER die ON events");
  EXPECT_EQ(Jobs(*store), 1u);
  ASSERT_TRUE(store->Commit(Submission(2)).ok());
  EXPECT_EQ(Jobs(*store), 2u);
  EXPECT_EQ(AuditRecords(), 2);
}

// Another session has locked the row that every transaction changes.
TEST_F(PostgresEngineTest, ADatabaseThatDoesNotAnswerIsNotWaitedForWithoutEnd) {
  const std::unique_ptr<Store> store = Open({.answer = milliseconds(2'000), .pause = milliseconds(0)});
  ASSERT_TRUE(store->Commit(Submission(1)).ok());
  std::unique_ptr<PostgresConnection> other = cluster_->Connect(url_);
  ASSERT_TRUE(other->Execute("BEGIN; UPDATE lynx_store SET epoch=epoch").ok());
  const absl::Status late = store->Commit(Submission(2));
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable) << late;
  EXPECT_THAT(Said(late), HasSubstr("it did not answer for 2000 ms"));
  other.reset();
  // On a busy machine, a statement may take longer than this limit.
  while (!store->Commit(Submission(2)).ok()) continue;
  EXPECT_EQ(cluster_->Query(url_, "SELECT count(*) FROM jobs"), 2);
}

TEST_F(PostgresEngineTest, ALostCommitThatWroteNothingIsKnownToHaveFailed) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->Commit(Submission(1)).ok());
  EndSessionsAtCommit();
  const absl::Status lost = store->Commit(Submission(2));
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable) << lost;
  EXPECT_EQ(Jobs(*store), 1u);
  cluster_->Execute(url_, "DROP TRIGGER die ON jobs");
  ASSERT_TRUE(store->Commit(Submission(2)).ok());
  EXPECT_EQ(Jobs(*store), 2u);
}

TEST_F(PostgresEngineTest, ALostCommitThatWasWrittenIsKnownToBe) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->Commit(Submission(1)).ok());
  AnswerNoCommit();
  absl::Status status;
  std::thread writer([&] { status = store->Commit(Submission(2)); });
  AwaitUnansweredCommit();
  AnswerCommits();  // a session that already waits for the standby would not end otherwise
  cluster_->EndSessions(url_);
  writer.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Jobs(*store), 2u);
  EXPECT_EQ(AuditRecords(), 2);
}

// The database is away for longer than Commit tries to reach it. The caller repeats the batch. It must be written exactly once.
TEST_F(PostgresEngineTest, ADoubtIsSettledWhenTheDatabaseIsBack) {
  for (const bool written : {false, true}) {
    SCOPED_TRACE(written ? "written" : "not written");
    url_ = cluster_->NewDatabase();
    const std::unique_ptr<Store> store = Open({.doubt = milliseconds(0), .pause = milliseconds(0)});
    ASSERT_TRUE(store->Commit(Submission(1)).ok());
    if (written) {
      AnswerNoCommit();
    } else {
      EndSessionsAtCommit("PERFORM pg_advisory_xact_lock(1); PERFORM pg_sleep(60);");
    }
    absl::Status status;
    std::thread writer([&] { status = store->Commit(Submission(2)); });
    if (written) {
      AwaitUnansweredCommit();
    } else {
      while (cluster_->Query(url_, "SELECT count(*) FROM pg_stat_activity WHERE wait_event='PgSleep'") == 0) continue;
    }
    cluster_->Crash();
    writer.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_EQ(store->Commit(Submission(2)).code(), absl::StatusCode::kAborted) << "still nobody knows";
    EXPECT_EQ(store->LoadJobs().status().code(), absl::StatusCode::kUnavailable);
    cluster_->Start();
    if (written) {
      AnswerCommits();
    } else {
      cluster_->Execute(url_, "DROP TRIGGER die ON jobs");
    }
    JobCurves curves;
    EXPECT_TRUE(store->PutCurves({{MakeJob(1).id, &curves}}).ok()) << "what another transaction finds out is not forgotten";
    EXPECT_EQ(Jobs(*store), written ? 2u : 1u);
    EXPECT_TRUE(store->Commit(Submission(2)).ok());
    EXPECT_EQ(Jobs(*store), 2u);
    EXPECT_EQ(AuditRecords(), 2) << "not doubled";
    EXPECT_TRUE(store->Commit(Submission(3)).ok());
    EXPECT_EQ(Jobs(*store), 3u);
  }
}

TEST_F(PostgresEngineTest, AServerWhoseStoreAnotherOneTookWritesNothingMore) {
  const std::unique_ptr<Store> old = Open({.pause = milliseconds(0)}, kNeverRenewed);
  ASSERT_TRUE(old->Commit(Submission(1)).ok());
  {
    const std::unique_ptr<Store> next = Open();
    ASSERT_TRUE(next->Commit(Submission(2)).ok());
    const absl::Status late = old->Commit(Submission(3));
    EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition) << late;
    EXPECT_THAT(Said(late), HasSubstr(absl::StrCat("another lynx-server (process ", ::getpid(), " on host ")));
  }
  const absl::Status late = old->Commit(Submission(3));
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition)
      << "the other one has ended, but what it wrote is not known here";
  EXPECT_THAT(Said(late), HasSubstr("this one can write nothing more"));
  EXPECT_EQ(cluster_->Query(url_, "SELECT count(*) FROM jobs"), 2);
}

TEST_F(PostgresEngineTest, AServerNoticesWithoutWritingThatItsStoreWasTaken) {
  const std::unique_ptr<Store> old = Open({.pause = milliseconds(0)}, kNeverRenewed);
  EXPECT_TRUE(old->CheckHeld().ok());
  cluster_->EndSessions(url_);
  EXPECT_TRUE(old->CheckHeld().ok()) << "only the connection was lost";
  const std::unique_ptr<Store> next = Open();
  EXPECT_EQ(old->CheckHeld().code(), absl::StatusCode::kFailedPrecondition);
}

// A server of a version without leases has the lock and a higher epoch.
TEST_F(PostgresEngineTest, AnOlderServerIsNotPutOut) {
  { ASSERT_TRUE(Open()->Commit(Submission(1)).ok()); }
  std::unique_ptr<PostgresConnection> older = cluster_->Connect(url_);
  ASSERT_TRUE(older
                  ->Execute("SELECT pg_advisory_lock(1280921176, hashtext(current_schema())); UPDATE lynx_store SET "
                            "epoch=epoch+1, holder_host='old', holder_pid=7")
                  .ok());
  const absl::Status refused = OpenStore(url_, "").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(Said(refused), HasSubstr("in use by another lynx-server (process 7 on host old"));
  EXPECT_TRUE(IsHeldByAnother(refused));
  EXPECT_TRUE(older->Run("SELECT 1").ok()) << "its session goes on";
  EXPECT_TRUE(IsHeldByAnother(OpenStore(url_, "").status())) << "and is not put out by a second attempt";
  EXPECT_TRUE(older->Run("SELECT 1").ok());
  older.reset();
  const std::unique_ptr<Store> next = Open();
  ASSERT_TRUE(next->Commit(Submission(2)).ok());
  EXPECT_EQ(Jobs(*next), 2u);
}

// While a server runs, the database loses transactions: a standby without the newest ones was promoted, or an older backup was
// restored.
TEST_F(PostgresEngineTest, ADatabaseThatHasLostTransactionsIsNotWritten) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->Commit(Submission(1)).ok());
  cluster_->EndSessions(url_);
  cluster_->Execute(url_, "UPDATE lynx_store SET transactions=transactions-1");
  const absl::Status status = store->Commit(Submission(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(Said(status), HasSubstr("and has acknowledged"));
}

TEST_F(PostgresEngineTest, ATableThatIsGoneIsDamage) {
  { ASSERT_TRUE(Open()->Commit(Submission(1)).ok()); }
  cluster_->Execute(url_, "DROP TABLE events");
  const std::unique_ptr<Store> store = Open();
  const absl::Status status = store->Commit(Submission(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(Said(status), HasSubstr("is damaged"));
  EXPECT_THAT(Said(status), HasSubstr("restore it from a backup"));
}

TEST_F(PostgresEngineTest, TextOfAnyBytesComesBack) {
  const std::unique_ptr<Store> store = Open();
  const std::string odd("cut \xE6\xA8 and \0 zero", 17);
  const JobEvent event{.sequence = 1, .kind = "failed", .reason = odd};
  ASSERT_TRUE(store->Commit({InsertEvent{JobId("job1"), event}}).ok());
  EXPECT_EQ(store->LoadEvents(JobId("job1"), 0, 10).value(), (std::vector<JobEvent>{event}));
}

TEST_F(PostgresEngineTest, CommitsAreDurableWhateverTheDefaultIs) {
  cluster_->Execute(url_,
                    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit=off', current_database()); END $$");
  const std::unique_ptr<Store> store = Open();
  cluster_->Execute(url_, "CREATE TABLE seen(value TEXT)");
  cluster_->Execute(
      url_,
      "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen "
      "VALUES(current_setting('synchronous_commit')); RETURN NULL; END $$; CREATE TRIGGER note AFTER INSERT ON jobs "
      "EXECUTE FUNCTION note()");
  ASSERT_TRUE(store->Commit(Submission(1)).ok());
  EXPECT_EQ(cluster_->Query(url_, "SELECT count(*) FROM seen WHERE value='on'"), 1);
  EXPECT_THAT(store->Warnings(), ::testing::Contains(HasSubstr("has fsync=off"))) << "as in these tests";
}

TEST_F(PostgresEngineTest, ADatabaseInAnotherEncodingIsRefused) {
  url_ = cluster_->NewDatabase("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'");
  const absl::Status status = OpenStore(url_, "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Said(status), HasSubstr("has the encoding LATIN1: make one with UTF8"));
}

TEST_F(PostgresEngineTest, AUserWithoutRightsIsToldWhatToCheck) {
  const std::string url = absl::StrReplaceAll(url_, {{"lynx@/", absl::StrCat("guarded:", PostgresCluster::kPassword, "@/")}});
  const absl::Status status = OpenStore(url, "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Said(status), HasSubstr("permission denied for schema public"));
  EXPECT_THAT(Said(status), HasSubstr("check --store"));
  EXPECT_THAT(Said(status), Not(HasSubstr(PostgresCluster::kPassword)));
}

TEST_F(PostgresEngineTest, NoMessageHasThePassword) {
  const std::string socket = absl::StrCat("?host=", cluster_->socket_directory());
  const std::vector<std::string> urls = {"postgresql://guarded:wrong-Secret9@/postgres" + socket,
                                         "postgresql://guarded@/postgres" + socket + "&password=wrong-Secret9",
                                         "postgresql://guarded:wrong-Secret9@/db?host=/nowhere&sslpassword=wrong-Secret9",
                                         "postgresql://guarded:wrong-Secret9@h:port/postgres",
                                         "postgresql://u:wr@ng-Secret9@h/db",
                                         "postgresql://u:x/wrong-Secret9@h/db",
                                         "postgresql://u:x?y@wrong-Secret9@h/db",
                                         "postgresql://u:wrong-Secret9@h/db?nonsense=1",
                                         "postgresql://u:wrong%zz-Secret9@h/db",
                                         "mysql://u:wrong-Secret9@h/db"};
  for (const std::string& url : urls) {
    const absl::Status status = OpenStore(url, "").status();
    EXPECT_FALSE(status.ok()) << url;
    EXPECT_THAT(Said(status), Not(HasSubstr("Secret9"))) << url;
    EXPECT_THAT(Said(status), HasSubstr("--store")) << url;
  }
  EXPECT_EQ(WithoutPassword("postgresql://lynx:Secret9@db:5433/lynx?sslmode=require&password=Secret9&x=1"),
            "postgresql://lynx:***@db:5433/lynx?sslmode=require&password=***&x=1");
  EXPECT_EQ(WithoutPassword("postgresql://lynx@db/lynx"), "postgresql://lynx@db/lynx");
}

TEST_F(PostgresEngineTest, AServerThatIsNotThereIsSaid) {
  const absl::Status status = OpenStore("postgresql:///db?host=/nowhere", "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Said(status), HasSubstr("cannot open the database postgresql:///db?host=/nowhere"));
  EXPECT_THAT(Said(status), HasSubstr("check --store, that PostgreSQL runs there"));
}

TEST(StoreAddress, OtherTextIsRefused) {
  for (const char* address : {"sqlite:", "lynx.db", "postgresql:", "http://db"}) {
    const absl::Status status = OpenStore(address, "/tmp").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(Said(status), HasSubstr("write sqlite:PATH, postgresql://USER@HOST/DATABASE"));
  }
}

}  // namespace
}  // namespace lynx::server
