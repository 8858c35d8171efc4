// Tests checkpoints that are written in one layout and loaded in another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/digest.h"
#include "planner/problem/layout_schedule.h"
#include "tests/worker/checkpoint/checkpoint_world.h"
#include "tests/worker/checkpoint/faulty_file_system.h"
#include "tests/worker/test_folder.h"
#include "worker/checkpoint/checkpoint_index.h"
#include "worker/checkpoint/shard.h"
#include "worker/checkpoint/tensor_place.h"

namespace lynx::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kDirectory[] = "/run/checkpoints";

struct ModelCase {
  const char* name;
  ModelFamily family;
  bool tied;
};
constexpr ModelCase kModels[] = {{"Gpt", ModelFamily::kGpt, false},
                                 {"TiedGpt", ModelFamily::kGpt, true},
                                 {"Llama", ModelFamily::kLlama, false},
                                 {"TiedLlama", ModelFamily::kLlama, true}};

// The vocabulary has 13 words, so its shards have padding. The model has five layers, so stages have different lengths.
ModelSpec SpecOf(const ModelCase& model) {
  ModelSpec spec = WorldModel();
  spec.layers = 5;
  spec.heads = 4;
  spec.family = model.family;
  spec.tied_embeddings = model.tied;
  if (model.family == ModelFamily::kLlama) spec.dropout = 0;
  return spec;
}

std::vector<ParallelLayout> Layouts() {
  ParallelLayout custom{.pp = 2, .schedule = ScheduleKind::kCustom};
  EXPECT_EQ(SetCustomSchedule("custom ranks=2 microbatches=1 placement=v\n0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0\n", custom),
            absl::OkStatus());
  return {ParallelLayout{},
          {.tp = 2},
          {.tp = 4, .sequence_parallel = true},
          {.pp = 5},
          {.tp = 2, .pp = 2, .dp = 2},
          {.tp = 2, .pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved},
          {.pp = 2, .schedule = ScheduleKind::kZeroBubbleV},
          {.tp = 4, .pp = 2, .schedule = ScheduleKind::kChimera},
          custom};
}

class Reshard : public testing::TestWithParam<ModelCase> {};

// Compares every element of weights and moments, from every layout to every other layout. Padding must stay zero.
TEST_P(Reshard, LoadsTheSameBitsInEveryLayout) {
  const ModelSpec model = SpecOf(GetParam());
  for (const ParallelLayout& writer : Layouts()) {
    const TestFolder folder;
    CheckpointWorld written(writer, model);
    ASSERT_EQ(written.WriteAndPublish(folder.path(), written.Identity(10), 1), absl::OkStatus());
    for (const ParallelLayout& reader : Layouts()) {
      SCOPED_TRACE(LayoutText(writer) + " -> " + LayoutText(reader));
      CheckpointWorld read(reader, model);
      ASSERT_EQ(read.Load(folder.path(), 10), absl::OkStatus());
      ASSERT_TRUE(read.Holds(10));
      for (WorldRank& rank : read.ranks()) {
        for (const ParameterSlot& slot : rank.state.slots()) {
          for (int64_t i = PlaceOf(slot).elements(); i < slot.count; ++i) {
            ASSERT_EQ(rank.state.weights()[static_cast<size_t>(slot.offset + i)], 0.0f) << slot.name;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Reshard, testing::ValuesIn(kModels), [](const auto& info) { return std::string(info.param.name); });

ModelSpec ModelWithExperts() {
  ModelSpec model = SpecOf(kModels[2]);
  model.moe = {.experts = 24, .top_k = 2, .ffn = 6, .capacity = 1};
  return model;
}

std::vector<ParallelLayout> LayoutsOfExperts() {
  return {{},
          {.dp = 4},
          {.dp = 4, .ep = 4},
          {.dp = 4, .ep = 2},
          {.dp = 4, .zero = ZeroStage::kOptimizer},
          {.dp = 4, .ep = 2, .zero = ZeroStage::kOptimizer},
          {.dp = 4, .ep = 4, .zero = ZeroStage::kOptimizer},
          {.tp = 2, .pp = 2, .sequence_parallel = true},
          {.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true},
          {.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true},
          {.tp = 4, .ep = 2, .sequence_parallel = true},
          {.tp = 2, .dp = 3, .ep = 3, .sequence_parallel = true},
          {.tp = 2, .dp = 3, .ep = 3, .sequence_parallel = true, .zero = ZeroStage::kOptimizer}};
}

// Every rank must get its experts, whichever rank wrote them. If an expert group has ranks of several replicas, the shards of
// the first replica do not have all experts.
TEST(ReshardExperts, LoadTheSameBitsInEveryLayout) {
  const ModelSpec model = ModelWithExperts();
  const std::vector<ParallelLayout> layouts = LayoutsOfExperts();
  for (const ParallelLayout& writer : layouts) {
    const TestFolder folder;
    CheckpointWorld written(writer, model);
    ASSERT_EQ(written.WriteAndPublish(folder.path(), written.Identity(10), 1), absl::OkStatus());
    for (const ParallelLayout& reader : layouts) {
      SCOPED_TRACE(LayoutText(writer) + " -> " + LayoutText(reader));
      CheckpointWorld read(reader, model);
      ASSERT_EQ(read.Load(folder.path(), 10), absl::OkStatus());
      ASSERT_TRUE(read.Holds(10));
    }
  }
}

// Returns the number of bytes of all tensors in the files of a checkpoint.
int64_t TensorBytes(const CheckpointSummary& checkpoint, FaultyFileSystem& files) {
  int64_t bytes = 0;
  for (const ShardRecord& file : checkpoint.files) {
    const std::string& content = files.Content(checkpoint.path + "/" + file.file);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, content.data(), sizeof(header_bytes));
    bytes += static_cast<int64_t>(content.size() - sizeof(header_bytes) - header_bytes);
  }
  return bytes;
}

// Only what all tensor-parallel ranks have, such as norms, is written by each of them, as in a model without experts.
TEST(ReshardExperts, EachExpertAndEachReplicatedStateIsWrittenOnce) {
  const ModelSpec model = ModelWithExperts();
  for (const ParallelLayout& layout : LayoutsOfExperts()) {
    SCOPED_TRACE(LayoutText(layout));
    FaultyFileSystem files;
    CheckpointWorld world(layout, model);
    ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(10), 1, files), absl::OkStatus());
    int64_t elements = int64_t{3} * model.layers * model.moe.experts * model.expert_ffn() * model.hidden;
    for (const WorldRank& rank : world.ranks()) {
      if (rank.replica != 0) continue;
      for (const ParameterSlot& slot : rank.state.slots()) elements += slot.expert ? 0 : PlaceOf(slot).elements();
    }
    const CheckpointSummary checkpoint = ListCheckpoints(kDirectory, nullptr, files)->at(0);
    EXPECT_EQ(TensorBytes(checkpoint, files), 3 * elements * static_cast<int64_t>(sizeof(float)));
    const int32_t replicas = layout.zero != ZeroStage::kNone ? layout.dp : layout.ep / std::gcd(layout.tp, layout.ep);
    EXPECT_EQ(checkpoint.files.size(), static_cast<size_t>(layout.tp * layout.pp * replicas));
    Bytes states;
    for (const WorldRank& rank : world.ranks()) {
      states += StateBytes(WrittenSlots(rank.context, rank.tp_rank, rank.replica, rank.state));
    }
    EXPECT_EQ(states.value, 3 * elements * static_cast<int64_t>(sizeof(float)));
  }
}

// Writes a checkpoint as releases did whose indexes had version 4: every replica wrote all states that it updated.
void WriteAsEveryReplicaDid(CheckpointWorld& world, const std::string& directory, int64_t step) {
  world.Train(step);
  CheckpointIndex index{.identity = world.Identity(step)};
  const ParallelLayout& layout = index.identity.layout;
  const std::string folder = CheckpointPath(directory, step);
  ASSERT_EQ(PosixFileSystem().CreateFolders(folder), absl::OkStatus());
  for (WorldRank& rank : world.ranks()) {
    const std::vector<ParameterSlot>& slots = rank.state.updated();
    const auto record = WriteShardFile(
        PosixFileSystem(), folder, ShardFile(layout, rank.context.pipeline_rank, rank.tp_rank, rank.replica),
        ShardHeader(index.identity, rank.context, rank.tp_rank, slots, /*weights_only=*/false), ContentOf(rank.state, slots));
    ASSERT_TRUE(record.ok()) << record.status();
    index.files.push_back(*record);
  }
  nlohmann::json json = nlohmann::json::parse(EncodeIndex(index));
  EXPECT_EQ(json["version"], 5);
  json["version"] = 4;
  json.erase("digest");
  json["digest"] = Sha256Hex(json.dump());
  ASSERT_EQ(WriteWholeFile(PosixFileSystem(), folder + "/" + kIndexFile, json.dump()), absl::OkStatus());
}

TEST(ReshardExperts, ACheckpointThatEveryReplicaWroteIsReadInEveryLayout) {
  const ModelSpec model = ModelWithExperts();
  for (const ParallelLayout& writer :
       {ParallelLayout{.dp = 4, .ep = 2}, ParallelLayout{.tp = 2, .dp = 6, .ep = 4, .sequence_parallel = true}}) {
    const TestFolder folder;
    CheckpointWorld written(writer, model);
    WriteAsEveryReplicaDid(written, folder.path(), 10);
    const auto found = ListCheckpoints(folder.path(), nullptr);
    ASSERT_TRUE(found.ok() && found->size() == 1u);
    EXPECT_EQ(found->at(0).files.size(), static_cast<size_t>(writer.tp * writer.dp));
    for (const ParallelLayout& reader : LayoutsOfExperts()) {
      SCOPED_TRACE(LayoutText(writer) + " -> " + LayoutText(reader));
      CheckpointWorld read(reader, model);
      ASSERT_EQ(read.Load(folder.path(), 10), absl::OkStatus());
      ASSERT_TRUE(read.Holds(10));
    }
  }
}

// A rank that finds its experts in the shard of another rank of its stage does not look into the shards of other stages.
TEST(ReshardExperts, ShardsOfTheOwnStageComeFirst) {
  FaultyFileSystem files;
  const ParallelLayout layout{.pp = 2, .dp = 4, .ep = 2};
  CheckpointWorld world(layout, ModelWithExperts());
  ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(10), 1, files), absl::OkStatus());
  for (const int32_t replica : {0, 1}) {
    files.Content(std::string(kDirectory) + "/step-00000010/" + ShardFile(layout, 0, 0, replica)).clear();
  }
  for (WorldRank& rank : world.ranks()) {
    const absl::Status read = LoadCheckpoint(kDirectory, world.Identity(10), rank.context, 0, rank.state, {0, 0}, files);
    EXPECT_EQ(read.ok(), rank.context.pipeline_rank == 1) << read;
  }
}

ModelSpec LargerModel() {
  ModelSpec model = WorldModel();
  model.layers = 8;
  model.hidden = 128;
  model.ffn = 512;
  return model;
}

// With a pipeline, a rank must read only its stage. With tensor parallelism, it must read only its rows and columns.
TEST(ReshardReading, ReadsWhatIsNeeded) {
  FaultyFileSystem files;
  CheckpointWorld written({}, LargerModel());
  ASSERT_EQ(written.WriteAndPublish(kDirectory, written.Identity(10), 1, files), absl::OkStatus());
  const int64_t all = ListCheckpoints(kDirectory, nullptr, files)->at(0).bytes.value;
  ASSERT_GT(all, 10'000'000);
  for (const ParallelLayout& layout : {ParallelLayout{.pp = 4}, ParallelLayout{.tp = 2, .pp = 4}}) {
    CheckpointWorld read(layout, LargerModel());
    for (WorldRank& rank : read.ranks()) {
      const int64_t before = files.read_bytes();
      ASSERT_EQ(
          LoadCheckpoint(kDirectory, read.Identity(10), rank.context, rank.tp_rank, rank.state, {.index = 0, .of = 0}, files),
          absl::OkStatus());
      // A rank reads a quarter of the layers. With tp 2, it reads matrices that are split by columns (5 of 12 parts of a
      // layer) as a whole, because the parts of the other ranks lie between its own. It reads half of everything else.
      const double share = layout.tp == 1 ? 0.26 : 0.19;
      EXPECT_LT(static_cast<double>(files.read_bytes() - before), share * static_cast<double>(all));
    }
    EXPECT_TRUE(read.Holds(10));
  }
}

// In the layout that wrote the checkpoint, a rank reads only its own shard, if it has to verify nothing.
TEST(ReshardReading, TheOwnShardComesFirst) {
  FaultyFileSystem files;
  CheckpointWorld world({.tp = 2, .pp = 2});
  ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(10), 1, files), absl::OkStatus());
  for (const char* other : {"shard-0000-0000", "shard-0000-0001", "shard-0001-0001"}) {
    files.Content(std::string(kDirectory) + "/step-00000010/" + other + ".safetensors").clear();
  }
  WorldRank& rank = world.ranks()[2];
  EXPECT_EQ(LoadCheckpoint(kDirectory, world.Identity(10), rank.context, rank.tp_rank, rank.state, {0, 0}, files),
            absl::OkStatus());
}

// For each shard exactly one reader computes the digest, even if it needs nothing from this shard.
TEST(ReshardReading, ReadersShareOutTheDigests) {
  for (const int shard : {0, 1, 2, 3}) {
    FaultyFileSystem files;
    CheckpointWorld written({.tp = 2, .pp = 2});
    ASSERT_EQ(written.WriteAndPublish(kDirectory, written.Identity(10), 1, files), absl::OkStatus());
    const std::string name = ShardFile({.tp = 2, .pp = 2}, shard / 2, shard % 2, 0);
    files.Content(std::string(kDirectory) + "/step-00000010/" + name).back() ^= 1;
    int noticed = 0;
    for (int32_t reader = 0; reader < 3; ++reader) {
      WorldRank& rank = written.ranks()[static_cast<size_t>(reader)];
      const absl::Status status =
          LoadCheckpoint(kDirectory, written.Identity(10), rank.context, rank.tp_rank, rank.state, {reader, 3}, files);
      if (status.ok()) continue;
      ++noticed;
      EXPECT_EQ(reader, shard % 3);
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(name), HasSubstr("SHA-256")));
    }
    EXPECT_EQ(noticed, 1);
  }
}

// A damaged header may name another job. If a reader does not verify this header, it must still treat it as damaged, and not as
// the header of another job's shard.
TEST(ReshardReading, AHeaderThatNobodyVerifiedIsNoReasonToRefuse) {
  FaultyFileSystem files;
  CheckpointWorld world({.pp = 2});
  ASSERT_EQ(world.WriteAndPublish(kDirectory, world.Identity(10), 1, files), absl::OkStatus());
  std::string& content = files.Content(std::string(kDirectory) + "/step-00000010/shard-0000-0000.safetensors");
  const size_t at = content.find("job-1");
  ASSERT_NE(at, std::string::npos);
  content[at + 4] = '2';
  for (const int32_t index : {0, 1}) {
    WorldRank& rank = world.ranks()[0];
    const absl::Status status = LoadCheckpoint(kDirectory, world.Identity(10), rank.context, 0, rank.state, {index, 2}, files);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("shard-0000-0000"));
  }
}

// The shards are complete, but they are not the whole model, because both are of the first stage.
TEST(ReshardReading, WhatNoShardHasIsNamed) {
  const TestFolder folder;
  CheckpointWorld world({.pp = 2});
  const CheckpointIdentity identity = world.Identity(10);
  WorldRank& first = world.ranks()[0];
  for (const int32_t stage : {0, 1}) {
    StageContext context = first.context;
    context.pipeline_rank = stage;
    ASSERT_TRUE(WriteShard(folder.path(), identity, context, 0, 0, first.state).ok());
  }
  ASSERT_TRUE(PublishCheckpoint(folder.path(), identity).ok());
  const absl::Status status = world.Load(folder.path(), 10);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("step-00000010"), HasSubstr("layers.1.ln1.weight (1x8)")));
}

TEST(TensorPlace, ReadsBackItsText) {
  for (const char* text : {"13x8: 7+6,0+8", "24x8: 4+4,0+8 12+4,0+8 20+4,0+8", "1x24: 0+1,4+4 0+1,12+4", "3x3:"}) {
    const absl::StatusOr<TensorPlace> place = ParsePlace(text);
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(PlaceText(*place), text);
  }
  const TensorPlace place = ParsePlace("24x8: 4+4,0+8 12+4,0+8").value();
  EXPECT_EQ(place.elements(), 64);
  EXPECT_EQ(place.pieces[1].offset, 32);
}

TEST(TensorPlace, RefusesAnythingElse) {
  for (const char* text :
       {"", "13", "13x8", "13x8: ", "13x8:7+6,0+8", "13x8: 7+6,0+8 ", "13x8: 7+7,0+8", "13x8: 7+6,1+8", "13x8: -1+6,0+8",
        "13x8: 7+6,0+8x", "99999999999x8: 0+1,0+8", "13x8: 7+6;0+8", "99999999999999999999x1: 0+1,0+1"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParsePlace(text).status())) << text;
  }
}

}  // namespace
}  // namespace lynx::worker
