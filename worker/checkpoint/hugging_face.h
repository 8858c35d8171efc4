// Exports weights to Hugging Face directories (config.json and model.safetensors), so that other programs can read a trained
// model. Also imports weights from such directories, so that training can begin with them. hugging_face_names.h defines the
// names of the tensors.
//
// These are free functions that work on directories. They hold one tensor in memory at a time; an import holds all experts
// of a layer. Thread-safe for different directories.
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

// Verifies the checkpoint's files, creates the folder, and writes config.json and model.safetensors (in fp32) into it. Returns
// the size of the weights in bytes. InvalidArgument: as for ExportFamilyOf. DataLoss: the checkpoint is damaged. AlreadyExists:
// the folder already has one of these files. Other codes by errno.
absl::StatusOr<Bytes> ExportToHuggingFace(const CheckpointSummary& checkpoint, const std::string& folder,
                                          FileSystem& files = PosixFileSystem());

// Returns the text of the folder's config.json. NotFound: there is no such file. InvalidArgument: the file is a git-lfs
// pointer.
absl::StatusOr<std::string> ReadHuggingFaceConfig(const std::string& folder, FileSystem& files = PosixFileSystem());

enum class NonFiniteWeights : uint8_t { kRefuse, kTake };
struct ImportedWeights {
  CheckpointSummary checkpoint;
  std::vector<std::string> notes;  // about parts of the folder that were not taken, and about unusual weights
};
// Reads the weights in `folder`, which may be F32, F16 or BF16. Writes them to `directory` as a checkpoint of step 0 without
// moments. hugging_face_files.h says which files are taken. `model` and `family` come from the folder's config.json. If the
// folder holds a GPT-2 with more positions than the model's seq, only the first seq positions are taken. If plan_only of the
// model has kMultiTokenPrediction, tensors of layers after the last one are left out.
//
// Returns the errors of ChooseWeightFiles, and the following errors. InvalidArgument, with the name of the tensor: the tensor
// has another shape or type, it is unknown, it has NaN or infinity and `non_finite` is kRefuse, or it is a head that differs
// from the embedding although config.json says that both are one tensor. AlreadyExists: `directory` has a checkpoint of step 0.
// After an error there is no checkpoint.
absl::StatusOr<ImportedWeights> ImportFromHuggingFace(const std::string& folder, const ModelSpec& model,
                                                      const FamilyTraits& family, const std::string& directory,
                                                      NonFiniteWeights non_finite = NonFiniteWeights::kRefuse,
                                                      FileSystem& files = PosixFileSystem());

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_HUGGING_FACE_H_
