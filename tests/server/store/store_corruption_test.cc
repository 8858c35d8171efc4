// Tests databases with random damage. A server must start with everything that was stored. Or it must refuse to start, and name
// the file and what to do. It must never crash. If SQLite itself finds the damage, the server must never start with a part of
// the content.
//
// LYNX_CORRUPTIONS=10000 makes each test damage this number of databases. The number of a database is its seed.
#include <cstdlib>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/store/sqlite.h"
#include "tests/server/store/fault_disk.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

constexpr char kPath[] = "/data/lynx.db";
constexpr char kLogPath[] = "/data/lynx.db-wal";
constexpr size_t kPage = 4096;

// Returns as text everything that a server reads when it begins and when people ask.
absl::StatusOr<std::string> ReadAll(Store& store) {
  std::string text;
  absl::StatusOr<std::vector<Store::StoredJob>> jobs = store.LoadJobs();
  if (!jobs.ok()) return jobs.status();
  for (const Store::StoredJob& job : *jobs) {
    const JobRecord& r = job.record;
    absl::StrAppend(&text, r.id.value, " ", r.idempotency_key, " ", EnumName(r.state), " ", r.reason, " ", r.generation.value,
                    " ", r.events, " ", r.submission, " ", r.checkpoint_step, " ", r.checkpoint_path, "\n");
    for (const RankRecord& rank : r.ranks)
      absl::StrAppend(&text, rank.where.node.value, "/", rank.where.device, ":", rank.port, " ");
    const auto events = store.LoadEvents(r.id, 0, 1000);
    if (!events.ok()) return events.status();
    for (const JobEvent& event : *events) absl::StrAppend(&text, event.sequence, event.kind, event.reason, "\n");
    const auto plan = store.LoadPlan(r.id);
    if (!plan.ok()) return plan.status();
    if (*plan != nullptr) absl::StrAppend(&text, PlanText(**plan));
  }
  return text;
}

struct Sound {
  FaultDisk::Files stopped;  // the log has been copied into the database file
  FaultDisk::Files killed;   // half of the contents is still in the log
  std::string contents;
};

const Sound& TheSound() {
  static const auto& sound = *new Sound([] {
    Sound made;
    FaultDisk disk;
    const std::shared_ptr<const Plan> plan = MakeSmallPlan(*MakeJob(1).spec);
    const auto write = [&](Store& store, int64_t first, int64_t last) {
      for (int64_t n = first; n <= last; ++n) {
        JobRecord job = MakeJob(n);
        std::vector<Effect> effects = {InsertJob{job}};
        for (int64_t e = 1; e <= 5; ++e) {
          effects.push_back(InsertEvent{job.id, {.sequence = e, .kind = "checkpoint", .reason = std::string(60, 'r')}});
        }
        job.events = 5;
        job.state = n % 2 == 0 ? JobState::kRunning : JobState::kSucceeded;
        job.plan_digest = plan->digest;
        for (int32_t r = 0; r < plan->layout.ranks(); ++r) job.ranks.push_back({.where = {NodeId("n0"), r}, .port = r});
        effects.push_back(InsertPlan{job.id, plan, nullptr});
        effects.push_back(UpdateJob{job});
        EXPECT_TRUE(store.Commit(effects).ok());
      }
    };
    { write(*OpenStoreFile(kPath).value(), 1, 30); }
    std::unique_ptr<Store> store = OpenStoreFile(kPath).value();
    write(*store, 31, 60);
    made.contents = ReadAll(*store).value();
    made.killed = disk.AfterKill();
    store.reset();
    made.stopped = disk.AfterKill();
    return made;
  }());
  return sound;
}

void Damage(std::string& bytes, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  switch (below(4)) {
    case 0:  // bits are flipped
      for (size_t i = below(8) + 1; i > 0; --i) bytes[below(bytes.size())] ^= static_cast<char>(1u << below(8));
      break;
    case 1:  // the end is missing
      bytes.resize(below(bytes.size()));
      break;
    case 2:  // a page is replaced by zeros
      for (size_t i = 0, at = below(bytes.size() / kPage + 1) * kPage; i < kPage && at + i < bytes.size(); ++i)
        bytes[at + i] = 0;
      break;
    default: {  // a page is replaced by another one
      if (bytes.size() < 2 * kPage) break;
      const size_t pages = bytes.size() / kPage;
      bytes.replace(below(pages) * kPage, kPage, bytes.substr(below(pages) * kPage, kPage));
    }
  }
}

// True if SQLite finds the damage when it checks everything.
bool SqliteFindsIt(const FaultDisk::Files& files) {
  FaultDisk disk(files);
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open(kPath, &raw);
  const SqliteHandle db(raw);
  if (opened != SQLITE_OK || !Execute(raw, "PRAGMA locking_mode=EXCLUSIVE").ok()) return true;
  const absl::StatusOr<std::string> result = QueryText(raw, "PRAGMA integrity_check");
  return !result.ok() || *result != "ok";
}

enum class Outcome { kRefused, kSound, kDiffers };

// Does what a server does: opens the store, reads everything, and stores one more job.
absl::Status Begin(const FaultDisk::Files& files, std::string& contents) {
  FaultDisk disk(files);
  absl::StatusOr<std::unique_ptr<Store>> store = OpenStoreFile(kPath);
  if (!store.ok()) return store.status();
  absl::StatusOr<std::string> read = ReadAll(**store);
  if (!read.ok()) return read.status();
  contents = *std::move(read);
  const JobRecord job = MakeJob(1000);
  return (*store)->Commit({InsertJob{job}, InsertEvent{job.id, {.sequence = 1, .kind = "submitted"}}});
}

Outcome Try(const FaultDisk::Files& files) {
  std::string contents;
  const absl::Status status = Begin(files, contents);
  if (status.ok()) return contents == TheSound().contents ? Outcome::kSound : Outcome::kDiffers;
  const std::string said(status.message());
  EXPECT_THAT(said, ::testing::HasSubstr(kPath));
  EXPECT_THAT(said,
              ::testing::AnyOf(::testing::HasSubstr("restore it from a backup, or move it"),
                               ::testing::HasSubstr("start the newer one"), ::testing::HasSubstr("give another --data-dir")));
  return Outcome::kRefused;
}

int Corruptions() {
  const char* asked = std::getenv("LYNX_CORRUPTIONS");
  return asked == nullptr ? 300 : std::atoi(asked);
}

struct Counts {
  int refused = 0, sound = 0, differs = 0;
};

Counts TryAll(const FaultDisk::Files& sound, const std::string& path, bool found_by_sqlite_is_refused) {
  Counts counts;
  for (int seed = 1; seed <= Corruptions() && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    FaultDisk::Files files = sound;
    Damage(files[path], random);
    const Outcome outcome = Try(files);
    counts.refused += outcome == Outcome::kRefused ? 1 : 0;
    counts.sound += outcome == Outcome::kSound ? 1 : 0;
    counts.differs += outcome == Outcome::kDiffers ? 1 : 0;
    if (outcome == Outcome::kDiffers && found_by_sqlite_is_refused) {
      EXPECT_FALSE(SqliteFindsIt(files)) << "the server began with other jobs than there were";
    }
  }
  std::printf("refused %d, began with all %d, began with a difference that SQLite cannot find %d\n", counts.refused,
              counts.sound, counts.differs);
  return counts;
}

TEST(StoreCorruption, OfAStoppedServersDatabase) {
  const Counts counts = TryAll(TheSound().stopped, kPath, true);
  EXPECT_GT(counts.refused, Corruptions() / 4);
}

TEST(StoreCorruption, OfAKilledServersDatabase) {
  const Counts counts = TryAll(TheSound().killed, kPath, true);
  EXPECT_GT(counts.refused, Corruptions() / 8);
}

// SQLite treats the damaged part of a log, and everything after it, as an interrupted write. If the end of a log is missing, no
// program can distinguish it from a shorter log.
TEST(StoreCorruption, OfAKilledServersLog) {
  const Counts counts = TryAll(TheSound().killed, kLogPath, false);
  EXPECT_GT(counts.refused, Corruptions() / 2);
}

}  // namespace
}  // namespace lynx::server
