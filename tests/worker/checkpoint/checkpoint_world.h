// The ranks of a small model with their states, for the tests of checkpoints. A world has one replica, or all replicas if
// several of them write shards. With ZeRO, a rank has only the elements that it updates.
#ifndef LYNX_TESTS_WORKER_CHECKPOINT_CHECKPOINT_WORLD_H_
#define LYNX_TESTS_WORKER_CHECKPOINT_CHECKPOINT_WORLD_H_

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/rng.h"
#include "planner/stages/partition.h"
#include "worker/backend/backend.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checkpoint_index.h"

namespace lynx::worker {

// The vocabulary has 13 words, so it has padding when it is divided by two.
inline ModelSpec WorldModel() {
  ModelSpec model;
  model.layers = 2;
  model.hidden = 8;
  model.heads = 2;
  model.ffn = 12;
  model.seq = 4;
  model.vocab = 13;
  return model;
}

struct WorldRank {
  StageContext context;
  int32_t tp_rank = 0;
  int32_t replica = 0;
  ModelState state;
};

class CheckpointWorld {
 public:
  explicit CheckpointWorld(const ParallelLayout& layout, const ModelSpec& model = WorldModel()) {
    for (const StageContext& context :
         PipelineContexts(model, layout, 1, 1, EvenPartition(PipelineOf(layout).pieces(), model.layers))) {
      const int32_t replicas = ReplicasWriteShards(layout) ? layout.dp : 1;
      for (int32_t i = 0; i < layout.tp * replicas; ++i) {
        const int32_t tp_rank = i / replicas, replica = i % replicas;
        absl::StatusOr<ModelState> state = ModelState::Create(context, tp_rank, replica, 7, *backend_);
        EXPECT_TRUE(state.ok()) << state.status();
        ranks_.push_back({context, tp_rank, replica, *std::move(state)});
      }
    }
    identity_.job = JobId("job-1");
    identity_.generation = Generation(1);
    identity_.seed = ~uint64_t{0};  // no seed is too large for the index
    identity_.model = model;
    identity_.layout = layout;
    identity_.data = {DataKind::kText, Bytes(1000), std::string(64, 'd')};
  }

  std::vector<WorldRank>& ranks() { return ranks_; }
  CheckpointIdentity Identity(int64_t step, int64_t generation = 1) const {
    CheckpointIdentity identity = identity_;
    identity.step = step;
    identity.generation = Generation(generation);
    return identity;
  }

  // Sets the state after `step` steps. Each element of each array depends only on the step and the element's position. Padding
  // is zero.
  void Train(int64_t step) {
    for (WorldRank& rank : ranks_) {
      for (int32_t array = 0; array < 3; ++array) {
        Fill(rank, array, [&](uint32_t place, uint32_t which) { return ValueOf(step, place, which); });
      }
    }
  }
  // True if the weights and moments have the bits that Train(step) sets.
  bool Holds(int64_t step) {
    bool equal = true;
    for (WorldRank& rank : ranks_) {
      for (int32_t array = 0; array < 3; ++array) {
        Visit(rank, array,
              [&](float& value, uint32_t place, uint32_t which) { equal = equal && value == ValueOf(step, place, which); });
      }
    }
    return equal;
  }
  // Overwrites all values that a load must restore.
  void Poison() {
    for (WorldRank& rank : ranks_) {
      for (int32_t array = 0; array < 3; ++array) Fill(rank, array, [](uint32_t, uint32_t) { return -1.0f; });
    }
  }

  absl::Status Write(const std::string& directory, const CheckpointIdentity& identity, FileSystem& files = PosixFileSystem()) {
    for (WorldRank& rank : ranks_) {
      if (rank.replica >= WritingReplicas(identity.layout)) continue;
      const auto record = WriteShard(directory, identity, rank.context, rank.tp_rank, rank.replica, rank.state, files);
      if (!record.ok()) return record.status();
    }
    return absl::OkStatus();
  }
  absl::Status WriteAndPublish(const std::string& directory, const CheckpointIdentity& identity, int32_t keep,
                               FileSystem& files = PosixFileSystem()) {
    Train(identity.step);
    if (absl::Status status = Write(directory, identity, files); !status.ok()) return status;
    if (absl::Status status = PublishCheckpoint(directory, identity, files).status(); !status.ok()) return status;
    PruneCheckpoints(directory, identity, keep, files);
    return absl::OkStatus();
  }
  absl::Status Load(const std::string& directory, const CheckpointIdentity& identity, FileSystem& files = PosixFileSystem()) {
    Poison();
    for (WorldRank& rank : ranks_) {
      const absl::Status status = LoadCheckpoint(directory, identity, rank.context, rank.tp_rank, rank.state, {}, files);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::Status Load(const std::string& directory, int64_t step, FileSystem& files = PosixFileSystem()) {
    return Load(directory, Identity(step), files);
  }
  // Loads the newest step that can be loaded. Returns this step, or -1 if there is none.
  int64_t LoadNewest(const std::string& directory, FileSystem& files = PosixFileSystem()) {
    const auto summaries = ListCheckpoints(directory, nullptr, files);
    EXPECT_TRUE(summaries.ok()) << summaries.status();
    if (!summaries.ok()) return -1;
    for (const CheckpointSummary& summary : *summaries) {
      if (Load(directory, summary.identity.step, files).ok()) return summary.identity.step;
    }
    return -1;
  }

 private:
  static float ValueOf(int64_t step, uint32_t place, uint32_t array) {
    return static_cast<float>(Philox({place, array, 0, 0}, {static_cast<uint32_t>(step), 0})[0]) * 0x1p-32f;
  }
  template <class F>
  static void Fill(WorldRank& rank, int32_t array, const F& value) {
    Visit(rank, array, [&](float& out, uint32_t place, uint32_t which) { out = value(place, which); });
  }
  // Calls `visit` for every element that the rank updates. It passes a number that identifies the element: the position in the
  // global parameter, mixed with the parameter.
  template <class F>
  static void Visit(WorldRank& rank, int32_t array, const F& visit) {
    const std::span<float> arrays[] = {rank.state.weights(), rank.state.first_moments(), rank.state.second_moments()};
    for (const ParameterSlot& slot : rank.state.updated()) {
      const int64_t begin = array == 0 ? slot.offset : slot.share_offset;
      for (const ParameterPiece& piece : slot.pieces) {
        for (int64_t i = 0; i < piece.rows * piece.columns; ++i) {
          const int64_t place = (piece.row + i / piece.columns) * slot.global_columns + piece.column + i % piece.columns;
          const int64_t parameter = slot.copy ? kEmbeddingLayer * 32 + static_cast<int>(Parameter::kEmbedTok)
                                              : slot.layer * 32 + static_cast<int>(slot.parameter);
          visit(arrays[array][static_cast<size_t>(begin + piece.offset + i)], static_cast<uint32_t>(parameter * 65536 + place),
                static_cast<uint32_t>(array));
        }
      }
    }
  }

  std::unique_ptr<Backend> backend_ = MakeCpuBackend(1);
  std::vector<WorldRank> ranks_;
  CheckpointIdentity identity_;
};

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_CHECKPOINT_CHECKPOINT_WORLD_H_
