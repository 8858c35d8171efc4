// A shard is a safetensors file with one rank's model states, or with the part of them that the rank writes. It has the tensors
// NAME, NAME.exp_avg and NAME.exp_avg_sq for each parameter, in fp32, without the padding of a vocabulary shard. Their shape is
// that of this rank's part: (rows, columns), or (elements) for a vector, or (1, elements) if ZeRO divides the part inside a
// row. All weights come first, then the first moments, then the second moments. A checkpoint of step 0 may have no moments,
// because they are zero before the first step.
//
// The metadata says where each part belongs in the whole tensor: "place.NAME" is the text of a TensorPlace (tensor_place.h). If
// NAME is a copy of another parameter, "copy.NAME" is the name of that parameter. The metadata also has format, job,
// generation, step, stage, tp_rank and the stage's layers.
//
// The file is written tensor by tensor, so no second copy of all states is needed. The digest is computed during the write.
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

namespace lynx::worker {

inline constexpr char kShardFormat[] = "lynx-checkpoint-shard-1";
// The endings of the moments' names.
inline constexpr const char* kMomentSuffixes[] = {".exp_avg", ".exp_avg_sq"};

// Returns the parts that a rank writes to checkpoints: those that it updates and that no rank before it writes. Replica 0
// writes the parameters that all replicas have, and the first of the ranks that have the same experts writes these. Each
// tensor-parallel rank writes the parameters that all of them have, which are small. The result is empty for replicas from
// WritingReplicas on, and may be empty for others. `replica`: the rank's data-parallel index.
std::vector<ParameterSlot> WrittenSlots(const StageContext& context, int32_t tp_rank, int32_t replica, const ModelState& state);
// Returns the size of the states of these parts: weights and both moments.
Bytes StateBytes(const std::vector<ParameterSlot>& slots);
// Returns the header of a rank's shard. `slots`: the rank's parameters, or parts of them.
SafetensorsHeader ShardHeader(const CheckpointIdentity& identity, const StageContext& context, int32_t tp_rank,
                              const std::vector<ParameterSlot>& slots, bool weights_only);
// Returns a function that gives the content of tensor number i of the ShardHeader for these slots, which are some of
// state.updated(), or all. The function refers to `state`, which must outlive it.
TensorContent ContentOf(ModelState& state, std::vector<ParameterSlot> slots);
// Writes and syncs the file. Call SyncFolder for its folder afterwards, so that its name survives a crash.
absl::StatusOr<ShardRecord> WriteShardFile(FileSystem& files, const std::string& folder, const std::string& file,
                                           const SafetensorsHeader& header, const TensorContent& content);

// Returns the parts that this rank needs from a checkpoint of any layout: the weights that the rank updates and, unless
// `weights_only`, both moments of these weights.
std::vector<WantedPart> WantedParts(ModelState& state, bool weights_only);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_SHARD_H_
