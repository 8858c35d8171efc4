// The answer to "choices": what the page offers, and the state to begin with. See answers.h.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/spec/cluster_file.h"
#include "cli/spec/job_fields.h"
#include "cli/spec/job_file.h"
#include "cli/spec/preset_list.h"
#include "common/status.h"
#include "common/version.h"
#include "studio/answers.h"

namespace lynx {
namespace {

using Json = nlohmann::json;

// The first view shows recomputation that is hidden in windows, and is planned in a moment: the micro-batch is fixed, so that
// the search is short.
constexpr char kFirstModel[] = "llama-65b", kFirstMachine[] = "a100-80gb-nvlink";
constexpr const char* kFirstValues[][2] = {{"train.globalBatch", "64"}, {"train.microBatch", "2"}};
constexpr char kSmallModel[] = "llama-7b";  // the model to begin with on a machine about which nothing is known here
constexpr const char* kScalarNames[] = {"text", "integer", "real", "boolean", "integers"};  // the index is the ScalarKind

absl::StatusOr<Json> MachinesJson(const std::vector<StudioMachine>& machines) {
  Json list = Json::array();
  for (const StudioMachine& machine : machines) {
    LYNX_ASSIGN_OR_RETURN(const cli::ClusterFile file, cli::ParseClusterFile(machine.text, machine.name));
    const NodeGroup& group = file.cluster.groups.front();
    list.push_back({{"name", machine.name},
                    {"title", machine.title},
                    {"device", group.profile.device_kind},
                    {"nodes", file.cluster.nodes()},
                    {"groups", file.cluster.groups.size()},
                    {"devicesPerNode", group.devices_per_node},
                    {"memoryBytes", group.memory_per_device.value},
                    {"betweenNodesBytesPerSecond", group.profile.inter_node.bytes_per_second},
                    {"text", machine.text}});
  }
  return list;
}

Json PoliciesJson() {
  Json list = Json::array();
  for (const char* name : kEnumNames<RecomputeMode>) list.push_back(name);
  return list;
}

Json FieldsJson() {
  Json list = Json::array();
  const JobSpec defaults;
  for (const cli::JobField& field : cli::JobFields()) {
    const bool in_model = field.path == cli::kModelPreset || field.path == cli::kModelConfig;
    if (field.meaning.empty() || in_model) continue;
    list.push_back({{"path", field.path},
                    {"meaning", field.meaning},
                    {"kind", kScalarNames[static_cast<size_t>(field.scalar)]},
                    {"words", field.words},
                    {"default", field.write ? field.write(defaults) : ""}});
  }
  return list;
}

// The value at a path such as "train.steps"; nullptr if it is not in the file.
const cli::YamlValue* FindPath(const cli::YamlValue& root, absl::string_view path) {
  const cli::YamlValue* value = &root;
  while (value != nullptr && !path.empty()) {
    const size_t dot = path.find('.');
    value = value->Find(std::string(path.substr(0, dot)));
    path = dot == absl::string_view::npos ? "" : path.substr(dot + 1);
  }
  return value;
}

absl::Status ReadModelOfJob(const cli::YamlValue& root, const std::string& folder, StudioState& state) {
  state.preset.clear();
  if (const cli::YamlValue* preset = FindPath(root, cli::kModelPreset)) state.preset = preset->scalar;
  const cli::YamlValue* config = FindPath(root, cli::kModelConfig);
  if (config == nullptr) return absl::OkStatus();
  const std::filesystem::path path = std::filesystem::path(folder) / config->scalar;
  LYNX_ASSIGN_OR_RETURN(state.config, cli::ReadTextFile(path.string()));
  state.config_name = path.filename().string();
  return absl::OkStatus();
}

// The job file as a state. Its values stay as they are written.
absl::Status ReadJobIntoState(const Json& job, StudioState& state) {
  const std::string text = job.at("text"), name = job.at("name"), folder = job.at("folder");
  LYNX_RETURN_IF_ERROR(cli::ParseJobFile(text, name, folder).status());
  LYNX_ASSIGN_OR_RETURN(const cli::YamlValue root, cli::ParseYaml(text, name));
  LYNX_RETURN_IF_ERROR(Annotate(ReadModelOfJob(root, folder, state), name));
  for (const cli::JobField& field : cli::JobFields()) {
    const bool in_model = field.path == cli::kModelPreset || field.path == cli::kModelConfig;
    const cli::YamlValue* value = FindPath(root, field.path);
    if (value == nullptr || in_model || field.meaning.empty() || value->IsMap()) continue;
    const std::string items = absl::StrJoin(
        value->items, " ", [](std::string* out, const cli::YamlValue& item) { absl::StrAppend(out, item.scalar); });
    state.job.emplace_back(field.path, value->IsList() ? items : value->scalar);
  }
  return absl::OkStatus();
}

absl::Status ReadClusterIntoState(const Json& cluster, const std::vector<StudioMachine>& machines, StudioState& state) {
  const std::string text = cluster.at("text"), name = cluster.at("name");
  LYNX_RETURN_IF_ERROR(cli::ParseClusterFile(text, name).status());
  const auto known = std::find_if(machines.begin(), machines.end(), [&](const StudioMachine& m) { return m.text == text; });
  state.machine_name = known == machines.end() ? "" : known->name;
  if (known == machines.end()) state.machine_text = text;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> ChoicesJson(const Json& question, const std::vector<StudioMachine>& machines) {
  // A machine that the question brings, such as a server's cluster, is the one to begin with.
  const bool brings = question.contains("machines") && !question["machines"].empty();
  StudioState state{.machine_name = brings ? machines.front().name : kFirstMachine};
  if (question.contains("job")) {
    LYNX_RETURN_IF_ERROR(ReadJobIntoState(question["job"], state));
  } else if (brings || question.contains("cluster")) {
    state.preset = kSmallModel;
  } else {
    state.preset = kFirstModel;
    for (const auto& [path, value] : kFirstValues) state.job.emplace_back(path, value);
  }
  if (question.contains("cluster")) LYNX_RETURN_IF_ERROR(ReadClusterIntoState(question["cluster"], machines, state));
  LYNX_ASSIGN_OR_RETURN(Json machine_list, MachinesJson(machines));
  return Json{{"version", kVersion},
              {"models", cli::PresetsJson()},
              {"machines", std::move(machine_list)},
              {"policies", PoliciesJson()},
              {"fields", FieldsJson()},
              {"formats", {"job", "megatron", "deepspeed", "torchtitan"}},
              {"state", StateJson(Normalized(state, machines))}};
}

}  // namespace lynx
