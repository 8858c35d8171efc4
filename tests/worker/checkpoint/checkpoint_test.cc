#include "worker/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "common/status.h"
#include "tests/worker/checkpoint/checkpoint_world.h"
#include "tests/worker/test_folder.h"
#include "worker/checkpoint/safetensors.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::vector<std::string> NamesIn(const std::string& directory) {
  return PosixFileSystem().List(directory).value_or(std::vector<std::string>{"(cannot be listed)"});
}

std::vector<int64_t> StepsIn(const std::string& directory) {
  std::vector<std::string> damaged;
  std::vector<int64_t> steps;
  const auto summaries = ListCheckpoints(directory, &damaged);
  EXPECT_TRUE(summaries.ok()) << summaries.status();
  if (!summaries.ok()) return {};
  for (const CheckpointSummary& summary : *summaries) steps.push_back(summary.identity.step);
  EXPECT_THAT(damaged, IsEmpty());
  return steps;
}

TEST(Checkpoint, LoadsWhatWasWrittenInEveryLayout) {
  const ParallelLayout interleaved{.tp = 2, .pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved};
  const ParallelLayout both_ways{.pp = 2, .schedule = ScheduleKind::kChimera};
  for (const ParallelLayout& layout : {ParallelLayout{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 2, 2}, interleaved, both_ways}) {
    const TestFolder folder;
    ModelSpec model = WorldModel();
    model.layers = 4;
    CheckpointWorld world(layout, model);
    ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(100), 2), absl::OkStatus());
    world.Poison();
    ASSERT_FALSE(world.Holds(100));
    ASSERT_EQ(world.Load(folder.path(), 100), absl::OkStatus());
    EXPECT_TRUE(world.Holds(100)) << LayoutText(layout);
    // The file has no padding, and loading does not change the padding in memory.
    for (const WorldRank& rank : world.ranks()) {
      if (rank.tp_rank != 1 || !rank.context.has_embedding()) continue;
      const ParameterSlot& tok = rank.state.slots().front();
      EXPECT_EQ(tok.pieces[0].rows, 6);
      EXPECT_EQ(tok.count, 7 * 8);
    }
  }
}

TEST(Checkpoint, ListsIdentityAndFiles) {
  const TestFolder folder;
  CheckpointWorld world({2, 2, 1});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(7, 3), 2), absl::OkStatus());
  std::vector<std::string> damaged;
  const std::vector<CheckpointSummary> summaries = ListCheckpoints(folder.path(), &damaged).value();
  ASSERT_EQ(summaries.size(), 1u);
  EXPECT_EQ(summaries[0].identity, world.Identity(7, 3));
  EXPECT_EQ(summaries[0].path, CheckpointPath(folder.path(), 7));
  Bytes on_disk;
  for (const ShardRecord& file : summaries[0].files) {
    on_disk += Bytes(static_cast<int64_t>(fs::file_size(summaries[0].path + "/" + file.file)));
  }
  EXPECT_EQ(summaries[0].bytes, on_disk);
  EXPECT_THAT(
      NamesIn(summaries[0].path),
      ElementsAre("index.json", "shard-0000-0000.safetensors", "shard-0000-0000.safetensors.sha256",
                  "shard-0000-0001.safetensors", "shard-0000-0001.safetensors.sha256", "shard-0001-0000.safetensors",
                  "shard-0001-0000.safetensors.sha256", "shard-0001-0001.safetensors", "shard-0001-0001.safetensors.sha256"));
}

absl::StatusOr<SafetensorsHeader> HeaderOf(const std::string& file) {
  LYNX_ASSIGN_OR_RETURN(const int64_t length,
                        DecodeSafetensorsPrefix(std::string_view(file).substr(0, 8), static_cast<int64_t>(file.size())));
  return DecodeSafetensorsHeader(std::string_view(file).substr(8, static_cast<size_t>(length)),
                                 static_cast<int64_t>(file.size()) - 8 - length);
}

// If the first and the last stage both hold a tied embedding, the last stage's shard says that its weight is a copy.
TEST(Checkpoint, ShardsSayWhichWeightIsACopy) {
  const TestFolder folder;
  ModelSpec model = WorldModel();
  model.tied_embeddings = true;
  CheckpointWorld world({1, 2, 1}, model);
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(1), 1), absl::OkStatus());
  const auto first = HeaderOf(folder.Read("step-00000001/shard-0000-0000.safetensors"));
  const auto last = HeaderOf(folder.Read("step-00000001/shard-0001-0000.safetensors"));
  ASSERT_TRUE(first.ok() && last.ok());
  EXPECT_FALSE(first->metadata.contains("copy.embed.tok"));
  EXPECT_EQ(last->metadata.at("copy.head.out.weight"), "embed.tok");
  world.Train(2);
  ASSERT_EQ(world.Load(folder.path(), world.Identity(1)), absl::OkStatus());
  EXPECT_TRUE(world.Holds(1));

  CheckpointWorld whole({1, 1, 1}, model);  // in this layout one rank has the weight once
  ASSERT_EQ(whole.WriteAndPublish(folder.path() + "/whole", whole.Identity(1), 1), absl::OkStatus());
  const auto only = HeaderOf(folder.Read("whole/step-00000001/shard-0000-0000.safetensors"));
  ASSERT_TRUE(only.ok());
  EXPECT_TRUE(only->metadata.contains("place.embed.tok"));
  EXPECT_FALSE(only->metadata.contains("place.head.out.weight"));
}

TEST(Checkpoint, ShardsSayWhereTheirPiecesBelong) {
  const TestFolder folder;
  CheckpointWorld world({2, 1, 1});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(1), 1), absl::OkStatus());
  const auto header = HeaderOf(folder.Read("step-00000001/shard-0000-0001.safetensors"));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata.at("place.embed.tok"), "13x8: 7+6,0+8");
  EXPECT_EQ(header->metadata.at("place.layers.0.qkv.weight"), "24x8: 4+4,0+8 12+4,0+8 20+4,0+8");
  EXPECT_EQ(header->metadata.at("place.layers.0.qkv.bias"), "1x24: 0+1,4+4 0+1,12+4 0+1,20+4");
  EXPECT_EQ(header->metadata.at("place.layers.1.fc2.weight"), "8x12: 0+8,6+6");
  EXPECT_EQ(header->metadata.at("step"), "1");
  for (const SafetensorsEntry& entry : header->tensors) {
    if (entry.name == "embed.tok.exp_avg") {
      EXPECT_EQ(entry.shape, (std::vector<int64_t>{6, 8}));
    }
    if (entry.name == "layers.0.qkv.weight") {
      EXPECT_EQ(entry.shape, (std::vector<int64_t>{12, 8}));
    }
    if (entry.name == "layers.0.qkv.bias.exp_avg_sq") {
      EXPECT_EQ(entry.shape, (std::vector<int64_t>{12}));
    }
    if (entry.name == "layers.1.fc2.weight") {
      EXPECT_EQ(entry.shape, (std::vector<int64_t>{8, 6}));
    }
  }
}

TEST(Checkpoint, KeepsTheNewestAndClearsWhatCrashesLeft) {
  const TestFolder folder;
  CheckpointWorld world({1, 2, 1});
  for (const int64_t step : {10, 20, 30}) {
    ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(step), 2), absl::OkStatus());
  }
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("step-00000020", "step-00000030"));

  // The folder gets unpublished checkpoints of an older, of this and of a newer generation, a half-removed checkpoint,
  // unpublished checkpoints of other jobs, fences of an older generation and of another job, and other files. The id of one
  // other job begins with this job's id.
  for (const char* name :
       {".step-00000040.job-1.g1", ".step-00000040.job-1.g2", ".step-00000050.job-1.g3", ".removed-step-00000010",
        ".step-x.job-1.g1", ".step-00000040.job-2.g1", ".step-00000040.job-1.g.g1", ".fence-job-2.g1", "notes"}) {
    fs::create_directories(folder.Path(name));
  }
  folder.Write(".fence-job-1.g1", "");
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(40, 2), 1), absl::OkStatus());
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre(".fence-job-2.g1", ".step-00000040.job-1.g.g1", ".step-00000040.job-2.g1",
                                                  ".step-00000050.job-1.g3", ".step-x.job-1.g1", "notes", "step-00000040"));
  EXPECT_THAT(StepsIn(folder.path()), ElementsAre(40));
}

TEST(Checkpoint, LeavesLaterStepsAndOtherJobsAlone) {
  const TestFolder folder;
  CheckpointWorld world({1, 1, 1});
  CheckpointIdentity other = world.Identity(5, 9);
  other.job = JobId("job-2");
  ASSERT_EQ(world.WriteAndPublish(folder.path(), other, 1), absl::OkStatus());
  for (const int64_t step : {10, 30, 20}) {
    ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(step), 1), absl::OkStatus());
  }
  EXPECT_THAT(StepsIn(folder.path()), ElementsAre(30, 20, 5));
}

TEST(Checkpoint, DiscardRemovesTheAttempt) {
  const TestFolder folder;
  CheckpointWorld world({1, 1, 1});
  ASSERT_EQ(world.Write(folder.path(), world.Identity(10)), absl::OkStatus());
  EXPECT_THAT(StepsIn(folder.path()), IsEmpty());
  DiscardCheckpoint(folder.path(), world.Identity(10));
  EXPECT_THAT(NamesIn(folder.path()), IsEmpty());
}

TEST(Checkpoint, PublishingNeedsEveryShardAsItWasWritten) {
  const TestFolder folder;
  CheckpointWorld world({1, 2, 1});
  const CheckpointIdentity identity = world.Identity(10);
  ASSERT_EQ(world.Write(folder.path(), identity), absl::OkStatus());
  const std::string shard = ".step-00000010.job-1.g1/shard-0001-0000.safetensors";
  const std::string content = folder.Read(shard);
  const std::string record = folder.Read(shard + ".sha256");

  const auto expect_refused = [&](const std::string& part) {
    const absl::Status status = PublishCheckpoint(folder.path(), identity).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("shard-0001-0000"), HasSubstr(part)));
    EXPECT_THAT(StepsIn(folder.path()), IsEmpty());
  };
  folder.Write(shard, content.substr(0, content.size() - 1));
  expect_refused("bytes, not the");
  fs::remove(folder.Path(shard));
  expect_refused("missing");
  folder.Write(shard, content);
  fs::remove(folder.Path(shard + ".sha256"));
  expect_refused("has not written its shard");
  for (size_t length = 0; length < record.size(); ++length) {
    folder.Write(shard + ".sha256", record.substr(0, length));
    expect_refused("damaged");
  }
  folder.Write(shard + ".sha256", record);
  EXPECT_EQ(PublishCheckpoint(folder.path(), identity).status(), absl::OkStatus());
}

TEST(Checkpoint, AReplacedGenerationIsRefused) {
  const TestFolder folder;
  CheckpointWorld world({1, 1, 1});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10, 3), 2), absl::OkStatus());
  for (const int64_t step : {10, 20}) {
    const absl::Status status = world.WriteAndPublish(folder.path(), world.Identity(step, 2), 2);
    EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("generation 3"), HasSubstr("generation, 2,")));
  }
  EXPECT_THAT(StepsIn(folder.path()), ElementsAre(10));
}

TEST(Checkpoint, AWholeCheckpointOfTheSameStepStays) {
  const TestFolder folder;
  CheckpointWorld world({1, 2, 1});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10, 1), 2), absl::OkStatus());
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10, 2), 2), absl::OkStatus());
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("step-00000010"));
  EXPECT_EQ(ListCheckpoints(folder.path(), nullptr)->at(0).identity.generation, Generation(1));
  ASSERT_EQ(world.Load(folder.path(), 10), absl::OkStatus());
  EXPECT_TRUE(world.Holds(10));
}

TEST(Checkpoint, ADamagedCheckpointOfTheSameStepIsReplaced) {
  for (const std::string file : {"index.json", "shard-0001-0000.safetensors"}) {
    const TestFolder folder;
    CheckpointWorld world({1, 2, 1});
    ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10, 1), 2), absl::OkStatus());
    folder.Write("step-00000010/" + file, "");
    ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10, 2), 2), absl::OkStatus());
    EXPECT_THAT(NamesIn(folder.path()), ElementsAre("step-00000010"));
    ASSERT_EQ(world.Load(folder.path(), 10), absl::OkStatus());
    EXPECT_TRUE(world.Holds(10));
  }
}

TEST(Checkpoint, AStepOfAnotherRunIsNotReplaced) {
  const TestFolder folder;
  CheckpointWorld world({1, 1, 1});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10), 2), absl::OkStatus());
  CheckpointIdentity other = world.Identity(10);
  other.job = JobId("job-2");
  other.seed = 4;
  const absl::Status status = world.WriteAndPublish(folder.path(), other, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("job-1"), HasSubstr("job-2"), HasSubstr("seed is 18446744073709551615"),
                                     HasSubstr("4 here"), HasSubstr("checkpoint.directory")));
}

TEST(Checkpoint, NothingThereIsNotFound) {
  const TestFolder folder;
  CheckpointWorld world({1, 1, 1});
  for (const std::string& directory : {folder.path(), folder.Path("absent")}) {
    EXPECT_TRUE(absl::IsNotFound(world.Load(directory, 10)));
    EXPECT_THAT(StepsIn(directory), IsEmpty());
  }
}

// A directory exists but cannot be listed. The job must not begin as if it were new.
TEST(Checkpoint, AnUnreadableDirectoryIsAnErrorOfItsOwn) {
  const TestFolder folder;
  folder.Write("file", "");
  const absl::Status status = ListCheckpoints(folder.Path("file"), nullptr).status();
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(absl::IsNotFound(status));
  EXPECT_THAT(Message(status), HasSubstr("cannot list"));
  EXPECT_FALSE(ClaimDirectory(folder.Path("file"), CheckpointWorld({1, 1, 1}).Identity(0)).ok());
}

TEST(Checkpoint, EveryKindOfDamageIsDataLoss) {
  const TestFolder folder;
  CheckpointWorld world({1, 2, 1});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10), 2), absl::OkStatus());
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(20), 2), absl::OkStatus());

  for (const std::string file : {"index.json", "shard-0000-0000.safetensors", "shard-0001-0000.safetensors"}) {
    const std::string name = "step-00000020/" + file;
    const std::string content = folder.Read(name);
    const auto expect_loss = [&](const std::string& what) {
      const absl::Status status = world.Load(folder.path(), 20);
      EXPECT_TRUE(absl::IsDataLoss(status)) << what << ": " << status;
      EXPECT_THAT(Message(status), HasSubstr(name)) << what;
      EXPECT_EQ(world.LoadNewest(folder.path()), 10) << what;
      if (file != "index.json") return;
      std::vector<std::string> damaged;
      EXPECT_EQ(ListCheckpoints(folder.path(), &damaged)->size(), 1u) << what;
      EXPECT_THAT(damaged, ElementsAre(HasSubstr(name))) << what;
    };
    // Flips a bit at many places: in the header's length, in its JSON, in the data, and in each field of the index.
    for (size_t at = 0; at < content.size(); at += file == "index.json" ? 3 : 331) {
      std::string damaged = content;
      damaged[at] ^= 0x01;
      folder.Write(name, damaged);
      expect_loss("bit flipped at " + std::to_string(at));
    }
    for (const size_t length : {size_t{0}, size_t{5}, content.size() / 2, content.size() - 2}) {
      folder.Write(name, content.substr(0, length));
      expect_loss("cut to " + std::to_string(length));
    }
    folder.Write(name, content + " ");
    if (file != "index.json") expect_loss("one byte more");
    fs::remove(folder.Path(name));
    expect_loss("missing");
    folder.Write(name, content);
  }
  ASSERT_EQ(world.Load(folder.path(), 20), absl::OkStatus());
}

TEST(Checkpoint, AnotherModelIsRefusedByName) {
  const TestFolder folder;
  CheckpointWorld world({1, 2, 1});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10), 2), absl::OkStatus());

  ModelSpec wider = WorldModel();
  wider.hidden = 16;
  const absl::Status status = CheckpointWorld({1, 2, 1}, wider).Load(folder.path(), 10);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("step-00000010"), HasSubstr("model.hidden is 8 in the checkpoint, 16 here")));
}

// /dev/full answers every write with ENOSPC, like a full disk.
TEST(Checkpoint, AFullDiskIsResourceExhaustedAndLeavesTheOldCheckpoint) {
  const TestFolder folder;
  CheckpointWorld world({1, 1, 1});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10), 2), absl::OkStatus());
  fs::create_directories(folder.Path(".step-00000020.job-1.g1"));
  fs::create_symlink("/dev/full", folder.Path(".step-00000020.job-1.g1/shard-0000-0000.safetensors"));
  const absl::Status status = world.Write(folder.path(), world.Identity(20));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("shard-0000-0000.safetensors"), HasSubstr("No space left"), HasSubstr("free space")));
  DiscardCheckpoint(folder.path(), world.Identity(20));
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("step-00000010"));
  EXPECT_EQ(world.LoadNewest(folder.path()), 10);
}

}  // namespace
}  // namespace lynx::worker
