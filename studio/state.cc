#include "studio/state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/spec/cluster_file.h"
#include "cli/spec/job_fields.h"
#include "cli/spec/job_file.h"
#include "cli/spec/scalar_text.h"
#include "cli/spec/yaml_record.h"
#include "common/real_text.h"
#include "common/status.h"
#include "planner/problem/layout.h"
#include "studio/files.h"

namespace lynx {
namespace {

using Json = nlohmann::json;

constexpr char kConfigName[] = "config.json";
constexpr size_t kMaxFileName = 255;
constexpr int64_t kExactReal = int64_t{1} << 53;  // below it, every whole number is a double, as all numbers of a browser are

absl::Status Wrong(const std::string& field, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

const cli::JobField* FindField(const std::string& path) {
  const std::vector<cli::JobField>& fields = cli::JobFields();
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const cli::JobField& f) { return f.path == path; });
  // A field without a meaning stands for its section.
  return found == fields.end() || found->meaning.empty() ? nullptr : &*found;
}

bool IsModelBase(const std::string& path) { return path == cli::kModelPreset || path == cli::kModelConfig; }

// Checks that `json` is an object, and that `known` contains each of its keys.
absl::Status CheckKeys(const Json& json, const std::string& where, const std::vector<std::string>& known) {
  if (!json.is_object()) {
    return Wrong(where, absl::StrCat("expected an object with the keys ", absl::StrJoin(known, ", ")));
  }
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return Wrong(where, absl::StrCat("unknown key '", key, "'", cli::DidYouMean(key, known)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextOf(const Json& json, const std::string& where, const char* key) {
  if (!json.contains(key)) return std::string();
  if (!json[key].is_string()) return Wrong(where, absl::StrCat("expected a text for '", key, "'"));
  return json[key].get<std::string>();
}

absl::StatusOr<int64_t> WholeNumberOf(const Json& json, const char* key, int64_t most) {
  if (!json.contains(key)) return int64_t{0};
  const Json& value = json[key];
  const std::string expected = absl::StrCat("expected a whole number from 0 to ", most, ", found ", value.dump());
  const bool whole = value.is_number_integer() && (value.is_number_unsigned() || value.get<int64_t>() >= 0);
  if (whole && value.get<uint64_t>() <= static_cast<uint64_t>(most)) return value.get<int64_t>();
  return Wrong(key, expected);
}

absl::Status ReadModel(const Json& json, StudioState& state) {
  LYNX_RETURN_IF_ERROR(CheckKeys(json, "model", {"preset", "config", "name"}));
  LYNX_ASSIGN_OR_RETURN(state.preset, TextOf(json, "model", "preset"));
  LYNX_ASSIGN_OR_RETURN(state.config, TextOf(json, "model", "config"));
  LYNX_ASSIGN_OR_RETURN(state.config_name, TextOf(json, "model", "name"));
  if (json.contains("preset") && json.contains("config")) return Wrong("model", "has a preset and a config; keep one of them");
  if (json.contains("preset") && state.preset.empty()) return Wrong("model", "the preset has no name");
  if (!json.contains("config")) {
    return state.config_name.empty() ? absl::OkStatus()
                                     : Wrong("model", "'name' is the name of a config's file, but there is no config");
  }
  if (absl::StripAsciiWhitespace(state.config).empty()) return Wrong("model.config", "the file is empty");
  if (state.config_name.empty()) state.config_name = kConfigName;
  const bool good = state.config_name.size() <= kMaxFileName && state.config_name[0] != '.' &&
                    std::none_of(state.config_name.begin(), state.config_name.end(),
                                 [](unsigned char c) { return c < ' ' || c == '/' || c == ':' || c == 0x7f; });
  return good ? absl::OkStatus() : Wrong("model", "'name' must be the name of a file, without folders and colons");
}

absl::Status ReadMachine(const Json& json, StudioState& state) {
  LYNX_RETURN_IF_ERROR(CheckKeys(json, "machine", {"name", "text"}));
  LYNX_ASSIGN_OR_RETURN(state.machine_name, TextOf(json, "machine", "name"));
  LYNX_ASSIGN_OR_RETURN(state.machine_text, TextOf(json, "machine", "text"));
  if (state.machine_name.empty() == state.machine_text.empty()) {
    return Wrong("machine", "expected either the 'name' of a machine or the 'text' of a cluster file");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ValueText(const Json& value, const cli::JobField& field) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return std::string(value.get<bool>() ? "true" : "false");
  if (value.is_number_integer()) return value.dump();
  if (value.is_number_float()) {
    const double real = value.get<double>();
    const bool whole = std::floor(real) == real && std::abs(real) < static_cast<double>(kExactReal);
    return whole ? absl::StrCat(static_cast<int64_t>(real)) : RealText(real);
  }
  const bool whole_numbers = value.is_array() && field.scalar == cli::ScalarKind::kIntegers &&
                             std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_number_integer(); });
  if (!whole_numbers) return Wrong(field.path, "expected a text or a number");
  return absl::StrJoin(value, " ", [](std::string* out, const Json& item) { absl::StrAppend(out, item.dump()); });
}

absl::Status ReadJob(const Json& json, StudioState& state) {
  if (!json.is_object()) return Wrong("job", "expected an object with fields of the job file, such as \"model.seq\": 4096");
  for (const auto& [path, value] : json.items()) {
    if (IsModelBase(path)) return Wrong(path, "belongs in 'model' of the state, not in 'job'");
    if (FindField(path) != nullptr) continue;
    std::vector<std::string> known;
    for (const cli::JobField& field : cli::JobFields()) known.push_back(field.path);
    return Wrong("job", absl::StrCat("unknown field '", path, "'", cli::DidYouMean(path, known)));
  }
  for (const cli::JobField& field : cli::JobFields()) {
    if (!json.contains(field.path)) continue;
    LYNX_ASSIGN_OR_RETURN(std::string text, ValueText(json[field.path], field));
    state.job.emplace_back(field.path, std::move(text));
  }
  return absl::OkStatus();
}

const std::string* FindValue(const std::vector<JobValue>& values, const std::string& path) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const JobValue& value) { return value.first == path; });
  return found == values.end() ? nullptr : &found->second;
}

// The scalar as people write it, in quotes only where YAML needs them.
std::string YamlText(const std::string& text) {
  const bool plain = !text.empty() && text != "null" && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '.';
  });
  const bool dashed = !text.empty() && absl::ascii_isalnum(static_cast<unsigned char>(text[0])) && text != "null" &&
                      std::all_of(text.begin(), text.end(),
                                  [](unsigned char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; });
  return plain || dashed ? text : cli::QuotedText(text);
}

std::string JobTextOf(const StudioState& state, const std::vector<JobValue>& kept, int32_t devices) {
  const std::vector<JobValue> defaults = {{"name", kStudioJobName},
                                          {"data.path", kStudioData},
                                          {"train.steps", kStudioSteps},
                                          {"train.globalBatch", kStudioBatch},
                                          {"resources.ranks", absl::StrCat(devices)},
                                          {cli::kModelPreset, state.preset},
                                          {cli::kModelConfig, state.config_name}};
  std::vector<std::pair<std::string, std::string>> lines;
  for (const cli::JobField& field : cli::JobFields()) {
    for (const std::vector<JobValue>* values : {&state.job, &kept, &defaults}) {
      const std::string* value = FindValue(*values, field.path);
      if (value == nullptr || (value->empty() && IsModelBase(field.path))) continue;
      lines.emplace_back(field.path, YamlText(*value));
      break;
    }
  }
  return absl::StrCat("apiVersion: lynx/v1\nkind: TrainingJob\n", cli::NestedText(lines, 0));
}

absl::StatusOr<std::string> MachineText(const StudioState& state, const std::vector<StudioMachine>& machines) {
  if (state.machine_name.empty()) return state.machine_text;
  const auto found =
      std::find_if(machines.begin(), machines.end(), [&](const StudioMachine& m) { return m.name == state.machine_name; });
  if (found != machines.end()) return found->text;
  std::vector<std::string> names;
  for (const StudioMachine& machine : machines) names.push_back(machine.name);
  return Wrong("machine",
               absl::StrCat("unknown machine '", state.machine_name, "'", cli::DidYouMean(state.machine_name, names)));
}

absl::Status ChangeCluster(const StudioState& state, ClusterTopology& cluster) {
  if (state.nodes > 0) {
    LYNX_RETURN_IF_ERROR(Annotate(cli::SetNodes(state.nodes, "this machine", cluster), "nodes"));
  }
  for (NodeGroup& group : cluster.groups) {
    if (state.memory.value > 0) group.memory_per_device = state.memory;
    int64_t& rate = group.profile.inter_node.bytes_per_second;
    const double scaled = static_cast<double>(rate) * state.link_scale;
    if (state.link_scale != 1) rate = static_cast<int64_t>(std::clamp(scaled, 1.0, 9e18));
  }
  return Annotate(CheckCluster(cluster), "machine");
}

absl::StatusOr<JobSpec> SpecOfText(const StudioState& state, const std::string& text) {
  return cli::ParseJobFile(text, kJobInErrors, "/", {}, [&](const std::string&) { return state.config; });
}

// If `text` begins with "NAME:" and a blank, or "NAME:LINE:COLUMN: ", takes that off and sets line and column.
bool TakePlace(const std::string& name, absl::string_view& text, StudioError& error) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, name + ":")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, absl::MaxSplits(':', 2));
  int32_t line = 0, column = 0;
  if (parts.size() == 3 && absl::SimpleAtoi(parts[0], &line) && absl::SimpleAtoi(parts[1], &column)) {
    error.line = line;
    error.column = column;
    rest = parts[2];
  }
  absl::ConsumePrefix(&rest, " ");
  text = rest;
  return true;
}

}  // namespace

std::vector<StudioMachine> ReadyMachines() {
  std::vector<StudioMachine> machines;
  for (const EmbeddedFile& file : StudioMachineFiles()) {
    const std::string text(file.text);
    std::string title = text.substr(0, text.find('\n'));
    title = absl::StartsWith(title, "# ") ? title.substr(2) : "";
    machines.push_back({std::string(absl::StripSuffix(std::string(file.name), ".yaml")), std::move(title), text});
  }
  return machines;
}

absl::StatusOr<StudioState> ParseState(const Json& json) {
  StudioState state;
  LYNX_RETURN_IF_ERROR(CheckKeys(json, "state", {"model", "machine", "job", "nodes", "memoryBytes", "linkScale"}));
  if (json.contains("model")) LYNX_RETURN_IF_ERROR(ReadModel(json["model"], state));
  if (!json.contains("machine")) return Wrong("machine", "say which: {\"name\": NAME} or {\"text\": CLUSTER FILE}");
  LYNX_RETURN_IF_ERROR(ReadMachine(json["machine"], state));
  if (json.contains("job")) LYNX_RETURN_IF_ERROR(ReadJob(json["job"], state));
  LYNX_ASSIGN_OR_RETURN(const int64_t nodes, WholeNumberOf(json, "nodes", kMaxStudioNodes));
  state.nodes = static_cast<int32_t>(nodes);
  LYNX_ASSIGN_OR_RETURN(const int64_t memory, WholeNumberOf(json, "memoryBytes", kMaxDeviceMemory.value));
  state.memory = Bytes(memory);
  if (json.contains("linkScale")) {
    const Json& scale = json["linkScale"];
    if (scale.is_number()) state.link_scale = scale.get<double>();
    if (!scale.is_number() || !(state.link_scale >= kMinLinkScale && state.link_scale <= kMaxLinkScale)) {
      return Wrong("linkScale",
                   absl::StrCat("expected a number from ", kMinLinkScale, " to ", kMaxLinkScale, ", found ", scale.dump()));
    }
  }
  return state;
}

Json ValueJson(const JobValue& value) {
  const auto& [path, text] = value;
  const cli::JobField* field = FindField(path);
  const cli::ScalarKind kind = field == nullptr ? cli::ScalarKind::kText : field->scalar;
  int64_t whole = 0;
  double real = 0;
  if (absl::SimpleAtoi(text, &whole) && absl::StrCat(whole) == text && std::abs(whole) < kExactReal) return whole;
  if (kind == cli::ScalarKind::kReal && absl::SimpleAtod(text, &real) && std::isfinite(real)) return real;
  if (kind == cli::ScalarKind::kBoolean && (text == "true" || text == "false")) return text == "true";
  return text;
}

Json StateJson(const StudioState& state) {
  Json json;
  json["model"] = Json::object();
  if (!state.preset.empty()) json["model"]["preset"] = state.preset;
  if (!state.config.empty()) json["model"] = {{"config", state.config}, {"name", state.config_name}};
  json["machine"] = state.machine_name.empty() ? Json{{"text", state.machine_text}} : Json{{"name", state.machine_name}};
  json["job"] = Json::object();
  for (const JobValue& value : state.job) json["job"][value.first] = ValueJson(value);
  json["nodes"] = state.nodes;
  json["memoryBytes"] = state.memory.value;
  json["linkScale"] = state.link_scale;
  return json;
}

absl::StatusOr<StudioRequest> RequestOf(const StudioState& state, const std::vector<StudioMachine>& machines,
                                        const std::vector<JobValue>& kept) {
  StudioRequest made;
  LYNX_ASSIGN_OR_RETURN(made.cluster_text, MachineText(state, machines));
  LYNX_ASSIGN_OR_RETURN(cli::ClusterFile file, cli::ParseClusterFile(made.cluster_text, kMachineInErrors));
  made.request.cluster = std::move(file.cluster);
  LYNX_RETURN_IF_ERROR(ChangeCluster(state, made.request.cluster));
  made.job_text = JobTextOf(state, kept, made.request.cluster.devices());
  LYNX_ASSIGN_OR_RETURN(made.request.spec, SpecOfText(state, made.job_text));
  return made;
}

StudioState Normalized(const StudioState& state, const std::vector<StudioMachine>& machines) {
  StudioState plain = state;
  const bool own_model = state.preset.empty() && state.config.empty();
  std::erase_if(plain.job, [&](const JobValue& value) { return !own_model || !absl::StartsWith(value.first, "model."); });
  const absl::StatusOr<StudioRequest> now = RequestOf(state, machines), defaults = RequestOf(plain, machines);
  if (!now.ok() || !defaults.ok()) return state;
  StudioState normal = state;
  std::erase_if(normal.job, [&](const JobValue& value) {
    if (FindValue(plain.job, value.first) != nullptr) return false;  // one of the fields that describe the model
    const cli::JobField* field = FindField(value.first);
    return field->write && field->write(now->request.spec) == field->write(defaults->request.spec);
  });
  return normal;
}

std::vector<JobValue> LayoutValues(const Plan& plan, const JobSpec& spec) {
  if (plan.layout.schedule == ScheduleKind::kCustom) return {};
  JobSpec pinned = spec;
  pinned.parallel = SpecOf(plan.layout, spec.parallel);
  pinned.train.micro_batch = plan.micro_batch;
  std::vector<JobValue> values;
  for (const char* path :
       {"train.microBatch", "parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep", "parallel.virtualStages",
        "parallel.sequenceParallel", "parallel.schedule", "parallel.zero", "parallel.weave", "parallel.rankOrder"}) {
    values.emplace_back(path, FindField(path)->write(pinned));
  }
  return values;
}

StudioError ErrorOf(const absl::Status& status, const StudioState& state) {
  StudioError error;
  const std::string message(status.message());
  absl::string_view text = message;
  StudioError unseen;  // the place in the job's text, which people do not see
  TakePlace(kJobInErrors, text, unseen);
  if (TakePlace(kMachineInErrors, text, error)) {
    error.field = "machine";
    error.file = state.machine_name.empty() ? "" : state.machine_name;
  } else {
    const size_t end = text.find_first_of(": ");
    const std::string head(text.substr(0, end));
    static constexpr std::array kKeys = {"state", "model", "machine", "job", "nodes", "memoryBytes", "linkScale"};
    const bool key =
        end != absl::string_view::npos && text[end] == ':' && std::find(kKeys.begin(), kKeys.end(), head) != kKeys.end();
    if (key || FindField(head) != nullptr) error.field = head;
    absl::string_view rest = text;
    absl::ConsumePrefix(&rest, absl::StrCat(cli::kModelConfig, ": "));
    if (!state.config_name.empty() && TakePlace(state.config_name, rest, error)) {
      error.field = cli::kModelConfig;
      error.file = state.config_name;
      text = rest;
    }
  }
  error.text = std::string(text);
  return error;
}

}  // namespace lynx
