// Decides which files of a Hugging Face folder hold a model's weights, and where each tensor is. A folder often holds more than
// one model's weights: shards of an older save, weights in other formats, an index of files that are gone. If the content is
// ambiguous, the result is an error that names the files and the tensor. A note mentions each file that is not taken.
//
// With model.safetensors and no index, that file is the model. With model.safetensors.index.json, the model is the tensors that
// the index lists, in the files that it names for them. With neither, the model is all *.safetensors files of the folder. A
// tensor that is in several of the taken files must have the same content in all of them. Where both exist, model.safetensors
// comes before the index, as in transformers (from_pretrained), which does not compare them.
//
// Functions and values; thread-safe.
#ifndef LYNX_WORKER_CHECKPOINT_HUGGING_FACE_FILES_H_
#define LYNX_WORKER_CHECKPOINT_HUGGING_FACE_FILES_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors_file.h"

namespace lynx::worker {

inline constexpr char kHuggingFaceWeightsFile[] = "model.safetensors";
inline constexpr char kHuggingFaceIndexFile[] = "model.safetensors.index.json";

struct WeightPlace {
  size_t file = 0;    // of WeightFiles::files
  size_t tensor = 0;  // of its header
};
struct WeightFiles {
  std::vector<SafetensorsFile> files;
  // All tensors in the files that are taken, by the model's names for them: the needed tensors and any others.
  std::map<std::string, WeightPlace> tensors;
  std::vector<std::string> notes;  // files that exist but were not taken, and why; sentences without a full stop

  TensorInFile At(const WeightPlace& place) const {
    return {&files[place.file], &files[place.file].header.tensors[place.tensor]};
  }
};

// Chooses the files. `needed`: the names of all tensors that the model must have. A base model that was saved without its head
// has names without the first part ("wte.weight"); these are found too. NotFound if the folder has no weights, or lacks files
// that its index names. InvalidArgument if a needed tensor is missing, two contents are possible, the index is malformed or
// disagrees with the files, or a file is a git-lfs pointer. DataLoss if a file is not a safetensors file. Each error names
// files and tensor.
absl::StatusOr<WeightFiles> ChooseWeightFiles(FileSystem& files, const std::string& folder,
                                              const std::set<std::string>& needed);

// Returns the weight_map of an index: the file of each tensor. InvalidArgument if the text is not an index, lists a tensor
// twice, or names anything but a *.safetensors file of its own folder. Pure.
absl::StatusOr<std::map<std::string, std::string>> ParseWeightMap(std::string_view text);

// InvalidArgument, with advice, if the text is a git-lfs pointer: git-lfs puts it in place of a file that has not been
// downloaded.
absl::Status CheckNotLfsPointer(const std::string& path, std::string_view text);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_HUGGING_FACE_FILES_H_
