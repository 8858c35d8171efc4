// Shards: one rank's model states as a safetensors file. The tensors are NAME, NAME.exp_avg and NAME.exp_avg_sq for
// each parameter, in fp32, shaped as this rank has them: (rows, columns) of its part, without the padding of a
// vocabulary shard. All weights stand first, then the first moments, then the second.
//
// The metadata says where the part belongs: "place.NAME" is "192x64: 0+32,0+64 64+32,0+64 ...": global rows x
// columns, then for each piece, in the order of its rows in the tensor, its first row + rows and first column +
// columns. Beside it: format, job, generation, step, stage, tp_rank and the stage's layers.
//
// Data moves between the state arrays and the file without a copy of the whole; digests are taken on the way.
// Functions; thread-safe for different files.
#ifndef LYNX_WORKER_CHECKPOINT_SHARD_H_
#define LYNX_WORKER_CHECKPOINT_SHARD_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/file_system.h"

namespace lynx {

// Writes and syncs the file. Its name is durable after SyncFolder of its folder.
absl::StatusOr<ShardRecord> WriteShardFile(FileSystem& files, const std::string& folder, const std::string& file,
                                           const CheckpointIdentity& identity, const StageContext& context,
                                           int32_t tp_rank, ModelState& state);

// Reads the shard that `record` describes into the state's weights and moments. DataLoss when file and record differ;
// FailedPrecondition when the file is whole but is of another job or step than `identity`, or not of this stage's
// parameters. After an error the arrays hold anything.
absl::Status ReadShardFile(FileSystem& files, const std::string& folder, const ShardRecord& record,
                           const CheckpointIdentity& identity, const StageContext& context, int32_t tp_rank,
                           ModelState& state);

// DataLoss when the file is missing, or has another size or digest than `record` says.
absl::Status VerifyShardFile(FileSystem& files, const std::string& folder, const ShardRecord& record);
// The same without its content: DataLoss when the file is missing or has another size.
absl::Status CheckShardSize(FileSystem& files, const std::string& folder, const ShardRecord& record);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_SHARD_H_
