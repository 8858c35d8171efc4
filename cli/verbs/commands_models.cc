#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/spec/preset_list.h"
#include "cli/verbs/commands.h"
#include "planner/problem/flops.h"
#include "planner/problem/layer_graph.h"
#include "planner/problem/model_families.h"
#include "planner/problem/model_presets.h"

namespace lynx::cli {
namespace {

Listing PresetListing() {
  Listing listing;
  for (const auto& [title, csv] :
       {std::pair("NAME", "name"), std::pair("PARAMETERS", "parameters"), std::pair("ACTIVE", "active_parameters"),
        std::pair("LAYERS", "layers"), std::pair("HIDDEN", "hidden"), std::pair("HEADS", "heads"), std::pair("KV", "kv_heads"),
        std::pair("FFN", "ffn"), std::pair("EXPERTS", "experts"), std::pair("TOP_K", "top_k"), std::pair("SEQ", "seq"),
        std::pair("VOCAB", "vocab"), std::pair("FROM", "source")}) {
    listing.columns.push_back({title, csv});
  }
  for (const ModelPreset& preset : ModelPresets()) {
    const ModelSpec& m = preset.model;
    listing.names.push_back(preset.name);
    listing.rows.push_back({preset.name, absl::StrCat(ModelParameters(m)), absl::StrCat(ActiveParameters(m)),
                            absl::StrCat(m.layers), absl::StrCat(m.hidden), absl::StrCat(m.heads), absl::StrCat(m.key_heads()),
                            absl::StrCat(m.expert_ffn()), absl::StrCat(m.moe.experts), absl::StrCat(m.moe.top_k),
                            absl::StrCat(m.seq), absl::StrCat(m.vocab), preset.source});
  }
  return listing;
}

std::vector<std::string> LackingOf(const FamilyTraits& family) {
  std::vector<std::string> names;
  for (const PlanOnlyFeature feature : FeaturesOf(family.plan_only)) names.push_back(EnumName(feature));
  return names;
}

std::string FamilyJson() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FamilyTraits& family : ModelFamilies()) {
    const bool weights = family.weights != WeightNames::kNone;
    list.push_back({{"modelType", family.model_type},
                    {"models", family.models},
                    {"layersOf", EnumName(family.base)},
                    {"planned", true},
                    {"trained", family.trained()},
                    {"imported", weights},
                    {"exported", weights},
                    {"lacking", LackingOf(family)}});
  }
  return list.dump(2) + "\n";
}

Listing FamilyListing() {
  Listing listing;
  listing.columns = {{"MODEL_TYPE", "model_type"},   {"MODELS", "models"},     {"PLANNED", "planned"},
                     {"TRAINED", "trained"},         {"IMPORTED", "imported"}, {"EXPORTED", "exported"},
                     {"THE ENGINE LACKS", "lacking"}};
  for (const FamilyTraits& family : ModelFamilies()) {
    const std::string trained = family.trained() ? "yes" : "no";
    const std::string weights = family.weights == WeightNames::kNone ? "no" : "yes";
    listing.names.push_back(family.model_type);
    listing.rows.push_back(
        {family.model_type, family.models, "yes", trained, weights, weights, absl::StrJoin(LackingOf(family), " ")});
  }
  return listing;
}

}  // namespace

int Models(const GlobalOptions& global, bool families) {
  return families ? ShowListing(global.output, FamilyJson(), FamilyListing())
                  : ShowListing(global.output, PresetsJson().dump(2) + "\n", PresetListing());
}

}  // namespace lynx::cli
