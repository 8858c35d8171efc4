// Weights to and from Hugging Face directories (config.json and model.safetensors), so that other programs can read
// what was trained here, and training can begin with what they have. See hugging_face_names.h for what is called how.
//
// Free functions over directories, a tensor in memory at a time; thread-safe for different directories.
#ifndef LYNX_WORKER_CHECKPOINT_HUGGING_FACE_H_
#define LYNX_WORKER_CHECKPOINT_HUGGING_FACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/problem/model_families.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx {

// Writes config.json and model.safetensors, in fp32, into the folder, which is made. The checkpoint's files are
// verified first. Returns the bytes of the weights. InvalidArgument as ExportFamilyOf; DataLoss when the checkpoint is damaged;
// AlreadyExists when the folder has such a file already; others as errno says.
absl::StatusOr<Bytes> ExportToHuggingFace(const CheckpointSummary& checkpoint, const std::string& folder,
                                          FileSystem& files = PosixFileSystem());

// The text of the folder's config.json. NotFound when there is none, InvalidArgument when it is a git-lfs pointer.
absl::StatusOr<std::string> ReadHuggingFaceConfig(const std::string& folder, FileSystem& files = PosixFileSystem());

enum class NonFiniteWeights : uint8_t { kRefuse, kTake };
struct ImportedWeights {
  CheckpointSummary checkpoint;
  std::vector<std::string> notes;  // what of the folder was not taken, and what was taken that is unusual; a line each
};
// Writes the weights in the folder, in F32, F16 or BF16, as a checkpoint of step 0 without moments to `directory`.
// hugging_face_files.h says which files are taken. `model`, `family`: what the folder's config.json says. Its seq may be less
// than the positions that a GPT-2 has: the first ones are taken. Errors of ChooseWeightFiles; InvalidArgument naming
// the tensor when one is of another shape or type, not known, a head that is not the embedding though config.json
// ties them, or has NaN or infinity that shall be refused; AlreadyExists when `directory` has a checkpoint of step 0.
// After an error there is no checkpoint.
absl::StatusOr<ImportedWeights> ImportFromHuggingFace(const std::string& folder, const ModelSpec& model,
                                                      const FamilyTraits& family, const std::string& directory,
                                                      NonFiniteWeights non_finite = NonFiniteWeights::kRefuse,
                                                      FileSystem& files = PosixFileSystem());

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_HUGGING_FACE_H_
