#include "worker/daemon/rank_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>

#include "node/file.h"

namespace lynx::worker {
namespace {

class RankFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/lynx-rank-folder-test-XXXXXX";
    ranks_ = ::mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(ranks_); }

  RankFolder Make(const RankKey& key) {
    const RankFolder folder = FolderOf(ranks_, key);
    EXPECT_TRUE(MakeDirectories(folder.path).ok());
    return folder;
  }

  std::string ranks_;
};

StoredRank SomeRecord() {
  return {.key = {JobId("job-1"), Generation(3), 2},
          .phase = RecordedPhase::kExited,
          .address = {"10.0.0.1", 4711},
          .process = {.pid = 12, .start_ticks = 345678, .machine_boot = "f00-ba4"},
          .exit_code = 137,
          .reason = "killed \"by\" signal 9\n\xff",
          .peer_lost = true};
}

TEST_F(RankFolderTest, RecordsComeBack) {
  StoredRank record = SomeRecord();
  const RankFolder folder = Make(record.key);
  ASSERT_TRUE(StoreRecord(folder, record).ok());
  const absl::StatusOr<StoredRank> loaded = LoadRecord(folder, record.key);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  // Bytes that are not UTF-8 are replaced. Everything else is the same as before.
  record.reason = "killed \"by\" signal 9\n\xEF\xBF\xBD";
  EXPECT_EQ(*loaded, record);
}

TEST_F(RankFolderTest, EveryPhaseComesBack) {
  for (const RecordedPhase phase :
       {RecordedPhase::kStarting, RecordedPhase::kRunning, RecordedPhase::kExited, RecordedPhase::kReleased}) {
    StoredRank record = SomeRecord();
    record.phase = phase;
    EXPECT_EQ(ParseStoredRank(StoredRankText(record))->phase, phase);
  }
}

TEST_F(RankFolderTest, DamageIsToldFromAbsence) {
  const RankKey key = SomeRecord().key;
  const RankFolder folder = Make(key);
  EXPECT_EQ(LoadRecord(folder, key).status().code(), absl::StatusCode::kNotFound);
  for (const char* text : {"", "{", "[]", "{\"job\": 1}"}) {
    ASSERT_TRUE(WriteFileDurably(folder.state(), text).ok());
    EXPECT_EQ(LoadRecord(folder, key).status().code(), absl::StatusCode::kDataLoss) << text;
  }
  StoredRank other = SomeRecord();
  other.key.rank = 7;
  ASSERT_TRUE(StoreRecord(folder, other).ok());
  EXPECT_EQ(LoadRecord(folder, key).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RankFolderTest, FindsRanksByTheirFoldersAndNothingElse) {
  const std::vector<RankKey> keys = {
      {JobId("a"), Generation(1), 0}, {JobId("a"), Generation(2), 10}, {JobId("dotted.g3.r4"), Generation(5), 6}};
  for (const RankKey& key : keys) Make(key);
  for (const char* name : {"x", ".g1.r0", "a.g0.r1", "a.g1.r-1", "a.gx.r1", "a.r1"}) {
    ASSERT_TRUE(MakeDirectories(ranks_ + "/" + name).ok());
  }
  ASSERT_TRUE(WriteFileDurably(ranks_ + "/file.g1.r1", "").ok());
  EXPECT_EQ(RanksOnDisk(ranks_), keys);
  EXPECT_TRUE(RanksOnDisk(ranks_ + "/missing").empty());
}

TEST_F(RankFolderTest, PruningKeepsTheNewestAndThoseInUse) {
  const std::filesystem::file_time_type now = std::filesystem::file_time_type::clock::now();
  std::vector<RankKey> keys;
  for (int32_t rank = 0; rank < 6; ++rank) {
    keys.push_back({JobId("a"), Generation(1), rank});
    std::filesystem::last_write_time(Make(keys.back()).path, now - std::chrono::hours(rank));
  }
  PruneRankFolders(ranks_, {keys[5]}, 2);
  EXPECT_EQ(RanksOnDisk(ranks_), (std::vector<RankKey>{keys[0], keys[1], keys[5]}));
}

}  // namespace
}  // namespace lynx::worker
