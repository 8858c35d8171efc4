#include "worker/checkpoint/hugging_face_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "worker/checkpoint/hugging_face_names.h"

namespace lynx::worker {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr Bytes kIndexLimit = kMiB * 64;
constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";
constexpr char kWeightMap[] = "weight_map";
// The end of a tensor's name if all experts are stacked in one tensor. transformers 5 can save them so, but by default does
// not.
constexpr std::string_view kStackedExperts = ".mlp.experts.gate_up_proj";
constexpr size_t kMaxShown = 3;

// Returns the names as text: "a", "a, b" or "a, b, c and 4 more".
std::string ListText(const Names& names) {
  const size_t shown = std::min(names.size(), kMaxShown);
  const std::string text = absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  return names.size() == shown ? text : absl::StrCat(text, " and ", names.size() - shown, " more");
}

// A format in which other programs store weights. The file's name shows the format.
struct OtherFormat {
  std::string_view prefix, suffix;  // the file's name begins and ends with them
  const char* what;
  const char* what_to_do;
};
constexpr char kFromPretrained[] = "convert it to safetensors with from_pretrained and save_pretrained of transformers";
// The first entry that matches a file's name is used. The first two formats can also be recognised by the names of their
// tensors.
constexpr size_t kAdapter = 0, kConsolidated = 1;
constexpr OtherFormat kOtherFormats[] = {
    {"adapter_model", "", "an adapter (LoRA), which changes another model",
     "merge it into that model and save the result, with merge_and_unload of peft and save_pretrained"},
    {"consolidated", ".safetensors", "Mistral's or Meta's own format, with other tensor names",
     "convert it to safetensors with convert_mistral_weights_to_hf.py or convert_llama_weights_to_hf.py of "
     "transformers"},
    {"consolidated", ".pth", "Mistral's or Meta's own format, pickled",
     "convert it to safetensors with convert_mistral_weights_to_hf.py or convert_llama_weights_to_hf.py of "
     "transformers"},
    {"pytorch_model", ".bin", "PyTorch's pickled format", kFromPretrained},
    {"", ".pth", "PyTorch's pickled format", kFromPretrained},
    {"", ".pt", "PyTorch's pickled format", kFromPretrained},
    {"", ".gguf", "llama.cpp's format, often quantised",
     "convert it to safetensors with from_pretrained(..., gguf_file=...) and save_pretrained of transformers"},
    {"tf_model", ".h5", "TensorFlow's format", kFromPretrained},
    {"flax_model", ".msgpack", "Flax's format", kFromPretrained},
};
// Beginnings of the names of a training run's files. Such files may end like weight files, but they hold no weights.
constexpr std::string_view kTrainingStates[] = {"optimizer", "scheduler", "rng_state", "training_args"};

std::optional<size_t> FormatByName(std::string_view name) {
  for (const std::string_view state : kTrainingStates) {
    if (name.starts_with(state)) return std::nullopt;
  }
  for (size_t i = 0; i < std::size(kOtherFormats); ++i) {
    if (name.starts_with(kOtherFormats[i].prefix) && name.ends_with(kOtherFormats[i].suffix)) return i;
  }
  return std::nullopt;
}

std::optional<size_t> FormatByTensors(const SafetensorsHeader& header) {
  for (const SafetensorsEntry& tensor : header.tensors) {
    const std::string& name = tensor.name;
    if (name.find(".lora_A.") != std::string::npos || name.find(".lora_B.") != std::string::npos) return kAdapter;
    if (name == "tok_embeddings.weight" || name.find(".attention.wq.") != std::string::npos) return kConsolidated;
  }
  return std::nullopt;
}

// The tensors of each file, as the folder's index lists them. No other part of the index is used.
using TensorsOfFiles = std::map<std::string, Names>;

class Folder {
 public:
  Folder(FileSystem& files, const std::string& path, const std::set<std::string>& needed)
      : files_(files), path_(path), needed_(needed) {}

  absl::StatusOr<WeightFiles> Choose() {
    LYNX_ASSIGN_OR_RETURN(const Names names, files_.List(path_));
    bool indexed = false;
    for (const std::string& name : names) {
      indexed = indexed || name == kHuggingFaceIndexFile;
      if (name.ends_with(".safetensors")) {
        Sort(name);
      } else if (const std::optional<size_t> format = FormatByName(name)) {
        others_[*format].push_back(name);
      }
    }
    const bool whole = safetensors_.contains(kHuggingFaceWeightsFile);
    absl::StatusOr<WeightFiles> chosen = indexed ? ByIndex(whole)
                                         : whole ? FromFiles({kHuggingFaceWeightsFile})
                                                 : FromFiles({safetensors_.begin(), safetensors_.end()});
    LYNX_RETURN_IF_ERROR(chosen.status());
    if (const Names missing = Missing(*chosen); !missing.empty()) return NotWhole(*chosen, missing);
    NoteNotTaken(*chosen);
    chosen->notes = std::move(notes_);
    return chosen;
  }

 private:
  std::string PathOf(const std::string& name) const { return absl::StrCat(path_, "/", name); }
  std::string NameOf(const SafetensorsFile& file) const { return file.path.substr(path_.size() + 1); }
  std::string TextOf(const TensorInFile& place) const { return absl::StrCat(place.tensor->name, " in ", NameOf(*place.file)); }

  // Adds a *.safetensors file to the files of its format. The names of the file's tensors show the format. The file's own name
  // shows it if the name is that of an adapter, or if the file cannot be read.
  void Sort(const std::string& name) {
    std::optional<size_t> format = FormatByName(name);
    if (format != kAdapter) {
      // If the file cannot be read, this function returns no error. If the file is taken later, the code that takes it returns
      // the error.
      const absl::StatusOr<SafetensorsFile> file = Open(name);
      if (file.ok()) format = FormatByTensors(file->header);
    }
    if (format) {
      others_[*format].push_back(name);
    } else {
      safetensors_.insert(name);
    }
  }

  absl::StatusOr<SafetensorsFile> Open(const std::string& name) {
    const std::string path = PathOf(name);
    LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files_.OpenFile(path));
    std::string begin(std::min<size_t>(kLfsPointer.size(), static_cast<size_t>(file->size().value)), '\0');
    LYNX_RETURN_IF_ERROR(file->Read(begin));
    LYNX_RETURN_IF_ERROR(CheckNotLfsPointer(path, begin));
    return OpenSafetensorsFile(files_, path);
  }

  // Returns the name that the model uses for this tensor. `name` may lack the first part of that name, such as "model.".
  std::string FullName(const std::string& name) const {
    if (needed_.contains(name)) return name;
    for (const char* first : {"transformer.", "model."}) {
      if (std::string full = absl::StrCat(first, name); needed_.contains(full)) return full;
    }
    return name;
  }

  Names Missing(const WeightFiles& chosen) const {
    Names missing;
    for (const std::string& name : needed_) {
      if (!chosen.tensors.contains(name)) missing.push_back(name);
    }
    return missing;
  }

  // Takes all tensors of these files.
  absl::StatusOr<WeightFiles> FromFiles(const Names& names) {
    if (names.empty()) return NothingThere();
    WeightFiles weights;
    Places places;
    for (const std::string& name : names) {
      LYNX_ASSIGN_OR_RETURN(SafetensorsFile file, Open(name));
      for (size_t i = 0; i < file.header.tensors.size(); ++i) {
        places[FullName(file.header.tensors[i].name)].push_back({weights.files.size(), i});
      }
      weights.files.push_back(std::move(file));
    }
    LYNX_RETURN_IF_ERROR(Merge(places, weights));
    return weights;
  }

  using Places = std::map<std::string, std::vector<WeightPlace>>;  // the key is the model's name for the tensor

  // Takes each tensor from its first place. Returns an error if another place has a different content.
  absl::Status Merge(const Places& places, WeightFiles& weights) {
    std::map<std::pair<size_t, size_t>, Names> same;  // the key is the file that is taken and the other file
    for (const auto& [name, all] : places) {
      weights.tensors[name] = all.front();
      if (IsHuggingFaceConstant(name)) continue;
      for (size_t i = 1; i < all.size(); ++i) {
        LYNX_RETURN_IF_ERROR(CheckSame(weights.At(all.front()), weights.At(all[i])));
        same[{all.front().file, all[i].file}].push_back(name);
      }
    }
    for (const auto& [pair, names] : same) {
      const std::string taken = NameOf(weights.files[pair.first]), other = NameOf(weights.files[pair.second]);
      notes_.push_back(taken == other
                           ? absl::StrCat(taken, " holds twice, with the same content: ", ListText(names))
                           : absl::StrCat(taken, " and ", other, " both hold, with the same content: ", ListText(names),
                                          "; taken from ", taken));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSame(const TensorInFile& a, const TensorInFile& b) {
    LYNX_ASSIGN_OR_RETURN(const bool same, SameContent(files_, a, b));
    if (same) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", TextOf(a), " is not the same as ", TextOf(b),
                                                   ": either may be meant; move away what is not"));
  }

  absl::StatusOr<WeightFiles> ByIndex(bool whole) {
    const std::string path = PathOf(kHuggingFaceIndexFile);
    LYNX_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files_, path, kIndexLimit));
    LYNX_RETURN_IF_ERROR(CheckNotLfsPointer(path, text));
    const absl::StatusOr<std::map<std::string, std::string>> map = ParseWeightMap(text);
    if (!map.ok()) return Annotate(map.status(), path);
    TensorsOfFiles indexed;
    for (const auto& [tensor, file] : *map) indexed[file].push_back(tensor);
    Names absent;
    for (const auto& [file, tensors] : indexed) {
      if (!IsThere(file)) absent.push_back(file);
    }
    if (!absent.empty()) return WithoutIndex(indexed, absent, whole);
    LYNX_ASSIGN_OR_RETURN(WeightFiles weights, FromIndex(*map, indexed));
    if (!whole || indexed.contains(kHuggingFaceWeightsFile)) return weights;
    return WholeOrIndexed(std::move(weights));
  }

  bool IsThere(const std::string& name) const {
    if (safetensors_.contains(name)) return true;
    return std::any_of(others_.begin(), others_.end(), [&](const auto& other) {
      return std::find(other.second.begin(), other.second.end(), name) != other.second.end();
    });
  }

  // Takes each tensor that the index lists from the file that the index names for it. Also takes tensors of these files that
  // neither the index nor the model knows, so that a later check reports them.
  absl::StatusOr<WeightFiles> FromIndex(const std::map<std::string, std::string>& map, const TensorsOfFiles& indexed) {
    WeightFiles weights;
    Places places;
    for (const auto& [name, tensors] : indexed) {
      LYNX_ASSIGN_OR_RETURN(SafetensorsFile file, Open(name));
      std::set<std::string> wanted(tensors.begin(), tensors.end());
      Names others;  // tensors of this file that are not taken, because the index names another file for them or lists them
                     // nowhere
      for (size_t i = 0; i < file.header.tensors.size(); ++i) {
        const std::string& tensor = file.header.tensors[i].name;
        const std::string full = FullName(tensor);
        if (wanted.erase(tensor) > 0 || (!map.contains(tensor) && !needed_.contains(full))) {
          places[full].push_back({weights.files.size(), i});
        } else {
          others.push_back(tensor);
          if (!map.contains(tensor)) unlisted_[full] = name;
        }
      }
      if (!wanted.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(PathOf(kHuggingFaceIndexFile), ": ", name, " is said to hold ",
                                                       ListText({wanted.begin(), wanted.end()}),
                                                       ", but does not: index and files are not of one save"));
      }
      if (!others.empty()) {
        notes_.push_back(absl::StrCat("not taken from ", name, ": ", ListText(others), "; ", kHuggingFaceIndexFile,
                                      " does not name that file for it"));
      }
      weights.files.push_back(std::move(file));
    }
    LYNX_RETURN_IF_ERROR(Merge(places, weights));
    return weights;
  }

  // Handles an index that names files which do not exist (`absent`). Ignores the index if the other files hold the whole model;
  // otherwise returns an error.
  absl::StatusOr<WeightFiles> WithoutIndex(const TensorsOfFiles& indexed, const Names& absent, bool whole) {
    std::set<std::string> rest = safetensors_;
    if (whole) std::erase_if(rest, [&](const std::string& name) { return !indexed.contains(name); });
    rest.erase(kHuggingFaceWeightsFile);
    Names there = whole ? Names{kHuggingFaceWeightsFile} : Names{};
    there.insert(there.end(), rest.begin(), rest.end());
    Names tensors;
    for (const std::string& file : absent) {
      tensors.insert(tensors.end(), indexed.at(file).begin(), indexed.at(file).end());
    }
    const std::string says = absl::StrCat(PathOf(kHuggingFaceIndexFile), " names ", ListText(absent), " (with ",
                                          ListText(tensors), "), which ", absent.size() == 1 ? "is" : "are", " not there");
    if (!there.empty()) {
      absl::StatusOr<WeightFiles> weights = FromFiles(there);
      if (!weights.ok()) return Annotate(weights.status(), says);
      if (Missing(*weights).empty()) {
        notes_.push_back(absl::StrCat(says, "; it is passed over, as ", ListText(there), there.size() == 1 ? " holds" : " hold",
                                      " the whole model"));
        return weights;
      }
    }
    return absl::NotFoundError(
        absl::StrCat(says, ", and the model is not whole without: download what is missing, or save the model anew"));
  }

  // Handles a folder that has model.safetensors and also an index with all its files. The model was then saved twice, and the
  // user may mean either of the two. Returns an error if they differ. Takes model.safetensors, or the indexed files if only
  // they hold the whole model.
  absl::StatusOr<WeightFiles> WholeOrIndexed(WeightFiles indexed) {
    LYNX_ASSIGN_OR_RETURN(WeightFiles whole, FromFiles({kHuggingFaceWeightsFile}));
    for (const auto& [name, place] : whole.tensors) {
      const auto other = indexed.tensors.find(name);
      if (other == indexed.tensors.end() || IsHuggingFaceConstant(name)) continue;
      const absl::Status same = CheckSame(whole.At(place), indexed.At(other->second));
      if (!same.ok()) {
        return Annotate(same, absl::StrCat(kHuggingFaceWeightsFile, " and ", kHuggingFaceIndexFile, " do not agree"));
      }
    }
    const Names missing = Missing(whole);
    const bool take_indexed = !missing.empty() && Missing(indexed).empty();
    notes_.push_back(take_indexed ? absl::StrCat(kHuggingFaceWeightsFile, " lacks ", ListText(missing), "; the files that ",
                                                 kHuggingFaceIndexFile, " names are taken")
                                  : absl::StrCat("there are both ", kHuggingFaceWeightsFile, " and ", kHuggingFaceIndexFile,
                                                 "; what both hold is the same, and taken from ", kHuggingFaceWeightsFile));
    return take_indexed ? std::move(indexed) : std::move(whole);
  }

  absl::Status NotWhole(const WeightFiles& chosen, const Names& missing) const {
    if (const auto held = unlisted_.find(missing.front()); held != unlisted_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(PathOf(kHuggingFaceIndexFile), " does not list ", held->first,
                                                     ", which the model needs and ", held->second,
                                                     " holds: index and files are not of one save"));
    }
    const bool stacked = std::any_of(chosen.tensors.begin(), chosen.tensors.end(),
                                     [](const auto& tensor) { return tensor.first.ends_with(kStackedExperts); });
    return absl::InvalidArgumentError(
        absl::StrCat(path_, " has no tensor ", ListText(missing), " (in ", ListText(NamesOf(chosen)), ")",
                     stacked ? "; the experts of a layer are stacked there: save the model with save_pretrained(..., "
                               "save_original_format=True) of transformers, which writes each expert by itself"
                             : ""));
  }

  // Returns the error for a folder without weights: the folder has only files of other formats, or no files.
  absl::Status NothingThere() const {
    Names texts;
    for (const auto& [format, names] : others_) {
      const OtherFormat& other = kOtherFormats[format];
      texts.push_back(absl::StrCat(ListText(names), ", which is ", other.what, ": ", other.what_to_do));
    }
    if (texts.empty()) return absl::NotFoundError(absl::StrCat("there is no ", kHuggingFaceWeightsFile, " in ", path_));
    return absl::NotFoundError(absl::StrCat("there are no weights in ", path_, " that can be imported; there is only ",
                                            absl::StrJoin(texts, "; and ")));
  }

  Names NamesOf(const WeightFiles& chosen) const {
    Names names;
    for (const SafetensorsFile& file : chosen.files) names.push_back(NameOf(file));
    return names;
  }

  void NoteNotTaken(const WeightFiles& chosen) {
    const Names taken = NamesOf(chosen);
    Names left;
    for (const std::string& name : safetensors_) {
      if (std::find(taken.begin(), taken.end(), name) == taken.end()) left.push_back(name);
    }
    if (!left.empty())
      notes_.push_back(absl::StrCat("not taken: ", absl::StrJoin(left, ", "), "; the weights are those of ", ListText(taken)));
    for (const auto& [format, names] : others_) {
      notes_.push_back(absl::StrCat("not taken: ", absl::StrJoin(names, ", "), "; it is ", kOtherFormats[format].what));
    }
  }

  FileSystem& files_;
  const std::string& path_;
  const std::set<std::string>& needed_;
  std::set<std::string> safetensors_;  // names of files, without the files of other formats
  std::map<size_t, Names> others_;     // the key is an index into kOtherFormats, the value is the names of files
  // Needed tensors that the index does not list; the value is a file that has the tensor.
  std::map<std::string, std::string> unlisted_;
  Names notes_;
};

}  // namespace

absl::StatusOr<WeightFiles> ChooseWeightFiles(FileSystem& files, const std::string& folder,
                                              const std::set<std::string>& needed) {
  return Folder(files, folder, needed).Choose();
}

absl::StatusOr<std::map<std::string, std::string>> ParseWeightMap(std::string_view text) {
  // If a key is repeated, the parser keeps only the last value. So this function looks for repeated keys while it parses.
  std::set<std::string> keys;
  std::optional<std::string> repeated;
  std::string outer;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key) return true;
    const std::string key = parsed.get<std::string>();
    if (depth == 1) outer = key;
    if (depth == 1 ? key == kWeightMap : depth == 2 && outer == kWeightMap) {
      if (!keys.insert(absl::StrCat(depth, key)).second && !repeated) repeated = key;
    }
    return true;
  };
  const json root = json::parse(text, watch, /*allow_exceptions=*/false);
  if (!root.is_object()) return absl::InvalidArgumentError("not a JSON object");
  if (!root.contains(kWeightMap)) return absl::InvalidArgumentError(absl::StrCat("there is no ", kWeightMap));
  if (repeated) return absl::InvalidArgumentError(absl::StrCat("the name ", *repeated, " appears twice"));
  if (!root[kWeightMap].is_object() || root[kWeightMap].empty()) {
    return absl::InvalidArgumentError(absl::StrCat(kWeightMap, " is not an object that names a file for each tensor"));
  }
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : root[kWeightMap].items()) {
    const auto* const name = file.get_ptr<const std::string*>();
    const bool plain = name != nullptr && name->find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!plain || !name->ends_with(".safetensors")) {
      return absl::InvalidArgumentError(absl::StrCat(kWeightMap, ": the file of ", tensor, " is ",
                                                     file.dump(-1, ' ', false, json::error_handler_t::replace),
                                                     ", not the name of a *.safetensors file in the same folder"));
    }
    map[tensor] = *name;
  }
  return map;
}

absl::Status CheckNotLfsPointer(const std::string& path, std::string_view text) {
  if (!text.starts_with(kLfsPointer)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is a git-lfs pointer, not the file that it stands for: run `git lfs pull` in its folder"));
}

}  // namespace lynx::worker
