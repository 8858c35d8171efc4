// index.json: describes a checkpoint and its files, with a digest of every file and of the index itself. Functions on values;
// thread-safe.
#ifndef LYNX_WORKER_CHECKPOINT_CHECKPOINT_INDEX_H_
#define LYNX_WORKER_CHECKPOINT_CHECKPOINT_INDEX_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx::worker {

inline constexpr char kIndexFile[] = "index.json";

struct CheckpointIndex {
  CheckpointIdentity identity;
  std::vector<ShardRecord> files;  // in the order of ShardFiles; an in-memory checkpoint's index has only one
};
// What an index describes: a checkpoint with all its files, or one shard that is kept in memory (worker/copies/copy_store.h).
enum class IndexKind : uint8_t { kCheckpoint, kOneShard };

// "shard-0001-0000.safetensors": stage, tensor-parallel rank. Where ZeRO divides the states among replicas there is a file for
// each replica: "shard-0001-0000-0002.safetensors".
std::string ShardFile(const ParallelLayout& layout, int32_t stage, int32_t tp_rank, int32_t replica);
// All files of a checkpoint, in the order of its index.
std::vector<std::string> ShardFiles(const ParallelLayout& layout);
// True if every replica writes shards; otherwise only the first one does.
bool ReplicasWriteShards(const ParallelLayout& layout);

std::string EncodeIndex(const CheckpointIndex& index);
// DataLoss if EncodeIndex did not write the text: it is not JSON, fields are missing or out of range, its digest is wrong, or
// its files are not the layout's shards. FailedPrecondition if the program does not know the format version.
absl::StatusOr<CheckpointIndex> DecodeIndex(const std::string& text, IndexKind kind = IndexKind::kCheckpoint);

// Compares two runs; generation, step and layout may differ. Returns "" if both are of one run. Otherwise says what differs,
// with both values: "model.hidden is 64 in the checkpoint, 128 here; ...".
std::string RunDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here);

// Returns "" if the run `here` is allowed to begin with the checkpoint; otherwise says what differs. With `continues`, the run
// uses the whole checkpoint, so model, seed, data and samples must be the same. Without `continues`, the run uses only the
// weights, so only their shapes and meaning must be the same. Dropout, the attention kernel, the job and the layout may always
// differ.
std::string StartDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here, bool continues);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_INDEX_H_
