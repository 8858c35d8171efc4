#include "cli/spec/job_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/spec/job_fields.h"
#include "cli/spec/model_config.h"
#include "cli/spec/yaml_record.h"
#include "common/status.h"
#include "common/utf8.h"
#include "planner/problem/model_presets.h"

namespace lynx::cli {
namespace {

constexpr size_t kMaxTextBytes = 16 << 20;

struct Override {
  std::string text;  // "train.steps=20"
  std::string path, value;
};

// InvalidArgument if the text is not UTF-8. Folder names and words of the command line may be any bytes, but the server
// accepts only UTF-8. `mend`: what to do about it.
absl::Status CheckUtf8(const std::string& field, const std::string& text, const char* mend) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(VisibleLine(field), ": '", VisibleLine(text), "' is not UTF-8 from byte ", valid + 1, " on; ", mend));
}

absl::StatusOr<std::vector<Override>> SplitOverrides(const std::vector<std::string>& texts) {
  std::vector<Override> overrides;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--set ", text, ": expected FIELD=VALUE"));
    }
    const std::string path = text.substr(0, equals), value = text.substr(equals + 1);
    LYNX_RETURN_IF_ERROR(CheckUtf8("--set", path, "name a field"));
    LYNX_RETURN_IF_ERROR(CheckUtf8("--set " + path, value, "give it in that encoding"));
    overrides.push_back({text, path, value});
  }
  return overrides;
}

absl::Status Apply(const Override& change, JobSpec& spec) {
  const std::vector<JobField>& fields = JobFields();
  const auto field = std::find_if(fields.begin(), fields.end(), [&](const JobField& f) { return f.path == change.path; });
  if (field == fields.end()) {
    std::vector<std::string> known;
    for (const JobField& f : fields) known.push_back(f.path);
    return absl::InvalidArgumentError(absl::StrCat("--set ", change.text, ": unknown field", DidYouMean(change.path, known)));
  }
  return Annotate(field->read(change.value, spec), absl::StrCat("--set ", change.text));
}

std::string Resolved(const std::string& path, const std::string& folder) {
  if (path.empty() || path[0] == '/') return path;
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

// Where the values come from that the fields of the model replace: a preset, or a config.json.
struct ModelBase {
  std::string field, value;
  const YamlValue* at = nullptr;     // the place in the file that names the base; nullptr: `change` names it
  const Override* change = nullptr;  // the --set that names the base
};

// Finds the base of the model. If overrides name a preset or a config.json, the last of them is used; otherwise the one that
// the file names. If the field in the file is not a scalar, it is ignored here, and YamlReader::Read reports it later.
absl::StatusOr<std::optional<ModelBase>> FindModelBase(const YamlValue& root, const std::vector<Override>& overrides,
                                                       const YamlReader& reader) {
  std::optional<ModelBase> base;
  for (const Override& change : overrides) {
    if (change.path == kModelPreset || change.path == kModelConfig) {
      base = ModelBase{change.path, change.value, nullptr, &change};
    }
  }
  if (base) return base;
  const YamlValue* model = root.Find("model");
  if (model == nullptr) return base;
  const YamlValue* preset = model->Find("preset");
  const YamlValue* config = model->Find("config");
  if (preset != nullptr && config != nullptr) {
    return reader.Error(*config, kModelConfig, "given beside model.preset; keep one of them");
  }
  if (preset != nullptr && preset->IsScalar()) base = ModelBase{kModelPreset, preset->scalar, preset};
  if (config != nullptr && config->IsScalar()) base = ModelBase{kModelConfig, config->scalar, config};
  return base;
}

absl::StatusOr<ModelSpec> ReadModelBase(const ModelBase& base, const std::string& folder, const TextReader& read) {
  if (base.field == kModelPreset) {
    if (const ModelPreset* preset = FindModelPreset(base.value)) return preset->model;
    std::vector<std::string> names;
    for (const ModelPreset& preset : ModelPresets()) names.push_back(preset.name);
    return absl::InvalidArgumentError(absl::StrCat("unknown model '", base.value, "'", DidYouMean(base.value, names)));
  }
  LYNX_ASSIGN_OR_RETURN(const std::string text, read(Resolved(base.value, folder)));
  return ParseModelConfig(text, base.value);
}

// Relative paths start from the job file's folder.
absl::Status ResolvePaths(const std::string& folder, JobSpec& spec) {
  const std::pair<const char*, std::string*> paths[] = {{"data.path", &spec.data.path},
                                                        {"data.validationPath", &spec.data.validation_path},
                                                        {"checkpoint.directory", &spec.checkpoint.directory},
                                                        {"checkpoint.from", &spec.checkpoint.from}};
  for (const auto& [field, path] : paths) {
    *path = Resolved(*path, folder);
    LYNX_RETURN_IF_ERROR(CheckUtf8(field, *path, "give the job file's folder another name, or the whole path"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read '", path, "': no such file, or not readable"));
  // The file is read in pieces: clearing a buffer for the longest allowed file would take longer than submitting most files.
  std::string text;
  std::array<char, 64 * 1024> piece;
  do {
    in.read(piece.data(), piece.size());
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
    if (text.size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(absl::StrCat("'", path, "' is larger than ", kMaxTextBytes, " bytes"));
    }
  } while (in);
  if (in.bad()) return absl::NotFoundError(absl::StrCat("cannot read '", path, "': is it a folder?"));
  return text;
}

absl::StatusOr<JobSpec> ParseJobFile(const std::string& text, const std::string& file, const std::string& folder,
                                     const std::vector<std::string>& override_texts, const TextReader& read) {
  LYNX_ASSIGN_OR_RETURN(const std::vector<Override> overrides, SplitOverrides(override_texts));
  LYNX_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(text, file));
  if (root.kind == YamlKind::kNull) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": the file is empty; see 'lynxctl defaults'"));
  }
  YamlReader reader(file);
  LYNX_RETURN_IF_ERROR(reader.CheckHeader(root, "TrainingJob"));
  JobSpec spec;
  std::vector<std::string> optional;
  for (const Override& change : overrides) optional.push_back(change.path);
  LYNX_ASSIGN_OR_RETURN(const std::optional<ModelBase> base, FindModelBase(root, overrides, reader));
  if (base) {
    absl::StatusOr<ModelSpec> model = ReadModelBase(*base, folder, read);
    if (!model.ok() && base->at != nullptr) {
      return reader.Error(*base->at, base->field, std::string(model.status().message()));
    }
    if (!model.ok()) return Annotate(model.status(), absl::StrCat("--set ", base->change->text));
    spec.model = *std::move(model);
    for (const char* field : {"layers", "hidden", "heads", "seq"}) optional.push_back(absl::StrCat("model.", field));
  }
  LYNX_RETURN_IF_ERROR(reader.Read(root, "", JobFields(), spec, optional));
  for (const Override& change : overrides) LYNX_RETURN_IF_ERROR(Apply(change, spec));
  LYNX_RETURN_IF_ERROR(ResolvePaths(folder, spec));
  Normalize(spec);
  const absl::Status valid = ValidateJobSpec(spec);
  if (!valid.ok()) {
    const std::string message(valid.message());
    return absl::InvalidArgumentError(
        absl::StrCat(reader.PlaceOf(message.substr(0, message.find_first_of(": "))), ": ", message));
  }
  return spec;
}

absl::StatusOr<JobSpec> ReadJobFile(const std::string& path, const std::vector<std::string>& overrides) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return Annotate(text.status(), "job file");
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return ParseJobFile(*text, path, absolute.parent_path().string(), overrides);
}

std::string JobFileText(const JobSpec& spec) {
  return "apiVersion: lynx/v1\nkind: TrainingJob\n" + RecordText(JobFields(), spec);
}

std::string JobFileReference() { return kReferenceHead + ReferenceRows(JobFields(), JobSpec()); }

}  // namespace lynx::cli
