#include "worker/checkpoint/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "planner/problem/stage_context.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/hugging_face_files.h"
#include "worker/checkpoint/hugging_face_names.h"
#include "worker/checkpoint/offline.h"
#include "worker/checkpoint/safetensors_file.h"
#include "worker/checkpoint/shard.h"
#include "worker/checkpoint/tensor_reader.h"

namespace lynx::worker {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr Bytes kConfigLimit = kMiB;
constexpr char kImportJob[] = "import";

// Returns the context of a rank that has the whole model.
StageContext WholeContext(const ModelSpec& model) {
  return PipelineContexts(model, ParallelLayout{}, 1, 1, {model.layers}).front();
}

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("(", absl::StrJoin(shape, ", "), ")"); }

// Transposes (rows, columns) to (columns, rows), in blocks that fit in the cache.
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

// Returns the rows (columns elements each) of a tensor in the order of its piece, or the rows of a piece in the order of its
// tensor (`to_tensor`).
std::vector<float> Permuted(const std::vector<float>& in, const HuggingFaceTensor& tensor, bool to_tensor) {
  if (tensor.rows.empty()) return in;
  const auto columns = static_cast<size_t>(tensor.piece.columns);
  std::vector<float> out(in.size());
  for (size_t i = 0; i < tensor.rows.size(); ++i) {
    const auto at = static_cast<size_t>(tensor.rows[i]);
    const size_t from = to_tensor ? i : at, to = to_tensor ? at : i;
    std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(from * columns), columns,
                out.begin() + static_cast<std::ptrdiff_t>(to * columns));
  }
  return out;
}

std::span<const char> CharsOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

absl::Status CheckNotThere(FileSystem& files, const std::string& folder) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  for (const char* name : {kHuggingFaceWeightsFile, kConfigFile}) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    return absl::AlreadyExistsError(absl::StrCat(folder, "/", name, " is there already; name another folder"));
  }
  return absl::OkStatus();
}

// Returns the position of an element in a tensor as text, such as "[3, 17]". `element`: the number of the element in row-major
// order.
std::string PositionText(int64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> position(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    position[i] = element % shape[i];
    element /= shape[i];
  }
  return absl::StrCat("[", absl::StrJoin(position, ", "), "]");
}

// True if the tensor belongs to a layer after the last layer of the model, and `model` leaves such layers out.
bool IsLeftOut(const std::string& name, const ModelSpec& model) {
  if ((model.plan_only & Bit(PlanOnlyFeature::kMultiTokenPrediction)) == 0) return false;
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "model.layers.")) return false;
  int32_t layer = 0;
  return absl::SimpleAtoi(rest.substr(0, rest.find('.')), &layer) && layer >= model.layers;
}

// The tensors that a model needs, in the files of a folder.
class Source {
 public:
  Source(FileSystem& file_system, WeightFiles files, NonFiniteWeights non_finite)
      : file_system_(file_system), files_(std::move(files)), non_finite_(non_finite) {}

  // Checks the tensors that ChooseWeightFiles has found. Returns InvalidArgument if a `wanted` tensor has another shape or a
  // type that cannot be read, or if a tensor is unknown. Only GPT-2's position embedding may have more rows than wanted.
  // Tensors that IsLeftOut(name, model) are allowed; a note counts them.
  absl::Status Check(const std::vector<HuggingFaceTensor>& wanted, const ModelSpec& model) {
    int64_t left_out = 0;
    std::set<std::string> unused;
    for (const auto& [name, place] : files_.tensors) unused.insert(name);
    for (const HuggingFaceTensor& tensor : wanted) {
      unused.erase(tensor.name);
      const auto [file, entry] = At(tensor.name);
      if (!IsReadAsFloat(*entry)) {
        return absl::InvalidArgumentError(absl::StrCat(file->path, ": ", entry->name, " is of type ", entry->type,
                                                       ", not F32, F16 or BF16: weights that were quantised, or cast "
                                                       "to another type, must be converted back"));
      }
      const std::vector<int64_t>& shape = entry->shape;
      const bool longer = IsPositions(tensor) && shape.size() == 2 && shape[1] == tensor.shape[1] && shape[0] > tensor.shape[0];
      if (shape == tensor.shape || longer) continue;
      return absl::InvalidArgumentError(absl::StrCat(file->path, ": ", entry->name, " has shape ", ShapeText(shape),
                                                     ", not the ", ShapeText(tensor.shape), " of config.json"));
    }
    for (const std::string& name : unused) {
      if (IsHuggingFaceConstant(name) || name == kHead) continue;
      if (IsLeftOut(name, model)) {
        ++left_out;
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat(At(name).file->path, ": tensor ", name, " is not a part of such a model in Lynx"));
    }
    if (left_out > 0) {
      files_.notes.push_back(absl::StrCat(left_out,
                                          " tensors of layers after the last one (num_nextn_predict_layers) are left ",
                                          "out: they predict further tokens, which the engine does not train"));
    }
    return absl::OkStatus();
  }

  // Checks a model that uses its embedding as its head. Some programs write this tensor under both names. Returns
  // InvalidArgument if the two tensors differ.
  absl::Status CheckTied(const std::string& embedding) const {
    if (!files_.tensors.contains(kHead)) return absl::OkStatus();
    LYNX_ASSIGN_OR_RETURN(const bool same, SameContent(file_system_, At(embedding), At(kHead)));
    if (same) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(At(kHead).file->path, ": ", kHead, " is not the same as ", embedding,
                     ", though config.json says that they are one (tie_word_embeddings, which is true where it is missing in a "
                     "GPT-2): set it to false there if the head has weights of its own, or take ",
                     kHead, " out"));
  }

  // Returns the tensor's values in row-major order, in the layout of the Lynx parameter. Call Check before. Returns
  // InvalidArgument if a value is not finite and non_finite_ is kRefuse.
  absl::StatusOr<std::vector<float>> Read(const HuggingFaceTensor& tensor) {
    const TensorInFile place = At(tensor.name);
    LYNX_ASSIGN_OR_RETURN(std::vector<float> values, ReadAsFloat(file_system_, *place.file, *place.tensor));
    values.resize(static_cast<size_t>(tensor.piece.rows * tensor.piece.columns));
    LYNX_RETURN_IF_ERROR(CheckFinite(place, values));
    if (tensor.transposed) return Transposed(values, tensor.piece.columns, tensor.piece.rows);
    return Permuted(values, tensor, /*to_tensor=*/false);
  }

  std::vector<std::string> notes() const { return files_.notes; }

 private:
  static constexpr char kHead[] = "lm_head.weight";

  static bool IsPositions(const HuggingFaceTensor& tensor) { return tensor.name.ends_with(".wpe.weight"); }

  // Returns the file and the entry of a tensor. `name` must be a name that ChooseWeightFiles found.
  TensorInFile At(const std::string& name) const { return files_.At(files_.tensors.at(name)); }

  absl::Status CheckFinite(const TensorInFile& place, const std::vector<float>& values) {
    const auto bad = [](float value) { return !std::isfinite(value); };
    const auto first = std::find_if(values.begin(), values.end(), bad);
    if (first == values.end()) return absl::OkStatus();
    const int64_t count = std::count_if(first, values.end(), bad);
    const std::string what = absl::StrCat(place.file->path, ": ", place.tensor->name, " has ", count,
                                          count == 1 ? " value that is" : " values that are", " NaN or infinity, the first at ",
                                          PositionText(first - values.begin(), place.tensor->shape));
    if (non_finite_ == NonFiniteWeights::kRefuse) {
      return absl::InvalidArgumentError(absl::StrCat(what, "; --allow-non-finite takes such weights"));
    }
    files_.notes.push_back(absl::StrCat(what, "; taken as they are"));
    return absl::OkStatus();
  }

  FileSystem& file_system_;
  WeightFiles files_;
  NonFiniteWeights non_finite_;
};

// Finds all tensors that the model needs in the folder, and checks them.
absl::StatusOr<Source> OpenSource(const std::string& folder, const ModelSpec& model, const FamilyTraits& family,
                                  const std::vector<ParameterSlot>& slots, NonFiniteWeights non_finite, FileSystem& files) {
  std::vector<HuggingFaceTensor> wanted;
  std::set<std::string> needed;
  std::string embedding;
  for (const ParameterSlot& slot : slots) {
    for (HuggingFaceTensor& tensor : HuggingFaceTensorsOf(slot, model, family)) {
      if (slot.parameter == Parameter::kEmbedTok) embedding = tensor.name;
      needed.insert(tensor.name);
      wanted.push_back(std::move(tensor));
    }
  }
  LYNX_ASSIGN_OR_RETURN(WeightFiles chosen, ChooseWeightFiles(files, folder, needed));
  Source source(files, std::move(chosen), non_finite);
  LYNX_RETURN_IF_ERROR(source.Check(wanted, model));
  if (model.tied_embeddings) LYNX_RETURN_IF_ERROR(source.CheckTied(embedding));
  return source;
}

}  // namespace

absl::StatusOr<Bytes> ExportToHuggingFace(const CheckpointSummary& checkpoint, const std::string& folder, FileSystem& files) {
  const ModelSpec& model = checkpoint.identity.model;
  LYNX_ASSIGN_OR_RETURN(const FamilyTraits* const family, ExportFamilyOf(model));
  LYNX_RETURN_IF_ERROR(files.CreateFolders(folder));
  LYNX_RETURN_IF_ERROR(CheckNotThere(files, folder));
  if (const std::vector<std::string> wrong = VerifyCheckpoint(checkpoint, files); !wrong.empty()) {
    return absl::DataLossError(absl::StrJoin(wrong, "; "));
  }
  const std::vector<ParameterSlot> slots = ParameterSlotsOf(WholeContext(model), 0);
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};  // transformers requires this entry
  std::vector<std::pair<const ParameterSlot*, HuggingFaceTensor>> tensors;
  for (const ParameterSlot& slot : slots) {
    for (HuggingFaceTensor& tensor : HuggingFaceTensorsOf(slot, model, *family)) {
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
    LYNX_RETURN_IF_ERROR(reader.Read({part}, {}, {.index = 0, .of = 0}));
    if (tensor.transposed) values = Transposed(values, piece.rows, piece.columns);
    values = Permuted(values, tensor, /*to_tensor=*/true);
    return CharsOf(values);
  };
  LYNX_ASSIGN_OR_RETURN(const WrittenFile written,
                        WriteSafetensorsFile(files, absl::StrCat(folder, "/", kHuggingFaceWeightsFile), header, content));
  LYNX_RETURN_IF_ERROR(WriteWholeFile(files, absl::StrCat(folder, "/", kConfigFile), HuggingFaceConfigText(model, *family)));
  LYNX_RETURN_IF_ERROR(files.SyncFolder(folder));
  return written.bytes;
}

absl::StatusOr<std::string> ReadHuggingFaceConfig(const std::string& folder, FileSystem& files) {
  const std::string path = absl::StrCat(folder, "/", kConfigFile);
  LYNX_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(files, path, kConfigLimit));
  LYNX_RETURN_IF_ERROR(CheckNotLfsPointer(path, text));
  return text;
}

absl::StatusOr<ImportedWeights> ImportFromHuggingFace(const std::string& folder, const ModelSpec& model,
                                                      const FamilyTraits& family, const std::string& directory,
                                                      NonFiniteWeights non_finite, FileSystem& files) {
  CheckpointIdentity identity;
  identity.job = JobId(kImportJob);
  identity.generation = Generation(1);
  identity.model = model;
  identity.model.plan_only = 0;  // features that are left out are not in the checkpoint
  const absl::Status there = ReadSummary(files, directory, 0).status();
  if (there.ok() || absl::IsDataLoss(there)) {
    return absl::AlreadyExistsError(absl::StrCat(CheckpointPath(directory, 0), " is there already; name another directory"));
  }
  if (!absl::IsNotFound(there)) return there;
  const StageContext context = WholeContext(identity.model);
  const std::vector<ParameterSlot> slots = ParameterSlotsOf(context, 0);
  LYNX_ASSIGN_OR_RETURN(Source source, OpenSource(folder, model, family, slots, non_finite, files));
  std::vector<float> values;
  const auto content = [&](size_t i) -> absl::StatusOr<std::span<const char>> {
    values.clear();
    values.reserve(static_cast<size_t>(slots[i].global_rows * slots[i].global_columns));
    for (const HuggingFaceTensor& tensor : HuggingFaceTensorsOf(slots[i], model, family)) {
      LYNX_ASSIGN_OR_RETURN(const std::vector<float> part, source.Read(tensor));
      values.insert(values.end(), part.begin(), part.end());
    }
    return CharsOf(values);
  };
  const SafetensorsHeader header = ShardHeader(identity, context, 0, slots, /*weights_only=*/true);
  const absl::Status written = WriteShard(directory, identity, context, 0, 0, header, content, files).status();
  if (!written.ok()) {
    DiscardCheckpoint(directory, identity, files);
    return written;
  }
  LYNX_RETURN_IF_ERROR(PublishCheckpoint(directory, identity, files).status());
  LYNX_ASSIGN_OR_RETURN(CheckpointSummary checkpoint, ReadSummary(files, directory, 0));
  return ImportedWeights{std::move(checkpoint), source.notes()};
}

}  // namespace lynx::worker
