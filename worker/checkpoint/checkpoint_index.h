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
  std::vector<ShardRecord> files;  // stage by stage, tensor-parallel ranks in order
};

// "shard-0001-0000.safetensors"
std::string ShardFile(int32_t stage, int32_t tp_rank);

std::string EncodeIndex(const CheckpointIndex& index);
// DataLoss for anything that EncodeIndex did not write: not JSON, fields missing or out of range, another digest than
// its own, files other than the layout's shards. FailedPrecondition for a format version that this program does not
// know.
absl::StatusOr<CheckpointIndex> DecodeIndex(const std::string& text);

// "" when both are of one run (generation, step and layout do not matter), else in what they differ, with both
// values: "model.hidden is 64 in the checkpoint, 128 here; ...".
std::string RunDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here);

// "" when a run may begin with what is in the checkpoint, else in what they differ: with all of it (`continues`) when
// model, seed, data and samples are the same, with its weights when those of the models have the same shapes and
// meaning. Dropout and the kernel of attention may differ, and so may job and layout.
std::string StartDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here, bool continues);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_INDEX_H_
