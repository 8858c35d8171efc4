#include "cli/frameworks/megatron_modules.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lynx::cli {
namespace {

// Megatron Core has these for layers that no planned model has.
constexpr const char* kOfOtherLayers[] = {"gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc"};

// Says why this module recomputes nothing in the run. "": it recomputes something.
std::string WithoutEffect(RecomputeModule module, const ImportedRun& run) {
  const MoeSpec& moe = run.job.model.moe;
  const bool latent = run.job.model.latent.any();
  switch (module) {
    case RecomputeModule::kCoreAttn: return "";
    case RecomputeModule::kLayernorm:
      if (!run.traits.fuses_norms || moe.any() || latent) return "";
      return "with --transformer-impl transformer_engine the norms are part of the linears after them";
    case RecomputeModule::kMlaUpProj: return latent ? "" : "the model has no latent attention";
    case RecomputeModule::kMlp: return moe.any() && moe.dense_layers == 0 ? "every layer has experts" : "";
    case RecomputeModule::kMoeAct:
    case RecomputeModule::kMoe: return moe.any() ? "" : "the model has no experts";
    case RecomputeModule::kSharedExperts: return moe.shared_ffn > 0 ? "" : "the model has no shared experts";
  }
  return "";
}

}  // namespace

absl::Status ReadMegatronModules(const MegatronArguments& values, const std::string& place, ImportedRun& run) {
  std::vector<std::string> names = values.recompute_modules;
  if (names.empty()) names.push_back("core_attn");
  if (values.moe_recompute) names.push_back("moe");
  std::vector<RecomputeModule>& modules = run.job.recompute_options.modules;
  for (const std::string& name : names) {
    RecomputeModule module;
    std::string without = "planned models have no such layers";
    if (std::find(std::begin(kOfOtherLayers), std::end(kOfOtherLayers), name) == std::end(kOfOtherLayers)) {
      if (!ParseEnum(name, module)) {
        return absl::InvalidArgumentError(absl::StrCat(place, ": --recompute-modules has '", name, "': expected ",
                                                       absl::StrJoin(kEnumNames<RecomputeModule>, ", ")));
      }
      without = WithoutEffect(module, run);
    }
    if (without.empty()) {
      modules.push_back(module);
    } else {
      run.not_taken.push_back(absl::StrCat("--recompute-modules ", name, ": recomputes nothing, for ", without));
    }
  }
  run.job.recompute = modules.empty() ? RecomputeMode::kNone : RecomputeMode::kSelective;
  // For unfused attention this is what `selective` alone means.
  const bool core = modules == std::vector{RecomputeModule::kCoreAttn};
  if (core && run.job.model.attention == AttentionKernel::kUnfused) modules.clear();
  return absl::OkStatus();
}

}  // namespace lynx::cli
