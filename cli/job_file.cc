#include "cli/job_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace lynx {
namespace {

// One field of the file. `path` is "section.name" or "name" at the top level. `read` gets the scalar's text and says
// what was expected on failure; `write` gives the YAML scalar, or "" where the field is left out.
struct Field {
  std::string path;
  std::string meaning;
  bool required;
  std::function<absl::Status(const std::string&, JobSpec&)> read;
  std::function<std::string(const JobSpec&)> write;
};

absl::Status Expected(const std::string& what, const std::string& got) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what, ", found '", got, "'"));
}

std::string DoubleText(double value) {
  // The shortest text that reads back as the same number.
  for (int digits = 1; digits <= 17; ++digits) {
    char text[40];
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) return text;
  }
  return absl::StrCat(value);
}

template <class Int>
absl::Status ReadInt(const std::string& text, Int& out) {
  Int value;
  if (!absl::SimpleAtoi(text, &value)) {
    return Expected(absl::StrCat("a whole number up to ", std::numeric_limits<Int>::max()), text);
  }
  out = value;
  return absl::OkStatus();
}

template <class Owner, class Member>
Field IntField(std::string path, std::string meaning, bool required, Owner owner, Member member,
               std::string zero_word = "") {
  return {path, meaning, required,
          [=](const std::string& text, JobSpec& spec) {
            auto& target = owner(spec).*member;
            if (!zero_word.empty() && text == zero_word) {
              target = 0;
              return absl::OkStatus();
            }
            return ReadInt(text, target);
          },
          [=](const JobSpec& spec) {
            const auto value = owner(const_cast<JobSpec&>(spec)).*member;
            return value == 0 && !zero_word.empty() ? zero_word : absl::StrCat(value);
          }};
}

template <class Owner>
Field DoubleField(std::string path, std::string meaning, Owner owner) {
  return {path, meaning, false,
          [=](const std::string& text, JobSpec& spec) {
            double value;
            if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return Expected("a number", text);
            owner(spec) = value;
            return absl::OkStatus();
          },
          [=](const JobSpec& spec) { return DoubleText(owner(const_cast<JobSpec&>(spec))); }};
}

template <class Owner, class Parse, class Name>
Field EnumField(std::string path, std::string meaning, std::string choices, Owner owner, Parse parse, Name name) {
  return {path, absl::StrCat(meaning, ": ", choices), false,
          [=](const std::string& text, JobSpec& spec) {
            return parse(text, owner(spec)) ? absl::OkStatus() : Expected(choices, text);
          },
          [=](const JobSpec& spec) { return std::string(name(owner(const_cast<JobSpec&>(spec)))); }};
}

std::string Quoted(const std::string& text);

template <class Owner>
Field BoolField(std::string path, std::string meaning, Owner owner) {
  return {path, absl::StrCat(meaning, ": true or false"), false,
          [=](const std::string& text, JobSpec& spec) {
            if (text != "true" && text != "false") return Expected("true or false", text);
            owner(spec) = text == "true";
            return absl::OkStatus();
          },
          [=](const JobSpec& spec) { return std::string(owner(const_cast<JobSpec&>(spec)) ? "true" : "false"); }};
}

// Zero to one in the file, thousandths in the spec.
Field OffloadShareField() {
  return {"recomputeOptions.offloadShare", "share of stored activations that go to the host, 0 to 1", false,
          [](const std::string& text, JobSpec& spec) {
            double value;
            if (!absl::SimpleAtod(text, &value) || !(value >= 0 && value <= 1)) return Expected("a number from 0 to 1", text);
            spec.recompute_options.offload_permille = static_cast<int32_t>(std::lround(value * 1000));
            return absl::OkStatus();
          },
          [](const JobSpec& spec) { return DoubleText(spec.recompute_options.offload_permille / 1000.0); }};
}

Field ForbiddenField() {
  return {"recomputeOptions.forbid", "policies that recompute: auto may not choose, separated by blanks", false,
          [](const std::string& text, JobSpec& spec) {
            spec.recompute_options.forbidden.clear();
            for (const std::string& name : std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty()))) {
              RecomputeMode mode;
              if (!ParseRecomputeMode(name, mode) || mode == RecomputeMode::kAuto) {
                return Expected("names of policies other than auto", name);
              }
              spec.recompute_options.forbidden.push_back(mode);
            }
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            std::vector<std::string> names;
            for (RecomputeMode mode : spec.recompute_options.forbidden) names.push_back(RecomputeModeName(mode));
            return names.empty() ? "" : Quoted(absl::StrJoin(names, " "));
          }};
}

// A YAML scalar that reads back as the same text.
std::string Quoted(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

Field RanksField() {
  return {"resources.ranks", "devices to train on: a number, or a range such as 2..8", true,
          [](const std::string& text, JobSpec& spec) {
            const std::vector<std::string> parts = absl::StrSplit(text, "..");
            ResourceSpec& r = spec.resources;
            if (parts.size() > 2 || !ReadInt(parts[0], r.min_ranks).ok() || !ReadInt(parts.back(), r.max_ranks).ok()) {
              return Expected("a number or a range such as 2..8", text);
            }
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            const ResourceSpec& r = spec.resources;
            return r.min_ranks == r.max_ranks ? absl::StrCat(r.min_ranks)
                                              : absl::StrCat(r.min_ranks, "..", r.max_ranks);
          }};
}

Field ActivationMemoryField() {
  return {"resources.activationMemoryPerRank",
          "limit for one rank's activations, such as 24MiB; auto: what the device has left", false,
          [](const std::string& text, JobSpec& spec) {
            Bytes& limit = spec.resources.activation_memory_per_rank;
            if (text == "auto") {
              limit = Bytes(0);
              return absl::OkStatus();
            }
            auto bytes = ParseByteSize(text);
            if (!bytes.ok()) return bytes.status();
            if (bytes->value == 0) return Expected("a size above zero, or auto", text);
            limit = *bytes;
            return absl::OkStatus();
          },
          [](const JobSpec& spec) {
            const Bytes limit = spec.resources.activation_memory_per_rank;
            return limit.value == 0 ? "auto" : ByteSizeText(limit);
          }};
}

Field TextField(std::string path, std::string meaning, bool required, std::function<std::string&(JobSpec&)> owner) {
  return {path, meaning, required,
          [=](const std::string& text, JobSpec& spec) {
            owner(spec) = text;
            return absl::OkStatus();
          },
          [=](const JobSpec& spec) {
            const std::string& text = owner(const_cast<JobSpec&>(spec));
            return text.empty() ? "" : Quoted(text);
          }};
}

std::vector<Field> ModelFields() {
  auto model = [](JobSpec& s) -> ModelSpec& { return s.model; };
  return {
      IntField("model.layers", "transformer layers", true, model, &ModelSpec::layers),
      IntField("model.hidden", "hidden size, a multiple of heads", true, model, &ModelSpec::hidden),
      IntField("model.heads", "attention heads", true, model, &ModelSpec::heads),
      IntField("model.ffn", "feed-forward size; auto: 4 x hidden for gpt, 8/3 x hidden rounded up to 256s for llama", false,
               model, &ModelSpec::ffn, "auto"),
      IntField("model.seq", "tokens per sample", true, model, &ModelSpec::seq),
      IntField("model.vocab", "vocabulary size; 256 for bytes", false, model, &ModelSpec::vocab),
      DoubleField("model.dropout", "dropout rate, 0 to below 1; 0 for llama",
                  [](JobSpec& s) -> double& { return s.model.dropout; }),
      EnumField("model.family", "architecture", "gpt or llama", [](JobSpec& s) -> ModelFamily& { return s.model.family; },
                ParseModelFamily, ModelFamilyName),
      IntField("model.kvHeads", "key and value heads of llama, a divisor of heads; auto: heads", false, model,
               &ModelSpec::kv_heads, "auto"),
      EnumField("model.attention", "whether the scores are stored", "unfused or fused",
                [](JobSpec& s) -> AttentionKernel& { return s.model.attention; }, ParseAttentionKernel, AttentionKernelName),
      EnumField("model.dtype", "of weights in use, activations and communication", "float32 or bfloat16",
                [](JobSpec& s) -> DataType& { return s.model.dtype; }, ParseDataType, DataTypeName),
      EnumField("model.dropoutMasks", "stored: as frameworks that keep a byte per element", "regenerated or stored",
                [](JobSpec& s) -> DropoutMasks& { return s.model.dropout_masks; }, ParseDropoutMasks, DropoutMasksName),
      BoolField("model.tiedEmbeddings", "the output projection is the token embedding",
                [](JobSpec& s) -> bool& { return s.model.tied_embeddings; }),
  };
}

std::vector<Field> TrainFields() {
  auto train = [](JobSpec& s) -> TrainSpec& { return s.train; };
  using D = JobSpec&;
  return {
      IntField("train.steps", "optimizer steps", true, train, &TrainSpec::steps),
      IntField("train.globalBatch", "samples per optimizer step, over all replicas", true, train,
               &TrainSpec::global_batch),
      IntField("train.microBatch", "samples per microbatch, or auto", false, train, &TrainSpec::micro_batch, "auto"),
      DoubleField("train.optimizer.lr", "peak learning rate", [](D s) -> double& { return s.train.optimizer.lr; }),
      DoubleField("train.optimizer.beta1", "AdamW", [](D s) -> double& { return s.train.optimizer.beta1; }),
      DoubleField("train.optimizer.beta2", "AdamW", [](D s) -> double& { return s.train.optimizer.beta2; }),
      DoubleField("train.optimizer.eps", "AdamW", [](D s) -> double& { return s.train.optimizer.eps; }),
      DoubleField("train.optimizer.weightDecay", "decoupled, of matrices only",
                  [](D s) -> double& { return s.train.optimizer.weight_decay; }),
      DoubleField("train.optimizer.clipNorm", "limit of the global gradient norm; 0: none",
                  [](D s) -> double& { return s.train.optimizer.clip_norm; }),
      EnumField("train.schedule", "learning rate after the warm-up", "constant, linear or cosine",
                [](D s) -> LrSchedule& { return s.train.schedule; }, ParseLrSchedule, LrScheduleName),
      IntField("train.warmupSteps", "steps of linear warm-up", false, train, &TrainSpec::warmup_steps),
      DoubleField("train.minLr", "where linear and cosine end", [](D s) -> double& { return s.train.min_lr; }),
      IntField("train.seed", "of weights, dropout and the order of samples", false, train, &TrainSpec::seed),
  };
}

const std::vector<Field>& Fields() {
  static const auto& fields = *new std::vector<Field>([] {
    std::vector<Field> all = {
        TextField("name", "lower-case letters, digits and dashes, at most 48", true,
                  [](JobSpec& s) -> std::string& { return s.name; }),
    };
    auto append = [&all](std::vector<Field> more) { all.insert(all.end(), more.begin(), more.end()); };
    auto parallel = [](JobSpec& s) -> ParallelSpec& { return s.parallel; };
    auto checkpoint = [](JobSpec& s) -> CheckpointSpec& { return s.checkpoint; };
    append(ModelFields());
    append({
        EnumField("data.kind", "what the path holds", "text or megatron",
                  [](JobSpec& s) -> DataKind& { return s.data.kind; }, ParseDataKind, DataKindName),
        TextField("data.path", "a text file, or the prefix of a .bin/.idx pair; relative to this file", true,
                  [](JobSpec& s) -> std::string& { return s.data.path; }),
    });
    append(TrainFields());
    append({
        RanksField(),
        ActivationMemoryField(),
        IntField("parallel.tp", "tensor-parallel size, or auto", false, parallel, &ParallelSpec::tp, "auto"),
        IntField("parallel.pp", "pipeline stages, or auto", false, parallel, &ParallelSpec::pp, "auto"),
        IntField("parallel.dp", "data-parallel replicas, or auto", false, parallel, &ParallelSpec::dp, "auto"),
        IntField("parallel.cp", "context-parallel size, or auto", false, parallel, &ParallelSpec::cp, "auto"),
        IntField("parallel.virtualStages", "model chunks per rank, or auto; above 1 with schedule interleaved", false,
                 parallel, &ParallelSpec::virtual_stages, "auto"),
        EnumField("parallel.sequenceParallel", "shard norms and residuals over the tensor-parallel ranks",
                  "auto, off or on", [](JobSpec& s) -> Choice& { return s.parallel.sequence_parallel; }, ParseChoice,
                  ChoiceName),
        EnumField("parallel.schedule", "order of the pipeline's passes",
                  "auto, gpipe, 1f1b, interleaved, zero-bubble, zero-bubble-v or chimera",
                  [](JobSpec& s) -> ScheduleKind& { return s.parallel.schedule; }, ParseScheduleKind, ScheduleKindName),
        EnumField("parallel.zero", "model states that data-parallel ranks share out",
                  "auto, none, optimizer, gradients or weights", [](JobSpec& s) -> ZeroStage& { return s.parallel.zero; },
                  ParseZeroStage, ZeroStageName),
        EnumField("recompute", "recomputation policy",
                  "auto, none, full, full-keep-collectives, selective, uniform, block, balanced, no-overlap, heu or opt",
                  [](JobSpec& s) -> RecomputeMode& { return s.recompute; }, ParseRecomputeMode, RecomputeModeName),
        IntField("recomputeOptions.layers", "N of recompute uniform and block; auto: the best that fits", false,
                 [](JobSpec& s) -> RecomputeOptions& { return s.recompute_options; }, &RecomputeOptions::layers, "auto"),
        OffloadShareField(),
        ForbiddenField(),
        TextField("checkpoint.directory", "shared by all nodes; relative to this file; default: chosen by the server",
                  false, [](JobSpec& s) -> std::string& { return s.checkpoint.directory; }),
        IntField("checkpoint.everySteps", "0: only at the end", false, checkpoint, &CheckpointSpec::every_steps),
        IntField("checkpoint.keep", "newest checkpoints kept", false, checkpoint, &CheckpointSpec::keep),
        IntField("maxRestarts", "automatic restarts after a lost rank or node", false,
                 [](JobSpec& s) -> JobSpec& { return s; }, &JobSpec::max_restarts),
    });
    return all;
  }());
  return fields;
}

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (std::tolower(a[i - 1]) != std::tolower(b[j - 1]));
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

std::string DidYouMean(const std::string& name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty()) return absl::StrCat("; did you mean '", best, "'?");
  return absl::StrCat("; known here: ", absl::StrJoin(known, ", "));
}

// Names that may stand directly below `section` ("" = top level).
std::vector<std::string> KnownNames(const std::string& section) {
  std::vector<std::string> names;
  if (section.empty()) names = {"apiVersion", "kind"};
  const std::string prefix = section.empty() ? "" : section + ".";
  for (const Field& field : Fields()) {
    if (field.path.compare(0, prefix.size(), prefix) != 0) continue;
    const std::string rest = field.path.substr(prefix.size());
    const std::string name = rest.substr(0, rest.find('.'));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

const Field* FindField(const std::string& path) {
  for (const Field& field : Fields()) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  absl::StatusOr<JobSpec> Read(const YAML::Node& root) {
    if (!root.IsMap()) return Error(root, "", "expected a map that starts with 'apiVersion: lynx/v1'");
    LYNX_RETURN_IF_ERROR(ExpectScalar(root, "apiVersion", "lynx/v1"));
    LYNX_RETURN_IF_ERROR(ExpectScalar(root, "kind", "TrainingJob"));
    LYNX_RETURN_IF_ERROR(ReadMap(root, ""));
    for (const Field& field : Fields()) {
      if (field.required && std::find(seen_.begin(), seen_.end(), field.path) == seen_.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat(file_, ": ", field.path, ": missing; it is required (", field.meaning, ")"));
      }
    }
    return spec_;
  }

  // Where a field stands, for errors found after reading; the file alone if it does not stand there.
  std::string PlaceOf(const std::string& path) const {
    for (const auto& [seen, mark] : marks_) {
      if (seen == path) return absl::StrCat(file_, ":", mark.line + 1, ":", mark.column + 1);
    }
    return file_;
  }

 private:
  absl::Status Error(const YAML::Node& node, const std::string& path, const std::string& message) const {
    const YAML::Mark mark = node.Mark();
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", mark.line + 1, ":", mark.column + 1, ": ", path,
                                                   path.empty() ? "" : ": ", message));
  }

  absl::Status ExpectScalar(const YAML::Node& root, const std::string& name, const std::string& value) const {
    const YAML::Node node = root[name];
    if (!node) {
      return absl::InvalidArgumentError(absl::StrCat(file_, ": ", name, ": missing; write '", name, ": ", value, "'"));
    }
    if (!node.IsScalar() || node.Scalar() != value) {
      return Error(node, name, absl::StrCat("expected '", value, "'", node.IsScalar() ? ", found '" : "",
                                            node.IsScalar() ? node.Scalar() + "'" : ""));
    }
    return absl::OkStatus();
  }

  absl::Status ReadMap(const YAML::Node& map, const std::string& section) {
    const std::vector<std::string> known = KnownNames(section);
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) return Error(entry.first, section, "field names must be plain words");
      const std::string name = entry.first.Scalar();
      const std::string path = section.empty() ? name : absl::StrCat(section, ".", name);
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return Error(entry.first, path, "unknown field" + DidYouMean(name, known));
      }
      if (std::find(seen_.begin(), seen_.end(), path) != seen_.end()) {
        return Error(entry.first, path, "given twice; keep one");
      }
      seen_.push_back(path);
      marks_.emplace_back(path, entry.second.Mark());
      if (path == "apiVersion" || path == "kind") continue;
      LYNX_RETURN_IF_ERROR(ReadEntry(entry.second, path));
    }
    return absl::OkStatus();
  }

  absl::Status ReadEntry(const YAML::Node& node, const std::string& path) {
    if (const Field* field = FindField(path)) {
      if (!node.IsScalar()) return Error(node, path, absl::StrCat("expected one value (", field->meaning, ")"));
      const absl::Status read = field->read(node.Scalar(), spec_);
      return read.ok() ? read : Error(node, path, std::string(read.message()));
    }
    // A section. `parallel: auto` stands for all of its fields at auto.
    if (path == "parallel" && node.IsScalar() && node.Scalar() == "auto") return absl::OkStatus();
    if (!node.IsMap()) return Error(node, path, absl::StrCat("expected fields: ", absl::StrJoin(KnownNames(path), ", ")));
    return ReadMap(node, path);
  }

  std::string file_;
  JobSpec spec_;
  std::vector<std::string> seen_;
  std::vector<std::pair<std::string, YAML::Mark>> marks_;
};

absl::Status ApplyOverride(const std::string& text, JobSpec& spec) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return absl::InvalidArgumentError(absl::StrCat("--set ", text, ": expected FIELD=VALUE"));
  const std::string path = text.substr(0, equals);
  const Field* field = FindField(path);
  if (field == nullptr) {
    std::vector<std::string> known;
    for (const Field& f : Fields()) known.push_back(f.path);
    return absl::InvalidArgumentError(absl::StrCat("--set ", text, ": unknown field", DidYouMean(path, known)));
  }
  return Annotate(field->read(text.substr(equals + 1), spec), absl::StrCat("--set ", text));
}

void ResolvePath(std::string& path, const std::string& folder) {
  if (!path.empty() && path[0] != '/') path = (std::filesystem::path(folder) / path).lexically_normal().string();
}

}  // namespace

absl::StatusOr<JobSpec> ParseJobFile(const std::string& text, const std::string& file, const std::string& folder,
                                     const std::vector<std::string>& overrides) {
  Reader reader(file);
  JobSpec spec;
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty() || documents[0].IsNull()) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": the file is empty; see 'lynxctl defaults'"));
    }
    if (documents.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": holds ", documents.size(), " documents; give one job a file"));
    }
    LYNX_ASSIGN_OR_RETURN(spec, reader.Read(documents[0]));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":", error.mark.line + 1, ":", error.mark.column + 1,
                                                   ": not valid YAML: ", error.msg));
  }
  for (const std::string& override_text : overrides) LYNX_RETURN_IF_ERROR(ApplyOverride(override_text, spec));
  ResolvePath(spec.data.path, folder);
  ResolvePath(spec.checkpoint.directory, folder);
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
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read job file '", path, "': no such file, or not readable"));
  std::stringstream text;
  text << in.rdbuf();
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return ParseJobFile(text.str(), path, absolute.parent_path().string(), overrides);
}

std::string JobFileText(const JobSpec& spec) {
  std::string out = "apiVersion: lynx/v1\nkind: TrainingJob\n";
  std::vector<std::string> open;  // the section that the last line stood in
  for (const Field& field : Fields()) {
    const std::string value = field.write(spec);
    if (value.empty()) continue;
    std::vector<std::string> parts = absl::StrSplit(field.path, '.');
    const std::string name = parts.back();
    parts.pop_back();
    for (size_t depth = 0; depth < parts.size(); ++depth) {
      if (depth < open.size() && open[depth] == parts[depth]) continue;
      open.resize(depth);
      absl::StrAppend(&out, std::string(2 * depth, ' '), parts[depth], ":\n");
      open.push_back(parts[depth]);
    }
    open.resize(parts.size());
    absl::StrAppend(&out, std::string(2 * parts.size(), ' '), name, ": ", value, "\n");
  }
  return out;
}

absl::StatusOr<Bytes> ParseByteSize(const std::string& text) {
  const size_t unit_at = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, unit_at);
  const std::string unit = unit_at == std::string::npos ? "" : text.substr(unit_at);
  static const std::vector<std::pair<std::string, double>> kUnits = {
      {"", 1},         {"B", 1},          {"KiB", 1024},      {"MiB", 1048576.0}, {"GiB", 1073741824.0},
      {"TiB", 1099511627776.0}, {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},        {"TB", 1e12}};
  double value;
  for (const auto& [name, factor] : kUnits) {
    if (name != unit) continue;
    if (number.empty() || !absl::SimpleAtod(number, &value) || !(value * factor < 9e18)) break;
    return Bytes(static_cast<int64_t>(std::llround(value * factor)));
  }
  return Expected("a size such as 512KiB, 24MiB, 1.5GiB or 100MB", text);
}

std::string ByteSizeText(Bytes bytes) {
  static const std::pair<const char*, Bytes> kUnits[] = {{"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}};
  for (const auto& [name, unit] : kUnits) {
    if (bytes.value != 0 && bytes.value % unit.value == 0) return absl::StrCat(bytes.value / unit.value, name);
  }
  return absl::StrCat(bytes.value);
}

std::string JobFileReference() {
  std::string out = "| field | default | meaning |\n| --- | --- | --- |\n";
  const JobSpec defaults;
  for (const Field& field : Fields()) {
    const std::string value = field.write(defaults);
    absl::StrAppend(&out, "| `", field.path, "` | ", field.required ? "required" : value.empty() ? "" : "`" + value + "`",
                    " | ", field.meaning, " |\n");
  }
  return out;
}

}  // namespace lynx
