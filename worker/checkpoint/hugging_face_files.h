// Decides which files of a Hugging Face folder hold a model's weights, and where each tensor is. A folder often holds more than
// the weights of one model: shards of an older save, weights in other formats, an index that names missing files. If more than
// one choice is possible, the result is an error that names the files and the tensor. A note mentions each file that is not
// taken.
//
// If the folder has model.safetensors and no index, that file is the model. If it has model.safetensors.index.json, the model
// is the tensors that the index lists, each in the file that the index names for it. If it has neither, the model is all
// *.safetensors files of the folder, except those of other formats. A tensor that is in several of the taken files must have
// the same content in all of them. If the folder has both model.safetensors and an index of other files, model.safetensors is
// taken, as in from_pretrained of transformers, but here its tensors must be the same as the indexed ones. If only the indexed
// files hold the whole model, they are taken. An index that names missing files is ignored if the other files hold the whole
// model.
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
  size_t file = 0;    // index into WeightFiles::files
  size_t tensor = 0;  // index of the tensor in the header of that file
};
struct WeightFiles {
  std::vector<SafetensorsFile> files;
  // All tensors in the files that are taken: the needed tensors and any others. The key is the model's name for the tensor.
  std::map<std::string, WeightPlace> tensors;
  std::vector<std::string> notes;  // about parts that were not taken, and tensors that several files hold; no full stop

  TensorInFile At(const WeightPlace& place) const {
    return {&files[place.file], &files[place.file].header.tensors[place.tensor]};
  }
};

// Chooses the files. `needed`: the names of all tensors that the model must have. If a base model was saved without its head,
// the names in its files lack their first part ("wte.weight"); such tensors are found too. NotFound: the folder has no weights,
// or lacks files that its index names. InvalidArgument: a needed tensor is missing, a tensor has two different contents, the
// index is malformed or disagrees with the files, or a file is a git-lfs pointer. DataLoss: a file is not a safetensors file.
// Each error names the files and the tensor.
absl::StatusOr<WeightFiles> ChooseWeightFiles(FileSystem& files, const std::string& folder,
                                              const std::set<std::string>& needed);

// Returns the weight_map of an index, which names the file of each tensor. Returns InvalidArgument if the text is not an index,
// lists a tensor twice, or names a file that is not a *.safetensors file of the index's own folder. Pure.
absl::StatusOr<std::map<std::string, std::string>> ParseWeightMap(std::string_view text);

// Returns InvalidArgument, with advice, if the text is a git-lfs pointer. git-lfs puts such a text in place of a file that has
// not been downloaded.
absl::Status CheckNotLfsPointer(const std::string& path, std::string_view text);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_HUGGING_FACE_FILES_H_
