#include "worker/checkpoint/hugging_face.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/status.h"
#include "planner/stage_context.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/hugging_face_names.h"
#include "worker/checkpoint/offline.h"
#include "worker/checkpoint/safetensors_file.h"
#include "worker/checkpoint/shard.h"
#include "worker/checkpoint/tensor_reader.h"

namespace lynx {
namespace {

constexpr char kWeightsFile[] = "model.safetensors";
constexpr char kConfigFile[] = "config.json";
constexpr char kImportJob[] = "import";

// A rank that has all of the model.
StageContext WholeContext(const ModelSpec& model) {
  return PipelineContexts(model, ParallelLayout{}, 1, 1, {model.layers}).front();
}

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("(", absl::StrJoin(shape, ", "), ")"); }

// (rows, columns) -> (columns, rows), in blocks that stay in the cache.
std::vector<float> Transposed(std::span<const float> in, int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 32;
  std::vector<float> out(in.size());
  for (int64_t i = 0; i < rows; i += kBlock) {
    for (int64_t j = 0; j < columns; j += kBlock) {
      for (int64_t row = i; row < std::min(rows, i + kBlock); ++row) {
        for (int64_t column = j; column < std::min(columns, j + kBlock); ++column) {
          out[static_cast<size_t>(column * rows + row)] = in[static_cast<size_t>(row * columns + column)];
        }
      }
    }
  }
  return out;
}

std::span<const char> CharsOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

absl::Status CheckNotThere(FileSystem& files, const std::string& folder) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  for (const char* name : {kWeightsFile, kConfigFile}) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    return absl::AlreadyExistsError(absl::StrCat(folder, "/", name, " is there already; name another folder"));
  }
  return absl::OkStatus();
}

// Of other people's files: which tensor is in which.
class TensorFiles {
 public:
  static absl::StatusOr<TensorFiles> Open(FileSystem& files, const std::string& folder) {
    TensorFiles tensors(files, folder);
    LYNX_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
    for (const std::string& name : names) {
      if (!name.ends_with(".safetensors")) continue;
      LYNX_ASSIGN_OR_RETURN(SafetensorsFile file, OpenSafetensorsFile(files, absl::StrCat(folder, "/", name)));
      tensors.files_.push_back(std::move(file));
    }
    if (tensors.files_.empty()) {
      return absl::NotFoundError(absl::StrCat("there is no ", kWeightsFile, " in ", folder));
    }
    for (size_t file = 0; file < tensors.files_.size(); ++file) {
      for (size_t i = 0; i < tensors.files_[file].header.tensors.size(); ++i) {
        tensors.places_[tensors.files_[file].header.tensors[i].name] = {file, i};
      }
    }
    return tensors;
  }

  // InvalidArgument unless the files have just these tensors, in these shapes (and, of the first extent, perhaps
  // more).
  absl::Status Check(const std::vector<HuggingFaceTensor>& wanted) {
    std::set<std::string> unused;
    for (const auto& [name, place] : places_) unused.insert(name);
    for (const HuggingFaceTensor& tensor : wanted) {
      const auto at = Find(tensor.name);
      if (at == places_.end()) {
        return absl::InvalidArgumentError(absl::StrCat(folder_, " has no tensor ", tensor.name));
      }
      unused.erase(at->first);
      const std::vector<int64_t>& shape = EntryOf(at->second).shape;
      const bool longer =
          IsPositions(tensor) && shape.size() == 2 && shape[1] == tensor.shape[1] && shape[0] > tensor.shape[0];
      if (shape == tensor.shape || longer) continue;
      return absl::InvalidArgumentError(absl::StrCat(folder_, ": ", at->first, " has shape ", ShapeText(shape),
                                                     ", not the ", ShapeText(tensor.shape), " of config.json"));
    }
    // Where the embedding is tied, some write it twice.
    for (const std::string& name : unused) {
      if (IsHuggingFaceConstant(name) || name == "lm_head.weight") continue;
      return absl::InvalidArgumentError(
          absl::StrCat(folder_, ": tensor ", name, " is not a part of such a model in Lynx"));
    }
    return absl::OkStatus();
  }

  // After Check. Row-major, as our parameter has it.
  absl::StatusOr<std::vector<float>> Read(const HuggingFaceTensor& tensor) {
    const Place& place = Find(tensor.name)->second;
    LYNX_ASSIGN_OR_RETURN(std::vector<float> values, ReadAsFloat(*file_system_, files_[place.file], EntryOf(place)));
    if (tensor.transposed) return Transposed(values, tensor.piece.columns, tensor.piece.rows);
    values.resize(static_cast<size_t>(tensor.piece.rows * tensor.piece.columns));
    return values;
  }

 private:
  struct Place {
    size_t file = 0, tensor = 0;
  };
  TensorFiles(FileSystem& files, std::string folder) : file_system_(&files), folder_(std::move(folder)) {}

  static bool IsPositions(const HuggingFaceTensor& tensor) { return tensor.name.ends_with(".wpe.weight"); }
  const SafetensorsEntry& EntryOf(const Place& place) const {
    return files_[place.file].header.tensors[place.tensor];
  }
  // A model that was saved without its head has names without the first part.
  std::map<std::string, Place>::const_iterator Find(const std::string& name) const {
    const auto at = places_.find(name);
    return at != places_.end() ? at : places_.find(name.substr(name.find('.') + 1));
  }

  FileSystem* file_system_;
  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> places_;
};

}  // namespace

absl::StatusOr<Bytes> ExportToHuggingFace(const CheckpointSummary& checkpoint, const std::string& folder,
                                          FileSystem& files) {
  const ModelSpec& model = checkpoint.identity.model;
  LYNX_ASSIGN_OR_RETURN(const FamilyTraits* const family, ExportFamilyOf(model));
  LYNX_RETURN_IF_ERROR(files.CreateFolders(folder));
  LYNX_RETURN_IF_ERROR(CheckNotThere(files, folder));
  if (const std::vector<std::string> wrong = VerifyCheckpoint(checkpoint, files); !wrong.empty()) {
    return absl::DataLossError(absl::StrJoin(wrong, "; "));
  }
  const std::vector<ParameterSlot> slots = ParameterSlotsOf(WholeContext(model), 0);
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};  // as transformers expects it
  std::vector<std::pair<const ParameterSlot*, HuggingFaceTensor>> tensors;
  for (const ParameterSlot& slot : slots) {
    for (HuggingFaceTensor& tensor : HuggingFaceTensorsOf(slot, *family)) {
      header.Append(tensor.name, tensor.shape);
      tensors.emplace_back(&slot, std::move(tensor));
    }
  }
  TensorReader reader(files, checkpoint);
  std::vector<float> values;
  const auto content = [&](size_t i) -> absl::StatusOr<std::span<const char>> {
    const auto& [slot, tensor] = tensors[i];
    ParameterPiece piece = tensor.piece;
    piece.offset = 0;
    values.resize(static_cast<size_t>(piece.rows * piece.columns));
    const WantedPart part{slot->whole_name, {slot->global_rows, slot->global_columns, {piece}}, values.data()};
    LYNX_RETURN_IF_ERROR(reader.Read({part}, 0, {.index = 0, .of = 0}));
    if (tensor.transposed) values = Transposed(values, piece.rows, piece.columns);
    return CharsOf(values);
  };
  LYNX_ASSIGN_OR_RETURN(const WrittenFile written,
                        WriteSafetensorsFile(files, absl::StrCat(folder, "/", kWeightsFile), header, content));
  LYNX_RETURN_IF_ERROR(WriteWholeFile(files, absl::StrCat(folder, "/", kConfigFile), HuggingFaceConfigText(model, *family)));
  LYNX_RETURN_IF_ERROR(files.SyncFolder(folder));
  return written.bytes;
}

absl::StatusOr<CheckpointSummary> ImportFromHuggingFace(const std::string& folder, const ModelSpec& model,
                                                        const FamilyTraits& family, const std::string& directory,
                                                        FileSystem& files) {
  CheckpointIdentity identity;
  identity.job = JobId(kImportJob);
  identity.generation = Generation(1);
  identity.model = model;
  LYNX_RETURN_IF_ERROR(files.CreateFolders(directory));
  if (const absl::Status there = ReadSummary(files, directory, 0).status(); !absl::IsNotFound(there)) {
    return absl::AlreadyExistsError(
        absl::StrCat(CheckpointPath(directory, 0), " is there already; name another directory"));
  }
  const StageContext context = WholeContext(model);
  const std::vector<ParameterSlot> slots = ParameterSlotsOf(context, 0);
  LYNX_ASSIGN_OR_RETURN(TensorFiles source, TensorFiles::Open(files, folder));
  std::vector<HuggingFaceTensor> all;
  for (const ParameterSlot& slot : slots) {
    for (HuggingFaceTensor& tensor : HuggingFaceTensorsOf(slot, family)) all.push_back(std::move(tensor));
  }
  LYNX_RETURN_IF_ERROR(source.Check(all));
  std::vector<float> values;
  const auto content = [&](size_t i) -> absl::StatusOr<std::span<const char>> {
    values.clear();
    for (const HuggingFaceTensor& tensor : HuggingFaceTensorsOf(slots[i], family)) {
      LYNX_ASSIGN_OR_RETURN(const std::vector<float> part, source.Read(tensor));
      values.insert(values.end(), part.begin(), part.end());
    }
    return CharsOf(values);
  };
  const SafetensorsHeader header = ShardHeader(identity, context, 0, slots, /*weights_only=*/true);
  LYNX_RETURN_IF_ERROR(WriteShard(directory, identity, context, 0, 0, header, content, files).status());
  LYNX_RETURN_IF_ERROR(PublishCheckpoint(directory, identity, files).status());
  return ReadSummary(files, directory, 0);
}

}  // namespace lynx
