// Which files of a Hugging Face folder hold a model's weights, and where each tensor is. Folders have more in them
// than one model: shards of an older save, weights of other formats, an index of files that are gone. What could be
// meant in two ways is an error that names files and tensor; what is not taken is said in a note.
//
// model.safetensors without an index is the model. With model.safetensors.index.json the model is the tensors that it
// lists, in the files that it names for them. With neither it is all *.safetensors of the folder. A tensor that is in
// several of the files that are taken must have the same content in all. The order, model.safetensors before an index
// where both are, is that of transformers (from_pretrained), which does not compare them.
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

namespace lynx {

inline constexpr char kHuggingFaceWeightsFile[] = "model.safetensors";
inline constexpr char kHuggingFaceIndexFile[] = "model.safetensors.index.json";

struct WeightPlace {
  size_t file = 0;    // of WeightFiles::files
  size_t tensor = 0;  // of its header
};
struct WeightFiles {
  std::vector<SafetensorsFile> files;
  std::map<std::string, WeightPlace> tensors;  // by the model's name for it, each needed one and whatever else is there
  std::vector<std::string> notes;              // what is there and was not taken, and why; sentences without a stop

  TensorInFile At(const WeightPlace& place) const {
    return {&files[place.file], &files[place.file].header.tensors[place.tensor]};
  }
};

// `needed`: the names of all tensors that the model must have. A base model that was saved without its head has names
// without the first part ("wte.weight"); they are found. NotFound when the folder has no weights, or not the files
// that its index names; InvalidArgument when a needed tensor is missing, two contents could be meant, the index is
// malformed or does not agree with the files, or a file is a git-lfs pointer; DataLoss when a file is no safetensors
// file. Each names files and tensor.
absl::StatusOr<WeightFiles> ChooseWeightFiles(FileSystem& files, const std::string& folder,
                                              const std::set<std::string>& needed);

// The weight_map of an index, tensor to file. InvalidArgument when the text is no index, lists a tensor twice, or
// names anything but a *.safetensors file of its own folder. Pure.
absl::StatusOr<std::map<std::string, std::string>> ParseWeightMap(std::string_view text);

// InvalidArgument, saying what to do, when the text is what git-lfs leaves in place of a file that was not pulled.
absl::Status CheckNotLfsPointer(const std::string& path, std::string_view text);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_HUGGING_FACE_FILES_H_
