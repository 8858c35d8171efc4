// The ready-made models as JSON: what `lynxctl models -o json` prints, and what the studio offers. Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_PRESET_LIST_H_
#define LYNX_CLI_SPEC_PRESET_LIST_H_

#include <nlohmann/json_fwd.hpp>

namespace lynx::cli {

// A list with an object for each preset, in the order of ModelPresets(): "name", "family", "parameters", "activeParameters",
// "layers", "hidden", "heads", "kvHeads", "ffn", "experts", "topK", "expertFfn", "seq", "vocab" and "source". The keys of
// experts are 0 for models without experts.
nlohmann::ordered_json PresetsJson();

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_PRESET_LIST_H_
