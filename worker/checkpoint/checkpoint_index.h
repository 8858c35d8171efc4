// index.json describes a checkpoint and its files. It has a digest of every file and of the index itself. Functions on values;
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
  std::vector<ShardRecord> files;  // in the order of ShardFiles; the index of a shard that is kept in memory has one file
};
// Says what an index describes: a checkpoint with all its files, or one shard that is kept in memory
// (worker/copies/copy_store.h).
enum class IndexKind : uint8_t { kCheckpoint, kOneShard };

// Returns the name of a shard file, such as "shard-0001-0000.safetensors": the stage, then the tensor-parallel rank. If several
// replicas write shards, the data-parallel index follows: "shard-0001-0000-0002.safetensors".
std::string ShardFile(const ParallelLayout& layout, int32_t stage, int32_t tp_rank, int32_t replica);
// Returns the names of all files of a checkpoint, in the order of its index.
std::vector<std::string> ShardFiles(const ParallelLayout& layout);
// True if several replicas write shards, because the states are not complete on one replica: ZeRO divides them among the
// replicas, or expert groups have ranks of several replicas.
bool ReplicasWriteShards(const ParallelLayout& layout);
// Returns how many replicas write shards: those with the lowest data-parallel indexes, which together have all states. A rank
// with data-parallel index d has the same states as the rank with index d % WritingReplicas of its stage and tensor number.
int32_t WritingReplicas(const ParallelLayout& layout);

std::string EncodeIndex(const CheckpointIndex& index);
// Parses the text of an index. DataLoss: the text is not a whole index. It is not JSON, fields are missing or out of range, its
// digest is wrong, or its files are not the layout's shards. FailedPrecondition: the program does not know the
// version of the format.
absl::StatusOr<CheckpointIndex> DecodeIndex(const std::string& text, IndexKind kind = IndexKind::kCheckpoint);

// Compares a checkpoint's run with the run `here`. Generation, step and layout may differ. Returns "" if both are the same run.
// Otherwise names each difference with both values: "model.hidden is 64 in the checkpoint, 128 here; ...".
std::string RunDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here);

// Returns "" if the run `here` may begin with the checkpoint. Otherwise says what differs. The shapes and the meaning of the
// weights must be the same. With `continues`, the run uses the whole checkpoint, so the seed, the data and the samples must be
// the same too. Dropout, the attention kernel, the dtype, the job and the layout may always differ.
std::string StartDifferenceText(const CheckpointIdentity& checkpoint, const CheckpointIdentity& here, bool continues);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_INDEX_H_
