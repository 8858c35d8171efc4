// Exports weights to Hugging Face directories (config.json and model.safetensors), so that other programs can read a trained
// model. Also imports weights from such directories, so that training can begin with them. hugging_face_names.h defines the
// tensors' names.
//
// Free functions over directories; they hold one tensor in memory at a time. Thread-safe for different directories.
#ifndef LYNX_WORKER_CHECKPOINT_HUGGING_FACE_H_
#define LYNX_WORKER_CHECKPOINT_HUGGING_FACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/problem/model_families.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx::worker {

// Creates the folder and writes config.json and model.safetensors into it, in fp32. Verifies the checkpoint's files first.
// Returns the bytes of the weights. InvalidArgument as for ExportFamilyOf; DataLoss when the checkpoint is damaged;
// AlreadyExists when the folder already has such a file; other codes by errno.
absl::StatusOr<Bytes> ExportToHuggingFace(const CheckpointSummary& checkpoint, const std::string& folder,
                                          FileSystem& files = PosixFileSystem());

// The text of the folder's config.json. NotFound when there is no such file, InvalidArgument when it is a git-lfs pointer.
absl::StatusOr<std::string> ReadHuggingFaceConfig(const std::string& folder, FileSystem& files = PosixFileSystem());

enum class NonFiniteWeights : uint8_t { kRefuse, kTake };
struct ImportedWeights {
  CheckpointSummary checkpoint;
  std::vector<std::string> notes;  // tensors that were not taken, and taken tensors that are unusual; one line each
};
// Writes the weights in the folder, which are F32, F16 or BF16, as a checkpoint of step 0 without moments into `directory`.
// hugging_face_files.h says which files are taken. `model`, `family`: from the folder's config.json. The model's seq may be
// smaller than the number of positions of a GPT-2 in the folder; then the first positions are taken.
//
// Errors are those of ChooseWeightFiles and the following. InvalidArgument, naming the tensor: it has another shape or type, it
// is unknown, it has NaN or infinity that must be refused, or it is a head that differs from the embedding although config.json
// ties them. AlreadyExists: `directory` has a checkpoint of step 0. After an error there is no checkpoint.
absl::StatusOr<ImportedWeights> ImportFromHuggingFace(const std::string& folder, const ModelSpec& model,
                                                      const FamilyTraits& family, const std::string& directory,
                                                      NonFiniteWeights non_finite = NonFiniteWeights::kRefuse,
                                                      FileSystem& files = PosixFileSystem());

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_HUGGING_FACE_H_
