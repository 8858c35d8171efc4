// Shards: one rank's model states as a safetensors file. The tensors are NAME, NAME.exp_avg and NAME.exp_avg_sq for
// each parameter, in fp32, shaped as this rank has them: (rows, columns) of its part, without the padding of a
// vocabulary shard. All weights stand first, then the first moments, then the second. A checkpoint of step 0 may be
// without moments: before the first step they are zero.
//
// The metadata says where the part belongs: "place.NAME" is a TensorPlace's text (tensor_place.h), and "copy.NAME"
// the name of the parameter that NAME is a copy of. Beside it: format, job, generation, step, stage, tp_rank and the
// stage's layers.
//
// Data moves between the state arrays and the file without a copy of the whole; digests are taken on the way.
// Functions; thread-safe for different files.
#ifndef LYNX_WORKER_CHECKPOINT_SHARD_H_
#define LYNX_WORKER_CHECKPOINT_SHARD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors_file.h"
#include "worker/checkpoint/tensor_reader.h"

namespace lynx {

inline constexpr char kShardFormat[] = "lynx-checkpoint-shard-1";
// What the names of moments end in.
inline constexpr const char* kMomentSuffixes[] = {".exp_avg", ".exp_avg_sq"};

// The header of a rank's shard. `slots`: the rank's parameters, or what it updates of them.
SafetensorsHeader ShardHeader(const CheckpointIdentity& identity, const StageContext& context, int32_t tp_rank,
                              const std::vector<ParameterSlot>& slots, bool weights_only);
// The weights and moments of what the state's rank updates, by their number in the ShardHeader of those slots. Borrows the
// state.
TensorContent ContentOf(ModelState& state);
// Writes and syncs the file. Its name is durable after SyncFolder of its folder.
absl::StatusOr<ShardRecord> WriteShardFile(FileSystem& files, const std::string& folder, const std::string& file,
                                           const SafetensorsHeader& header, const TensorContent& content);

// What this rank needs of a checkpoint written in any layout: of what it updates the weights, and both moments unless
// `weights_only`.
std::vector<WantedPart> WantedParts(ModelState& state, bool weights_only);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_SHARD_H_
