// Shards: one rank's model states as a safetensors file. The tensors are NAME, NAME.exp_avg and NAME.exp_avg_sq for each
// parameter, in fp32, with the shape that they have on this rank: (rows, columns) of its part, without the padding of a
// vocabulary shard. All weights come first, then the first moments, then the second moments. A checkpoint of step 0 may have no
// moments: before the first step they are zero.
//
// The metadata says where the part belongs: "place.NAME" is the text of a TensorPlace (tensor_place.h), and "copy.NAME" is the
// name of the parameter that NAME is a copy of. It also has format, job, generation, step, stage, tp_rank and the stage's
// layers.
//
// Data moves between the state arrays and the file without a copy of the whole; digests are computed on the way. Functions;
// thread-safe for different files.
#ifndef LYNX_WORKER_CHECKPOINT_SHARD_H_
#define LYNX_WORKER_CHECKPOINT_SHARD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors_file.h"
#include "worker/checkpoint/tensor_reader.h"

namespace lynx::worker {

inline constexpr char kShardFormat[] = "lynx-checkpoint-shard-1";
// The endings of the moments' names.
inline constexpr const char* kMomentSuffixes[] = {".exp_avg", ".exp_avg_sq"};

// The header of a rank's shard. `slots`: the rank's parameters, or the parts of them that it updates.
SafetensorsHeader ShardHeader(const CheckpointIdentity& identity, const StageContext& context, int32_t tp_rank,
                              const std::vector<ParameterSlot>& slots, bool weights_only);
// Returns the content of the state's tensors: the weights and moments that its rank updates. Tensors are numbered as in the
// ShardHeader of those slots. Borrows the state.
TensorContent ContentOf(ModelState& state);
// Writes and syncs the file. Its name is durable after SyncFolder of its folder.
absl::StatusOr<ShardRecord> WriteShardFile(FileSystem& files, const std::string& folder, const std::string& file,
                                           const SafetensorsHeader& header, const TensorContent& content);

// The parts that this rank needs from a checkpoint of any layout: the weights that it updates and, unless `weights_only`, both
// of their moments.
std::vector<WantedPart> WantedParts(ModelState& state, bool weights_only);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_SHARD_H_
