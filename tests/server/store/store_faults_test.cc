// Lets every disk operation of the store fail once, in each way in which disks fail. Also ends the process or the machine at
// each operation. Afterwards the store must have everything for which Commit had returned OK, and no batch may be there only in
// part.
#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/store/fault_disk.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kPath[] = "/data/lynx.db";
constexpr int kMaxTries = 4;

// The record of each job as text. If two texts are equal, the records are equal.
using Contents = std::map<std::string, std::string>;

std::string EventText(const JobEvent& event) { return absl::StrCat(" #", event.sequence, ":", event.kind); }

// Returns all contents of a store, or the reason why it cannot be read.
absl::StatusOr<Contents> Read(Store& store) {
  Contents contents;
  absl::StatusOr<std::vector<Store::StoredJob>> jobs = store.LoadJobs();
  if (!jobs.ok()) return jobs.status();
  for (const Store::StoredJob& job : *jobs) {
    const JobRecord& record = job.record;
    std::string text =
        absl::StrCat(record.idempotency_key, " ", EnumName(record.state), " ", record.reason, " ranks ", record.ranks.size());
    const auto events = store.LoadEvents(record.id, 0, 100);
    if (!events.ok()) return events.status();
    for (const JobEvent& event : *events) text += EventText(event);
    const auto plan = store.LoadPlan(record.id);
    if (!plan.ok()) return plan.status();
    if (*plan != nullptr) text += " plan " + (*plan)->digest;
    EXPECT_TRUE(contents.emplace(record.id.value, text).second) << record.id.value << " is there twice";
  }
  return contents;
}

// Returns the batches that a server writes: five jobs arrive, are planned and run, and one of them is forgotten.
std::vector<std::vector<Effect>> Script() {
  static const std::shared_ptr<const Plan> plan = MakeSmallPlan(*MakeJob(1).spec);
  std::vector<std::vector<Effect>> batches;
  for (int64_t n = 1; n <= 5; ++n) {
    JobRecord job = MakeJob(n);
    batches.push_back({InsertJob{job}, InsertEvent{job.id, {.sequence = 1, .kind = "submitted"}}});
    job.state = JobState::kRunning;
    job.reason = "all ranks run";
    job.plan_digest = plan->digest;
    for (int32_t r = 0; r < plan->layout.ranks(); ++r) job.ranks.push_back({.where = {NodeId("n0"), r}, .port = r});
    batches.push_back({InsertPlan{job.id, plan, nullptr}, UpdateJob{job},
                       InsertEvent{job.id, {.sequence = 2, .kind = "running"}},
                       InsertCheckpoint{job.id, Generation(1), n, "/c", Bytes(1), Nanos(1)}});
    if (n == 3) batches.push_back({DeleteJob{JobId("job1")}});
  }
  return batches;
}

// Makes SQLite copy its log into the database after 16 pages instead of 1,000. So this happens several times in a script.
int CheckpointOften(sqlite3* db, char**, const sqlite3_api_routines*) { return sqlite3_wal_autocheckpoint(db, 16); }

// Returns the contents after the first k batches, for each k, on a disk that never fails.
const std::vector<Contents>& Expected() {
  static const auto& expected = *new std::vector<Contents>([] {
    FaultDisk disk;
    std::vector<Contents> contents;
    const std::unique_ptr<Store> store = OpenStoreFile(kPath).value();
    contents.push_back(Read(*store).value());
    for (const std::vector<Effect>& batch : Script()) {
      EXPECT_TRUE(store->Commit(batch).ok());
      contents.push_back(Read(*store).value());
    }
    return contents;
  }());
  return expected;
}

// A disk as it was at some time, and the number of batches that were acknowledged until then. The next batch may also be there.
struct Remains {
  FaultDisk::Files files;
  size_t acknowledged = 0;
};

// Runs the script like the server, which repeats a failed commit.
class ScriptRun {
 public:
  ScriptRun(FaultDisk& disk, uint64_t seed) : disk_(disk), seed_(seed) {}

  // Runs until the end, or until a batch has failed kMaxTries times. In both cases the database is still open, as after a kill.
  void Run() {
    const std::vector<std::vector<Effect>> batches = Script();
    for (const std::vector<Effect>& batch : batches) {
      // After half of the batches the server stops and starts again. A stop copies the log into the database.
      if (acknowledged_ == batches.size() / 2) store_.reset();
      int tries = 0;
      while (!CommitOnce(batch)) {
        if (++tries == kMaxTries) return Keep();
      }
      ++acknowledged_;
    }
    Keep();
  }
  size_t acknowledged() const { return acknowledged_; }
  const std::vector<Remains>& remains() const { return remains_; }
  const std::vector<absl::Status>& failures() const { return failures_; }

 private:
  void Keep() {
    remains_.push_back({disk_.AfterKill(), acknowledged_});
    remains_.push_back({disk_.AfterPowerFailure(seed_), acknowledged_});
  }

  bool CommitOnce(const std::vector<Effect>& batch) {
    absl::Status status;
    if (store_ == nullptr) {
      absl::StatusOr<std::unique_ptr<Store>> store = OpenStoreFile(kPath);
      status = store.status();
      if (store.ok()) store_ = *std::move(store);
    }
    if (status.ok()) status = store_->Commit(batch);
    if (status.ok()) return true;
    if (failures_.empty()) Keep();
    failures_.push_back(status);
    return false;
  }

  FaultDisk& disk_;
  const uint64_t seed_;
  std::unique_ptr<Store> store_;
  size_t acknowledged_ = 0;
  std::vector<Remains> remains_;
  std::vector<absl::Status> failures_;
};

// Opens the remains like a server, and checks the contents.
void CheckRemains(const Remains& remains) {
  FaultDisk disk(remains.files);
  absl::StatusOr<std::unique_ptr<Store>> store = OpenStoreFile(kPath);
  ASSERT_TRUE(store.ok()) << store.status();
  const absl::StatusOr<Contents> contents = Read(**store);
  ASSERT_TRUE(contents.ok()) << contents.status();
  const size_t next = std::min(remains.acknowledged + 1, Expected().size() - 1);
  EXPECT_THAT(*contents, AnyOf(Expected()[remains.acknowledged], Expected()[next]));
  EXPECT_TRUE((*store)->Commit({InsertJob{MakeJob(100)}}).ok());
}

struct FaultCase {
  const char* name;
  DiskFault fault;
  bool lasting;
};

class StoreFaults : public ::testing::TestWithParam<FaultCase> {
 protected:
  StoreFaults() { sqlite3_auto_extension(reinterpret_cast<void (*)()>(CheckpointOften)); }
  ~StoreFaults() override { sqlite3_reset_auto_extension(); }

  static void CheckRefusal(const absl::Status& status, DiskFault fault) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(kPath));
    const bool opening = absl::StrContains(status.message(), "cannot open");
    const bool full = opening ? absl::StrContains(status.message(), "make space on its disk")
                              : status.code() == absl::StatusCode::kResourceExhausted;
    EXPECT_EQ(full, fault == DiskFault::kFull) << status;
  }
};

TEST_P(StoreFaults, AtEveryOperation) {
  const FaultCase& param = GetParam();
  int64_t n = 1;
  int64_t failed = 0;
  for (bool more = true; more; ++n) {
    SCOPED_TRACE(absl::StrCat("operation ", n));
    std::vector<Remains> remains;
    {
      FaultDisk disk;
      disk.FailAt(n, param.fault, param.lasting);
      ScriptRun run(disk, static_cast<uint64_t>(n));
      run.Run();
      more = disk.operations() >= n;
      failed += disk.failed() ? 1 : 0;
      if (!param.lasting) {
        EXPECT_EQ(run.acknowledged() + 1, Expected().size()) << run.failures().back();
      }
      for (const absl::Status& failure : run.failures()) CheckRefusal(failure, param.fault);
      remains = run.remains();
    }
    for (const Remains& left : remains) CheckRemains(left);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  std::printf("%lld operations, %lld of them failed\n", static_cast<long long>(n), static_cast<long long>(failed));
  EXPECT_GT(failed, 100);
}

INSTANTIATE_TEST_SUITE_P(All, StoreFaults,
                         ::testing::Values(FaultCase{"ErrorOnce", DiskFault::kError, false},
                                           FaultCase{"ErrorForGood", DiskFault::kError, true},
                                           FaultCase{"ShortWriteOnce", DiskFault::kShortWrite, false},
                                           FaultCase{"ShortWriteThenDead", DiskFault::kShortWrite, true},
                                           FaultCase{"FullOnce", DiskFault::kFull, false},
                                           FaultCase{"FullForGood", DiskFault::kFull, true}),
                         [](const auto& info) { return info.param.name; });

// At any time the disk may become full and later have space again. The store is never opened again.
TEST(StoreOnAFullDisk, WritesAgainWhenThereIsSpace) {
  FaultDisk disk;
  const std::unique_ptr<Store> store = OpenStoreFile(kPath).value();
  int64_t number = 0;
  std::set<std::string> acknowledged;
  for (int round = 0; round < 20; ++round) {
    disk.SetCapacity(disk.bytes() + 40'000 + 777 * round);
    absl::Status status;
    while (status.ok()) {
      const JobRecord job = MakeJob(++number);
      status = store->Commit({InsertJob{job}, InsertEvent{job.id, {.sequence = 1, .kind = "submitted"}}});
      if (status.ok()) acknowledged.insert(job.id.value);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("cannot write to the database ", kPath)));
    EXPECT_EQ(Read(*store).value().size(), acknowledged.size()) << "what is there can be read, and is what was acknowledged";
  }
  disk.SetCapacity(INT64_MAX);
  EXPECT_TRUE(store->Commit({InsertJob{MakeJob(++number)}}).ok());
  EXPECT_EQ(Read(*store).value().size(), acknowledged.size() + 1);
  EXPECT_GT(acknowledged.size(), 20u);
}

TEST(StoreOnAFullDisk, ANewDatabaseIsRefusedAndMadeWhenThereIsSpace) {
  FaultDisk disk;
  disk.SetCapacity(10'000);
  const absl::Status full = OpenStoreFile(kPath).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(full.message()), HasSubstr(absl::StrCat("cannot open the database ", kPath)));
  EXPECT_THAT(std::string(full.message()), HasSubstr("make space on its disk"));
  disk.SetCapacity(INT64_MAX);
  EXPECT_TRUE(OpenStoreFile(kPath).ok());
}

}  // namespace
}  // namespace lynx::server
