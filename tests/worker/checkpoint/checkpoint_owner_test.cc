// Tests who may change a checkpoint directory, and which checkpoints of other generations, jobs and runs may be loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "tests/worker/checkpoint/checkpoint_world.h"
#include "tests/worker/checkpoint/faulty_file_system.h"
#include "tests/worker/test_folder.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kDirectory[] = "/run/checkpoints";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// A file system that runs an action just before the next call of one kind.
class Interrupted : public FaultyFileSystem {
 public:
  std::function<void()> before_create, before_rename, before_remove;

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override {
    Interrupt(before_create);
    return FaultyFileSystem::CreateFile(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    Interrupt(before_rename);
    return FaultyFileSystem::Rename(from, to);
  }
  absl::Status RemoveTree(const std::string& path) override {
    Interrupt(before_remove);
    return FaultyFileSystem::RemoveTree(path);
  }

 private:
  static void Interrupt(std::function<void()>& what) {
    if (what == nullptr) return;
    const std::function<void()> once = std::exchange(what, nullptr);
    once();
  }
};

// A generation has begun but has not published anything yet. The older generation must not be able to change anything.
TEST(CheckpointOwner, AnOlderGenerationIsFencedBeforeItsSuccessorPublishes) {
  FaultyFileSystem files;
  CheckpointWorld world({1, 2, 1});
  ASSERT_EQ(ClaimDirectory(kDirectory, world.Identity(0, 1), files), absl::OkStatus());
  for (const int64_t step : {10, 20}) {
    ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(step, 1), 2, files), absl::OkStatus());
  }
  ASSERT_EQ(ClaimDirectory(kDirectory, world.Identity(0, 2), files), absl::OkStatus());
  ASSERT_EQ(world.LoadNewest(kDirectory, files), 20);

  const absl::Status status = world.WriteAndPublish(kDirectory, world.Identity(30, 1), 1, files);
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("generation 2 of job job-1"), HasSubstr("generation, 1, is replaced")));
  PruneCheckpoints(kDirectory, world.Identity(30, 1), 1, files);
  EXPECT_THAT(files.List(kDirectory).value(),
              ElementsAre(".fence-job-1.g2", ".step-00000030.job-1.g1", "step-00000010", "step-00000020"));
  // The newer generation continues. It removes the unpublished checkpoint that the older generation left.
  ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(30, 2), 2, files), absl::OkStatus());
  EXPECT_THAT(files.List(kDirectory).value(), ElementsAre(".fence-job-1.g2", "step-00000020", "step-00000030"));
}

// The fence is raised while the older generation is publishing, or is about to remove a checkpoint.
TEST(CheckpointOwner, AFenceRaisedInTheMiddleHoldsToo) {
  CheckpointWorld world({1, 1, 1});
  const auto claim = [&](FileSystem& files) {
    ASSERT_EQ(ClaimDirectory(kDirectory, world.Identity(0, 2), files), absl::OkStatus());
  };
  {  // the fence is raised after the older generation has looked for fences; it stops before its checkpoint becomes visible
    Interrupted files;
    ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(10, 1), 1, files), absl::OkStatus());
    ASSERT_EQ(world.Write(kDirectory, world.Identity(20, 1), files), absl::OkStatus());
    // Writes only the fence. ClaimDirectory would also remove the unpublished checkpoint.
    files.before_create = [&] { ASSERT_TRUE(WriteWholeFile(files, std::string(kDirectory) + "/.fence-job-1.g2", "").ok()); };
    const absl::Status status = PublishCheckpoint(kDirectory, world.Identity(20, 1), files).status();
    EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
    EXPECT_EQ(world.LoadNewest(kDirectory, files), 10);
  }
  // The fence is raised before the rename. The older generation must not remove the checkpoint from which the newer
  // generation continues.
  {
    Interrupted files;
    ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(10, 1), 1, files), absl::OkStatus());
    world.Train(20);
    ASSERT_EQ(world.Write(kDirectory, world.Identity(20, 1), files), absl::OkStatus());
    int64_t resumed_from = -1;
    files.before_rename = [&] {
      claim(files);
      resumed_from = world.LoadNewest(kDirectory, files);
    };
    PublishCheckpoint(kDirectory, world.Identity(20, 1), files).status().IgnoreError();
    PruneCheckpoints(kDirectory, world.Identity(20, 1), 1, files);
    EXPECT_EQ(resumed_from, 10);
    EXPECT_EQ(world.Load(kDirectory, 10, files), absl::OkStatus()) << "what the successor resumed from is gone";
  }
  {  // the fence is raised before the removal; the newer generation has then seen the newest published checkpoint
    Interrupted files;
    ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(10, 1), 1, files), absl::OkStatus());
    world.Train(20);
    ASSERT_EQ(world.Write(kDirectory, world.Identity(20, 1), files), absl::OkStatus());
    ASSERT_TRUE(PublishCheckpoint(kDirectory, world.Identity(20, 1), files).ok());
    int64_t resumed_from = -1;
    files.before_remove = [&] {
      claim(files);
      resumed_from = world.LoadNewest(kDirectory, files);
    };
    PruneCheckpoints(kDirectory, world.Identity(20, 1), 1, files);
    EXPECT_EQ(resumed_from, 20);
    EXPECT_EQ(world.LoadNewest(kDirectory, files), 20);
  }
}

TEST(CheckpointOwner, AGenerationThatComesLateCannotClaim) {
  FaultyFileSystem files;
  CheckpointWorld world({1, 1, 1});
  ASSERT_EQ(ClaimDirectory(kDirectory, world.Identity(0, 3), files), absl::OkStatus());
  ASSERT_EQ(ClaimDirectory(kDirectory, world.Identity(0, 3), files), absl::OkStatus());  // the same generation may claim again
  EXPECT_TRUE(absl::IsAlreadyExists(ClaimDirectory(kDirectory, world.Identity(0, 2), files)));
  EXPECT_THAT(files.List(kDirectory).value(), ElementsAre(".fence-job-1.g3"));
  // A fence survives a crash of the machine.
  files.Crash(Unsynced::kLost);
  EXPECT_TRUE(absl::IsAlreadyExists(ClaimDirectory(kDirectory, world.Identity(0, 2), files)));
  // The fence of a job does not stop another job, because the generations of the jobs are independent.
  CheckpointIdentity other = world.Identity(0, 1);
  other.job = JobId("job-2");
  EXPECT_EQ(ClaimDirectory(kDirectory, other, files), absl::OkStatus());
}

// Two jobs have the same explicit directory, and are at the same step and generation.
TEST(CheckpointOwner, TwoJobsNeverMixTheirShards) {
  FaultyFileSystem files;
  CheckpointWorld world({1, 2, 1});
  const CheckpointIdentity first = world.Identity(10);
  CheckpointIdentity second = first;
  second.job = JobId("job-2");
  world.Train(10);
  ASSERT_EQ(world.Write(kDirectory, first, files), absl::OkStatus());
  world.Train(11);  // other weights
  ASSERT_EQ(world.Write(kDirectory, second, files), absl::OkStatus());
  // Each job has its own unpublished checkpoint, and neither job removes that of the other.
  ASSERT_EQ(ClaimDirectory(kDirectory, second, files), absl::OkStatus());
  ASSERT_TRUE(PublishCheckpoint(kDirectory, first, files).ok());
  PruneCheckpoints(kDirectory, first, 1, files);
  const absl::Status status = PublishCheckpoint(kDirectory, second, files).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("the job is job-1 in the checkpoint, job-2 here"));
  ASSERT_EQ(world.Load(kDirectory, first, files), absl::OkStatus());
  EXPECT_TRUE(world.Holds(10));
  EXPECT_TRUE(absl::IsFailedPrecondition(world.Load(kDirectory, second, files)));
}

TEST(CheckpointOwner, AnotherRunsCheckpointIsRefusedByName) {
  const TestFolder folder;
  CheckpointWorld world({1, 1, 1});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10), 2), absl::OkStatus());
  CheckpointIdentity here = world.Identity(10);
  const auto expect_refused = [&](const std::string& part) {
    const absl::Status status = world.Load(folder.path(), here);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("step-00000010"), HasSubstr(part)));
    here = world.Identity(10);
  };
  here.job = JobId("job-2");
  expect_refused("the job is job-1 in the checkpoint, job-2 here");
  here.seed = 4;
  expect_refused("the seed is 18446744073709551615 in the checkpoint, 4 here");
  here.data.bytes = Bytes(1001);
  expect_refused("the data is text of 1000 bytes, SHA-256 dddddddddddddddd in the checkpoint, text of 1001 bytes");
  here.data.sha256[0] = 'e';
  expect_refused("SHA-256 eddddddddddddddd here");
  here.data.kind = DataKind::kMegatron;
  expect_refused("megatron of 1000 bytes");
  here.model.family = ModelFamily::kLlama;
  expect_refused("model.family is gpt in the checkpoint, llama here");
  here.model.kv_heads = 1;
  expect_refused("model.kvHeads is 2 in the checkpoint, 1 here");
  here.model.attention = AttentionKernel::kFused;
  expect_refused("model.attention is unfused in the checkpoint, fused here");
  here.model.tied_embeddings = true;
  expect_refused("model.tiedEmbeddings is 0 in the checkpoint, 1 here");
  here.model.dtype = DataType::kBfloat16;
  expect_refused("model.dtype is float32 in the checkpoint, bfloat16 here");
  // The index has no field for dropout_masks, because no checkpoint was ever written with another value.
  here.model.dropout_masks = DropoutMasks::kStored;
  expect_refused("the model differs");
  EXPECT_EQ(world.Load(folder.path(), here), absl::OkStatus());
}

// Tests what another run may begin with: the whole checkpoint, or only its weights.
TEST(CheckpointOwner, AnotherRunBeginsWithWhatFits) {
  const TestFolder folder;
  CheckpointWorld world({.tp = 2});
  ASSERT_EQ(world.WriteAndPublish(folder.path(), world.Identity(10), 2), absl::OkStatus());
  CheckpointIdentity here = world.Identity(0, 7);
  here.job = JobId("job-2");
  here.layout = {};
  CheckpointWorld reader({});
  WorldRank& rank = reader.ranks()[0];
  const auto load = [&](StartWith with) {
    const absl::Status status = LoadStart(folder.path(), 10, with, here, rank.context, 0, rank.state);
    EXPECT_EQ(LoadStart(folder.path() + "/step-00000010/", 10, with, here, rank.context, 0, rank.state), status);
    return status;
  };
  here.model.dropout = 0.5;
  here.model.attention = AttentionKernel::kFused;
  here.model.dtype = DataType::kBfloat16;  // no tensor of the checkpoint has this type
  reader.Poison();
  EXPECT_EQ(load(StartWith::kAll), absl::OkStatus());
  EXPECT_TRUE(reader.Holds(10));

  here.seed = 4;
  here.data.bytes = Bytes(1001);
  const absl::Status refused = load(StartWith::kAll);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(Message(refused), AllOf(HasSubstr("cannot go on from"), HasSubstr("step-00000010"), HasSubstr("the seed"),
                                      HasSubstr("the data"), HasSubstr("checkpoint.weightsOnly")));
  reader.Poison();
  EXPECT_EQ(load(StartWith::kWeights), absl::OkStatus());
  for (const std::span<float> moments : {rank.state.first_moments(), rank.state.second_moments()}) {
    EXPECT_TRUE(std::all_of(moments.begin(), moments.end(), [](float value) { return value == 0; }));
  }
  EXPECT_FALSE(std::all_of(rank.state.weights().begin(), rank.state.weights().end(), [](float v) { return v <= 0; }));

  here.model.heads = 4;  // the shapes are the same, but their meaning differs
  const absl::Status other = load(StartWith::kWeights);
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(Message(other), AllOf(HasSubstr("cannot begin with the weights of"), HasSubstr("model.heads is 2")));
}

// The index lists the shard, but the shard's metadata names another job or another step.
TEST(CheckpointOwner, AShardOfAnotherCheckpointIsRefused) {
  const TestFolder folder;
  CheckpointWorld world({1, 1, 1});
  world.Train(10);
  CheckpointIdentity other = world.Identity(10);
  other.job = JobId("job-2");
  for (const auto& [written, published, part] :
       {std::tuple(other, world.Identity(10), "job is job-2 in the file, job-1 here"),
        std::tuple(world.Identity(20), world.Identity(10), "step is 20 in the file, 10 here")}) {
    const std::string directory = folder.Path(part);
    ASSERT_EQ(world.Write(directory, written), absl::OkStatus());
    const auto attempt = [&](const CheckpointIdentity& identity) {
      return directory + "/.step-000000" + std::to_string(identity.step) + "." + identity.job.value + ".g1";
    };
    ASSERT_EQ(PosixFileSystem().Rename(attempt(written), attempt(published)), absl::OkStatus());
    ASSERT_TRUE(PublishCheckpoint(directory, published).ok());
    const absl::Status status = world.Load(directory, published);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("shard-0000-0000"), HasSubstr(part)));
  }
}

// If the index cannot express an identity, it would be read as another identity. So no checkpoint is published.
TEST(CheckpointOwner, AnIdentityBeyondTheIndexIsNotPublished) {
  FaultyFileSystem files;
  CheckpointWorld world({1, 1, 1});
  ASSERT_EQ(world.Write(kDirectory, world.Identity(10), files), absl::OkStatus());
  const auto expect_refused = [&](const CheckpointIdentity& identity, const std::string& part) {
    const absl::Status status = PublishCheckpoint(kDirectory, identity, files).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Message(status), AllOf(HasSubstr("cannot describe this run"), HasSubstr(part)));
    EXPECT_EQ(world.LoadNewest(kDirectory, files), -1);
  };
  CheckpointIdentity identity = world.Identity(10);
  identity.layout.cp = 2;
  expect_refused(identity, "cp2");
  identity = world.Identity(10);
  identity.model.dropout_masks = DropoutMasks::kStored;
  expect_refused(identity, "read as another one");
  identity = world.Identity(10);
  identity.layout.dp = 1 << 17;
  expect_refused(identity, "dp is 131072");
  EXPECT_TRUE(PublishCheckpoint(kDirectory, world.Identity(10), files).ok());
}

// Every rank reads its own shard back, and rank 0 reads no other shard. So verifying takes as long as writing, however many
// ranks there are.
TEST(CheckpointOwner, EachRankVerifiesItsOwnShard) {
  FaultyFileSystem files;
  CheckpointWorld world({1, 2, 1});
  files.DamageNext("shard-0001-0000.safetensors");
  const absl::Status damaged = world.Write(kDirectory, world.Identity(10), files);
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(Message(damaged), AllOf(HasSubstr("shard-0001-0000.safetensors"), HasSubstr("SHA-256")));
  ASSERT_EQ(world.Write(kDirectory, world.Identity(10), files), absl::OkStatus());

  const int64_t before = files.read_bytes();
  const absl::StatusOr<Bytes> published = PublishCheckpoint(kDirectory, world.Identity(10), files);
  ASSERT_TRUE(published.ok()) << published.status();
  EXPECT_LT(files.read_bytes() - before, 1000);  // only two record files are read
  EXPECT_GT(published->value, 10'000);
}

}  // namespace
}  // namespace lynx::worker
