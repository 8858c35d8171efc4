#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
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

Listing PresetListing() {
  Listing listing;
  for (const auto& [title, csv] : {std::pair("NAME", "name"), std::pair("PARAMETERS", "parameters"), std::pair("LAYERS", "layers"),
                                   std::pair("HIDDEN", "hidden"), std::pair("HEADS", "heads"), std::pair("KV", "kv_heads"), std::pair("FFN", "ffn"),
                                   std::pair("SEQ", "seq"), std::pair("VOCAB", "vocab"), std::pair("FROM", "source")}) {
    listing.columns.push_back({title, csv});
  }
  for (const ModelPreset& preset : ModelPresets()) {
    const ModelSpec& m = preset.model;
    listing.names.push_back(preset.name);
    listing.rows.push_back({preset.name, absl::StrCat(ModelParameters(m)), absl::StrCat(m.layers), absl::StrCat(m.hidden),
                    absl::StrCat(m.heads), absl::StrCat(m.key_heads()), absl::StrCat(m.ffn), absl::StrCat(m.seq),
                    absl::StrCat(m.vocab), preset.source});
  }
  return listing;
}

}  // namespace

int Models(const GlobalOptions& global) {
  return ShowListing(global.output, PresetJson(), PresetListing());
}

}  // namespace lynx
