#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/render.h"
#include "planner/layer_graph.h"
#include "planner/model_presets.h"

namespace lynx {
namespace {

std::string PresetJson() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ModelPreset& preset : ModelPresets()) {
    const ModelSpec& m = preset.model;
    list.push_back({{"name", preset.name},
                    {"family", ModelFamilyName(m.family)},
                    {"parameters", ModelParameters(m)},
                    {"layers", m.layers},
                    {"hidden", m.hidden},
                    {"heads", m.heads},
                    {"kvHeads", m.key_heads()},
                    {"ffn", m.ffn},
                    {"seq", m.seq},
                    {"vocab", m.vocab},
                    {"source", preset.source}});
  }
  return list.dump(2) + "\n";
}

std::string PresetTable() {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "PARAMETERS", "LAYERS", "HIDDEN", "HEADS", "KV", "FFN", "SEQ", "VOCAB", "FROM"}};
  for (const ModelPreset& preset : ModelPresets()) {
    const ModelSpec& m = preset.model;
    rows.push_back({preset.name, absl::StrCat(ModelParameters(m)), absl::StrCat(m.layers), absl::StrCat(m.hidden),
                    absl::StrCat(m.heads), absl::StrCat(m.key_heads()), absl::StrCat(m.ffn), absl::StrCat(m.seq),
                    absl::StrCat(m.vocab), preset.source});
  }
  return TableText(rows);
}

}  // namespace

int Models(const GlobalOptions& global) {
  return ShowJson(global.output, PresetJson(), PresetTable());
}

}  // namespace lynx
