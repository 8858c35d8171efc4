#include "cli/spec/preset_list.h"

#include <nlohmann/json.hpp>

#include "planner/problem/flops.h"
#include "planner/problem/layer_graph.h"
#include "planner/problem/model_presets.h"

namespace lynx::cli {

nlohmann::ordered_json PresetsJson() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ModelPreset& preset : ModelPresets()) {
    const ModelSpec& m = preset.model;
    list.push_back({{"name", preset.name},
                    {"family", EnumName(m.family)},
                    {"parameters", ModelParameters(m)},
                    {"activeParameters", ActiveParameters(m)},
                    {"layers", m.layers},
                    {"hidden", m.hidden},
                    {"heads", m.heads},
                    {"kvHeads", m.key_heads()},
                    {"ffn", m.ffn},
                    {"experts", m.moe.experts},
                    {"topK", m.moe.top_k},
                    {"expertFfn", m.moe.any() ? m.expert_ffn() : 0},
                    {"seq", m.seq},
                    {"vocab", m.vocab},
                    {"source", preset.source}});
  }
  return list;
}

}  // namespace lynx::cli
