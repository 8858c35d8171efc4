// Publishes a checkpoint while call number k of the file system fails, for k = 1, 2, ... until all calls have succeeded. After
// every failure there must be a complete checkpoint, the old one or the new one, and the next generation must be able to
// continue from it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/worker/checkpoint/checkpoint_world.h"
#include "tests/worker/checkpoint/faulty_file_system.h"

namespace lynx::worker {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kDirectory[] = "/run/checkpoints";
// A checkpoint of the small model always makes fewer calls than this.
constexpr int kCallLimit = 5000;

struct FaultMode {
  const char* name;
  Fault fault;
  Unsynced unsynced;
};
constexpr FaultMode kModes[] = {{"one call fails", Fault::kFailOnce, Unsynced::kKept},
                                {"killed, what was not synced is lost", Fault::kStop, Unsynced::kLost},
                                {"killed, everything written reached the disk", Fault::kStop, Unsynced::kKept}};

// Runs `prepare`, which leaves a complete checkpoint of step 10. Then generation 2 writes a checkpoint of step 20 while a call
// fails, and generation 3 writes it again without faults. At the end the directory must have `names_at_last`. This is repeated
// for every call and mode. `keep`: the number of checkpoints to keep.
void FailEveryCall(int32_t keep, const std::function<void(CheckpointWorld&, FaultyFileSystem&)>& prepare,
                   const std::vector<std::string>& names_at_last) {
  for (const FaultMode& mode : kModes) {
    CheckpointWorld world({1, 2, 1});
    bool failed = true;
    int call = 1;
    for (; failed && call < kCallLimit; ++call) {
      SCOPED_TRACE(std::string(mode.name) + ", call " + std::to_string(call));
      FaultyFileSystem files;
      prepare(world, files);
      files.FailAt(call, mode.fault);
      absl::Status published = ClaimDirectory(kDirectory, world.Identity(20, 2), files);
      if (published.ok()) published = world.WriteAndPublish(kDirectory, world.Identity(20, 2), keep, files);
      failed = files.Failed();
      if (!failed) {
        ASSERT_EQ(published, absl::OkStatus());
      }
      if (mode.fault == Fault::kStop) {
        files.Crash(mode.unsynced);
      } else if (!published.ok()) {
        DiscardCheckpoint(kDirectory, world.Identity(20, 2), files);
      }
      files.Heal();

      std::vector<std::string> damaged;
      ASSERT_TRUE(ListCheckpoints(kDirectory, &damaged, files).ok());
      ASSERT_THAT(damaged, IsEmpty());
      const int64_t newest = world.LoadNewest(kDirectory, files);
      ASSERT_THAT(newest, AnyOf(10, 20));
      if (published.ok()) {
        ASSERT_EQ(newest, 20);
      }
      ASSERT_TRUE(world.Holds(newest));

      ASSERT_EQ(ClaimDirectory(kDirectory, world.Identity(20, 3), files), absl::OkStatus());
      ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(20, 3), keep, files), absl::OkStatus());
      ASSERT_EQ(world.LoadNewest(kDirectory, files), 20);
      ASSERT_TRUE(world.Holds(20));
      ASSERT_EQ(files.List(kDirectory).value(), names_at_last);
    }
    EXPECT_GT(call, 100) << mode.name << ": too few faults to have meant anything";
    EXPECT_LT(call, kCallLimit) << mode.name;
  }
}

void PublishTen(CheckpointWorld& world, FaultyFileSystem& files) {
  ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(10, 1), 2, files), absl::OkStatus());
}

TEST(CheckpointFault, EveryFailureLeavesTheOldOrTheNewCheckpoint) {
  FailEveryCall(1, PublishTen, {".fence-job-1.g3", "step-00000020"});
}

TEST(CheckpointFault, EveryFailureWhileReplacingADamagedCheckpointLeavesAWholeOne) {
  const auto prepare = [](CheckpointWorld& world, FaultyFileSystem& files) {
    PublishTen(world, files);
    ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(20, 1), 2, files), absl::OkStatus());
    files.Content(std::string(kDirectory) + "/step-00000020/shard-0001-0000.safetensors").back() ^= 1;
    files.Crash(Unsynced::kKept);
    ASSERT_EQ(world.LoadNewest(kDirectory, files), 10);
  };
  FailEveryCall(2, prepare, {".fence-job-1.g3", "step-00000010", "step-00000020"});
}

TEST(CheckpointFault, ADiskThatFillsUpAtAnyPointLeavesTheOldCheckpoint) {
  CheckpointWorld world({1, 2, 1});
  bool full = true;
  for (int64_t capacity = 1; full; capacity += 997) {
    FaultyFileSystem files;
    PublishTen(world, files);
    files.SetCapacity(files.written_bytes() + capacity);
    const absl::Status status = world.WriteAndPublish(kDirectory, world.Identity(20, 1), 2, files);
    full = !status.ok();
    if (!full) break;
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    DiscardCheckpoint(kDirectory, world.Identity(20, 1), files);
    ASSERT_THAT(files.List(kDirectory).value(), ElementsAre("step-00000010"));
    ASSERT_EQ(world.LoadNewest(kDirectory, files), 10);
  }
}

// Tests the tool of these tests: bytes and names that were not synced do not survive a crash.
TEST(FaultyFileSystem, LosesWhatWasNotSynced) {
  FaultyFileSystem files;
  ASSERT_TRUE(files.CreateFolders("/a").ok());
  {
    auto file = files.CreateFile("/a/synced").value();
    ASSERT_TRUE(file->Append("one").ok() && file->Sync().ok() && file->Append("two").ok());
    ASSERT_TRUE(WriteWholeFile(files, "/a/nameless", "x").ok());
  }
  files.Crash(Unsynced::kLost);
  EXPECT_THAT(files.List("/a").value(), IsEmpty());
  ASSERT_TRUE(WriteWholeFile(files, "/a/whole", "x").ok() && files.SyncFolder("/a").ok());
  ASSERT_TRUE(files.Rename("/a/whole", "/a/renamed").ok());
  files.Crash(Unsynced::kLost);
  EXPECT_THAT(files.List("/a").value(), ElementsAre("whole"));
}

}  // namespace
}  // namespace lynx::worker
