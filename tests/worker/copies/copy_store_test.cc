#include "worker/copies/copy_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "common/digest.h"
#include "tests/worker/copies/some_copy.h"
#include "tests/worker/test_folder.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

CopyRecord RecordOf(int64_t generation, int64_t step, int32_t tp_rank, const std::string& content) {
  return SomeCopy(generation, step, tp_rank, Bytes(static_cast<int64_t>(content.size())), Sha256Hex(content));
}

class CopyStoreTest : public testing::Test {
 protected:
  CopyStoreTest() : store_(folder_.Path("copies"), JobId("job")) { EXPECT_TRUE(store_.Create().ok()); }

  absl::Status Write(const CopyRecord& record, const std::string& content, const std::optional<CopyKey>& replaced = {}) {
    const absl::StatusOr<UniqueFd> file = store_.BeginShard(record.key(), replaced);
    if (!file.ok()) return file.status();
    if (absl::Status status = WriteAll(file->get(), content, "it"); !status.ok()) return status;
    return store_.Complete(record);
  }
  std::vector<CopyKey> Keys() const {
    std::vector<CopyKey> keys;
    for (const CopyRecord& copy : store_.List().copies) keys.push_back(copy.key());
    return keys;
  }
  std::string InFolder(const CopyKey& key) const { return fs::path(store_.ShardPath(key)).lexically_relative(folder_.path()); }

  const TestFolder folder_;
  const CopyStore store_;
};

TEST_F(CopyStoreTest, WhatIsCompleteIsListedAndVerified) {
  const CopyRecord one = RecordOf(1, 5, 0, "states"), two = RecordOf(1, 5, 1, "other states");
  ASSERT_TRUE(Write(one, "states").ok());
  ASSERT_TRUE(Write(two, "other states").ok());
  const NodeCopies listed = store_.List();
  ASSERT_EQ(listed.copies.size(), 2u);
  EXPECT_EQ(listed.copies[0].identity, one.identity);
  EXPECT_EQ(listed.copies[1].shard, two.shard);
  EXPECT_THAT(listed.damaged, IsEmpty());
  EXPECT_TRUE(store_.Verify(one).ok());
  const auto file = store_.OpenShard(two.key());
  ASSERT_TRUE(file.ok());
  std::string read(6, '\0');
  EXPECT_TRUE(ReadAt(file->get(), 6, read, "it").ok());
  EXPECT_EQ(read, "states");
  EXPECT_EQ(ReadAt(file->get(), 8, read, "it").code(), absl::StatusCode::kDataLoss);
  EXPECT_GT(store_.Used(), Bytes(18));
}

TEST_F(CopyStoreTest, AShardWithoutItsRecordIsNone) {
  const CopyRecord record = RecordOf(1, 5, 0, "states");
  const auto file = store_.BeginShard(record.key(), std::nullopt);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(WriteAll(file->get(), std::string("states"), "it").ok());
  EXPECT_THAT(Keys(), IsEmpty());
}

// The old copy becomes invalid before its file is overwritten. If it was longer than the new one, the rest is cut off.
TEST_F(CopyStoreTest, AFileIsWrittenOverForTheNextStep) {
  const CopyRecord old = RecordOf(1, 5, 0, "long old states"), next = RecordOf(1, 6, 0, "new");
  ASSERT_TRUE(Write(old, "long old states").ok());
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(store_.ShardPath(old.key()).c_str(), &before), 0);
  const auto file = store_.BeginShard(next.key(), old.key());
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(Keys(), IsEmpty());
  ASSERT_TRUE(WriteAll(file->get(), std::string("new"), "it").ok());
  ASSERT_TRUE(store_.Complete(next).ok());
  EXPECT_THAT(Keys(), ElementsAre(next.key()));
  EXPECT_TRUE(store_.Verify(next).ok());
  ASSERT_EQ(::stat(store_.ShardPath(next.key()).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_FALSE(fs::exists(store_.ShardPath(old.key())));
  // If the old file does not exist any more, a new one is made.
  EXPECT_TRUE(Write(RecordOf(1, 7, 0, "x"), "x", CopyKey{Generation(1), 3, next.shard.file}).ok());
}

TEST_F(CopyStoreTest, DamageIsTold) {
  const CopyRecord one = RecordOf(1, 5, 0, "states"), two = RecordOf(1, 6, 0, "states");
  ASSERT_TRUE(Write(one, "states").ok());
  ASSERT_TRUE(Write(two, "states").ok());
  folder_.Write(InFolder(one.key()), "statez");
  EXPECT_EQ(store_.Verify(one).code(), absl::StatusCode::kDataLoss);
  folder_.Write(InFolder(one.key()), "short");
  EXPECT_THAT(Keys(), ElementsAre(two.key()));
  ASSERT_EQ(store_.List().damaged.size(), 1u);
  EXPECT_THAT(store_.List().damaged[0], HasSubstr("its shard is missing or of another size"));
  std::string record = folder_.Read(InFolder(two.key()) + ".json");
  record[record.size() / 2] ^= 1;
  folder_.Write(InFolder(two.key()) + ".json", record);
  EXPECT_THAT(Keys(), IsEmpty());
  EXPECT_EQ(store_.List().damaged.size(), 2u);
}

// The file name of a record names another step than the record itself.
TEST_F(CopyStoreTest, ARecordUnderAnotherNameIsDamage) {
  const CopyRecord one = RecordOf(1, 5, 0, "states");
  ASSERT_TRUE(Write(one, "states").ok());
  CopyKey other = one.key();
  other.step = 6;
  fs::rename(store_.ShardPath(one.key()), store_.ShardPath(other));
  fs::rename(store_.ShardPath(one.key()) + ".json", store_.ShardPath(other) + ".json");
  EXPECT_THAT(Keys(), IsEmpty());
  EXPECT_EQ(store_.List().damaged.size(), 1u);
}

TEST_F(CopyStoreTest, AGenerationThatResumedIsAFence) {
  ASSERT_TRUE(Write(RecordOf(2, 5, 0, "states"), "states").ok());
  ASSERT_TRUE(store_.MarkResumed({Generation(2), 4}).ok());
  EXPECT_TRUE(Write(RecordOf(2, 6, 0, "states"), "states").ok());  // no newer generation has resumed yet
  ASSERT_TRUE(store_.MarkResumed({Generation(3), 6}).ok());
  const absl::Status fenced = Write(RecordOf(2, 7, 0, "states"), "states");
  EXPECT_EQ(fenced.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(fenced.message()), HasSubstr("generation 3 of the job has begun"));
  EXPECT_EQ(Keys().size(), 2u);
  EXPECT_THAT(store_.List().resumed, ElementsAre(ResumedMark{Generation(2), 4}, ResumedMark{Generation(3), 6}));
}

TEST_F(CopyStoreTest, OlderGenerationsGoAndTheirMarksStay) {
  const CopyRecord old = RecordOf(1, 5, 0, "states"), own = RecordOf(2, 3, 0, "states");
  ASSERT_TRUE(Write(old, "states").ok());
  ASSERT_TRUE(store_.BeginShard(RecordOf(1, 6, 0, "").key(), std::nullopt).ok());  // a shard that is not complete
  ASSERT_TRUE(Write(own, "states").ok());
  ASSERT_TRUE(store_.MarkResumed({Generation(2), 3}).ok());
  store_.RemoveOlderThan(Generation(2));
  EXPECT_THAT(Keys(), ElementsAre(own.key()));
  EXPECT_EQ(std::distance(fs::directory_iterator(store_.folder()), {}), 3);  // a shard, its record and a mark
  store_.Remove(own.key());
  EXPECT_EQ(std::distance(fs::directory_iterator(store_.folder()), {}), 1);
}

TEST_F(CopyStoreTest, NothingIsThereBeforeTheFirst) {
  const CopyStore absent(folder_.Path("nowhere"), JobId("job"));
  EXPECT_THAT(absent.List().copies, IsEmpty());
  EXPECT_EQ(absent.Used(), Bytes(0));
  EXPECT_EQ(absent.OpenShard({Generation(1), 2, "shard-0000-0000.safetensors"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(absent.BeginShard({Generation(1), 2, "shard-0000-0000.safetensors"}, std::nullopt).ok());
}

// /dev/full can be opened, but every write to it fails.
TEST_F(CopyStoreTest, AFullMemoryIsResourceExhausted) {
  const UniqueFd full(::open("/dev/full", O_WRONLY));
  ASSERT_TRUE(full.valid());
  const absl::Status status = WriteAll(full.get(), std::string("states"), "the shard");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the shard"));
}

}  // namespace
}  // namespace lynx::worker
