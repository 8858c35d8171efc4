// index.json: what a checkpoint is and which files it has, with a digest of every file and of itself. Functions on
// values; thread-safe.
#ifndef LYNX_WORKER_CHECKPOINT_CHECKPOINT_INDEX_H_
#define LYNX_WORKER_CHECKPOINT_CHECKPOINT_INDEX_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx {

inline constexpr char kIndexFile[] = "index.json";

struct CheckpointIndex {
  CheckpointIdentity identity;
  std::vector<ShardRecord> files;  // by ShardFiles; of a copy in memory one of them
};
// What an index is of: a checkpoint, with all files, or one shard that is kept in memory (worker/copies/copy_store.h).
enum class IndexKind : uint8_t { kCheckpoint, kOneShard };

// "shard-0001-0000.safetensors": stage, tensor-parallel rank; where ZeRO shares out the states of replicas, one for each:
// "shard-0001-0000-0002.safetensors".
std::string ShardFile(const ParallelLayout& layout, int32_t stage, int32_t tp_rank, int32_t replica);
// All of a checkpoint, in the order of its index.
std::vector<std::string> ShardFiles(const ParallelLayout& layout);
// Whether every replica writes shards, or the first alone.
bool ReplicasWriteShards(const ParallelLayout& layout);

std::string EncodeIndex(const CheckpointIndex& index);
// DataLoss for anything that EncodeIndex did not write: not JSON, fields missing or out of range, another digest than
// its own, files other than the layout's shards. FailedPrecondition for a format version that this program does not
// know.
absl::StatusOr<CheckpointIndex> DecodeIndex(const std::string& text, IndexKind kind = IndexKind::kCheckpoint);

// "" when both are of one run (generation, step and layout do not matter), else in what they differ, with both
// values: "model.hidden is 64 in the checkpoint, 128 here; ...".
std::string RunDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here);

// "" when a run may begin with what is in the checkpoint, else in what they differ: with all of it (`continues`) when
// model, seed, data and samples are the same, with its weights when those of the models have the same shapes and
// meaning. Dropout and the kernel of attention may differ, and so may job and layout.
std::string StartDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here, bool continues);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_INDEX_H_
