#include "server/store/move_store.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/server/store/engines.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

// Moves a store from the first engine to the second.
class MoveStoreTest : public ::testing::TestWithParam<std::pair<EngineKind, EngineKind>> {
 protected:
  void SetUp() override {
    if (GetParam() != std::pair(EngineKind::kSqlite, EngineKind::kSqlite)) LYNX_SKIP_WITHOUT_POSTGRES();
  }
  absl::StatusOr<MovedStore> Move() { return MoveStore(from_.address(), to_.address(), ""); }

  StorePlace from_{GetParam().first}, to_{GetParam().second};
};

std::string NameOf(EngineKind kind) { return kind == EngineKind::kSqlite ? "Sqlite" : "Postgres"; }

INSTANTIATE_TEST_SUITE_P(Between, MoveStoreTest,
                         ::testing::Values(std::pair(EngineKind::kSqlite, EngineKind::kPostgres),
                                           std::pair(EngineKind::kPostgres, EngineKind::kSqlite),
                                           std::pair(EngineKind::kSqlite, EngineKind::kSqlite),
                                           std::pair(EngineKind::kPostgres, EngineKind::kPostgres)),
                         [](const auto& info) { return NameOf(info.param.first) + "And" + NameOf(info.param.second); });

// Writes rows into every table: more jobs than one query reads, and text that PostgreSQL can store only in encoded form.
void Fill(const StorePlace& place) {
  const std::unique_ptr<Store> store = OpenStore(place.address(), "").value();
  const std::shared_ptr<const Plan> plan = MakeSmallPlan(*MakeJob(1).spec);
  const auto cluster = std::make_shared<const ClusterTopology>(UniformCluster(2, 4, StatedCpuProfile()));
  for (int64_t n = 1; n <= 230; ++n) {
    JobRecord job = MakeJob(n);
    job.ranks.push_back({.where = {NodeId("n0"), 0}, .device_uuid = "GPU-0", .host = "10.0.0.1", .port = 4000});
    std::vector<Effect> effects = {InsertJob{job}, InsertEvent{job.id, {.sequence = 1, .kind = "submitted"}},
                                   InsertAudit{{.who = "alice", .refused = n % 2 == 0}, job.id}};
    if (n % 50 == 0) {
      effects.push_back(InsertPlan{job.id, plan, cluster});
      effects.push_back(InsertTrace{job.id, {.generation = Generation(1), .step = n, .stages = {{1, 2}, {}}}});
      effects.push_back(InsertCheckpoint{job.id, Generation(1), n, "/c", Bytes(INT64_MAX), Nanos(-1)});
      effects.push_back(InsertEvent{job.id, {.sequence = 2, .kind = "failed", .reason = std::string("\xFF\0cut \xE6", 7)}});
    }
    ASSERT_TRUE(store->Commit(effects).ok());
  }
  JobCurves curves;
  curves.AddEvaluation(5, 2.5);
  ASSERT_TRUE(store->PutCurves({{MakeJob(7).id, &curves}}).ok());
  ASSERT_TRUE(store
                  ->Commit({PutNode{NodeId("n1")}, PutQueue{{.name = "night"}},
                            PutCordon{NodeId("n1"), Cordon{.reason = "fans", .drain = true}}})
                  .ok());
  ASSERT_TRUE(
      store
          ->CommitAccess({User{"alice", Role::kOperator, Nanos(1)}, UserToken{"id1", "digest1", "alice", Nanos(3)},
                          JoinGrant{"grant", "n0", Nanos(4), Nanos(60)}, NodeCertificate{"serial", "n0", Nanos(5), Nanos(70)}},
                         {.who = "admin"})
          .ok());
}

TEST_P(MoveStoreTest, EveryRowOfEveryTableGoesAlong) {
  Fill(from_);
  const absl::StatusOr<MovedStore> moved = Move();
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->from, from_.name());
  EXPECT_EQ(moved->to, to_.name());
  std::map<std::string, int64_t> rows;
  for (const MovedTable& table : moved->tables) {
    rows[table.name] = table.rows;
    EXPECT_GT(table.rows, 0) << table.name << ": Fill has to write into it, so that this test notices what is left behind";
    EXPECT_EQ(table.digest.size(), 64u);
  }
  EXPECT_EQ(rows["jobs"], 230);
  EXPECT_EQ(rows["events"], 234);
  EXPECT_EQ(rows["audit"], 231);
  // A server can read the copy like the original, and can write to it.
  const std::unique_ptr<Store> store = OpenStore(from_.address(), "").value(), copy = OpenStore(to_.address(), "").value();
  EXPECT_EQ(copy->LoadJobs()->size(), 230u);
  for (const JobId& job : {JobId("job50"), JobId("job7")}) {
    EXPECT_EQ(copy->LoadEvents(job, 0, 10).value(), store->LoadEvents(job, 0, 10).value());
    EXPECT_EQ(copy->LoadTrace(job).value(), store->LoadTrace(job).value());
    EXPECT_EQ(copy->LoadCurves(job)->evaluations(), store->LoadCurves(job)->evaluations());
  }
  EXPECT_EQ(PlanText(**copy->LoadPlan(JobId("job50"))), PlanText(**store->LoadPlan(JobId("job50"))));
  EXPECT_EQ(*copy->LoadCluster(JobId("job50")).value(), *store->LoadCluster(JobId("job50")).value());
  EXPECT_EQ(copy->LoadAudit(1, 0, false)->at(0).sequence, 231);
  ASSERT_TRUE(copy->Commit({InsertJob{MakeJob(1000)}, InsertAudit{{.who = "bob"}, JobId()}}).ok());
  EXPECT_EQ(copy->LoadAudit(1, 0, false)->at(0).sequence, 232);
}

TEST_P(MoveStoreTest, ACopyThatIsNotEmptyIsRefused) {
  Fill(from_);
  { ASSERT_TRUE(OpenStore(to_.address(), "").value()->Commit({PutNode{NodeId("n1")}}).ok()); }
  const absl::Status status = Move().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(to_.name() + " is not empty (nodes has 1 rows)"));
  EXPECT_TRUE(OpenStore(to_.address(), "").value()->LoadJobs()->empty());
}

TEST_P(MoveStoreTest, ACopyOfAnOlderServerStaysAsItIs) {
  Fill(from_);
  { ASSERT_TRUE(OpenStore(to_.address(), "").ok()); }
  to_.Execute(to_.SetSchema(kSchemaVersion - 1));
  const absl::Status status = Move().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat(to_.name(), " is not empty: it has schema ", kSchemaVersion - 1)));
  const absl::Status again = Move().status();
  EXPECT_EQ(again.message(), status.message());
}

TEST_P(MoveStoreTest, AServerOnEitherSideIsFound) {
  Fill(from_);
  for (const StorePlace* used : {&from_, &to_}) {
    const std::unique_ptr<Store> server = OpenStore(used->address(), "").value();
    const absl::Status status = Move().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(used->name() + " is in use by another lynx-server"));
  }
  EXPECT_TRUE(Move().ok());
}

TEST_P(MoveStoreTest, AnOlderOrEmptySourceStaysAsItIs) {
  const absl::Status empty = Move().status();
  EXPECT_EQ(empty.code(), absl::StatusCode::kFailedPrecondition) << empty;
  Fill(from_);
  from_.Execute(from_.SetSchema(kSchemaVersion - 1));
  const absl::Status older = Move().status();
  EXPECT_EQ(older.code(), absl::StatusCode::kFailedPrecondition) << older;
  EXPECT_THAT(std::string(older.message()), HasSubstr("start it on this database once"));
  from_.Execute(from_.SetSchema(kSchemaVersion));
  EXPECT_TRUE(Move().ok());
}

// The test changes a row during the move.
TEST_P(MoveStoreTest, ACopyThatDiffersIsFound) {
  Fill(from_);
  { ASSERT_TRUE(OpenStore(to_.address(), "").ok()); }
  to_.Execute(
      to_.kind() == EngineKind::kSqlite
          ? "CREATE TRIGGER change AFTER INSERT ON events WHEN NEW.job_id='job7' BEGIN UPDATE events SET kind='x' WHERE "
            "job_id='job7'; END"
          : "CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.kind='x'; RETURN NEW; END $$; CREATE "
            "TRIGGER change BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.job_id='job7') EXECUTE FUNCTION change()");
  const absl::Status status = Move().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("events has 234 rows"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("do not use the copy"));
}

// The move fails in the middle. Then the target must contain no row.
TEST_P(MoveStoreTest, ACopyThatFailsLeavesNothing) {
  Fill(from_);
  { ASSERT_TRUE(OpenStore(to_.address(), "").ok()); }
  to_.Execute("CREATE UNIQUE INDEX one ON jobs(state)");
  const absl::Status status = Move().status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("cannot move ", from_.name(), " to ", to_.name())));
  to_.Execute("DROP INDEX one");
  EXPECT_TRUE(Move().ok()) << "it is empty";
}

TEST(MoveStoreFile, ASourceThatIsNotThereIsNotMade) {
  const StorePlace from(EngineKind::kSqlite), to(EngineKind::kSqlite);
  const absl::Status status = MoveStore(from.address(), to.address(), "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("there is no database " + from.path()));
  EXPECT_FALSE(std::filesystem::exists(from.path()));
  EXPECT_FALSE(std::filesystem::exists(to.path()));
}

// After the move, the file of the source must have the same bytes as before.
TEST(MoveStoreFile, TheSourceIsNotChanged) {
  const auto bytes = [](const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  };
  const StorePlace from(EngineKind::kSqlite), to(EngineKind::kSqlite);
  Fill(from);
  const std::string before = bytes(from.path());
  ASSERT_TRUE(MoveStore(from.address(), to.address(), "").ok());
  EXPECT_EQ(bytes(from.path()), before);
}

}  // namespace
}  // namespace lynx::server
