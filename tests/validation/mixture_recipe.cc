#include "tests/validation/mixture_recipe.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace lynx::validation {
namespace {

constexpr int kOnce = 1, kBeside = 2, kGraph = 4, kBalanced = 8;

// One setting of a recipe, from one release to another. Releases are numbered like the containers: 2604 is 26.04. `bits` 0: the
// rule is for 8 and for 16 bits. The first rule that fits is used.
struct Rule {
  int first, last;
  const char* model;
  const char* gpu;  // the beginning of the GPU's name
  int bits;
  int settings;
};

// NVIDIA-NeMo/Megatron-Bridge, tags v0.2.0 (25.11), v0.3.0 (26.02), v0.4.0 (26.04) and v0.5.0 (26.06):
// scripts/performance/configs/{qwen,qwen3,gpt_oss}/*workload_base_configs.py; v0.6.0 (26.08): src/megatron/bridge/perf_recipes.
constexpr Rule kRules[] = {
    {2511, 2602, "Qwen3-30B", "H100", 0, kOnce | kBeside},
    {2604, 2608, "Qwen3-30B", "H100", 0, kOnce},
    {2606, 2608, "Qwen3-30B", "", 8, kOnce | kBeside | kGraph},
    {2511, 2604, "Qwen3-30B", "", 0, kOnce},
    {2511, 2604, "Qwen3-235B", "H100", 0, kBeside},
    {2602, 2602, "Qwen3-235B", "B300", 0, kBeside},
    {2604, 2604, "Qwen3-235B", "B300", 0, 0},
    {2511, 2511, "Qwen3-235B", "B200", 0, kBeside},
    {2602, 2604, "Qwen3-235B", "B200", 0, 0},
    {2606, 2608, "Qwen3-235B", "GB", 8, kOnce | kBeside | kGraph},
    {2511, 2604, "Qwen3-235B", "GB", 0, kOnce},
    {2511, 2604, "GPT-OSS", "GB300", 16, 0},
    {2604, 2604, "GPT-OSS", "GB200", 16, kOnce | kBeside | kBalanced},
    {2511, 2602, "GPT-OSS", "GB200", 16, kBalanced},
    {2602, 2602, "GPT-OSS", "B300", 16, 0},
    {2604, 2606, "GPT-OSS", "B300", 0, kOnce},
    {2604, 2604, "GPT-OSS", "B200", 16, kOnce | kBalanced},
    {2511, 2602, "GPT-OSS", "B200", 16, kBalanced},
    {2511, 2604, "GPT-OSS", "H100", 16, kBalanced},
    {2608, 2608, "GPT-OSS", "GB200", 8, kOnce | kBeside | kGraph | kBalanced},
    {2606, 2608, "GPT-OSS", "GB", 8, kOnce | kBeside | kGraph},
};

// Returns 2604 for "megatron-bridge 26.04" and for "megatron-bridge 26.04.01"; 0 if the text names no release.
int ReleaseOf(const std::string& framework) {
  const std::vector<std::string> words = absl::StrSplit(framework, absl::ByAnyChar(" ."));
  int year = 0, month = 0;
  if (words.size() < 3 || !absl::SimpleAtoi(words[1], &year) || !absl::SimpleAtoi(words[2], &month)) return 0;
  return year * 100 + month;
}

}  // namespace

MixtureRecipe RecipeOf(const std::string& framework, const std::string& model, const std::string& gpu, bool eight_bit) {
  MixtureRecipe recipe;
  if (!absl::StartsWith(framework, "megatron-bridge")) return recipe;
  const int release = ReleaseOf(framework);
  // docs/performance-summary-archive.md of 26.06.01: a kernel of grouped products was ten times slower.
  recipe.slowed = framework == "megatron-bridge 26.06.01" && absl::StartsWith(model, "GPT-OSS");
  for (const Rule& rule : kRules) {
    if (release < rule.first || release > rule.last || !absl::StartsWith(model, rule.model)) continue;
    if (!absl::StartsWith(gpu, rule.gpu) || (rule.bits != 0 && (rule.bits == 8) != eight_bit)) continue;
    recipe.known = true;
    recipe.once_per_node = (rule.settings & kOnce) != 0;
    recipe.beside = (rule.settings & kBeside) != 0;
    recipe.whole_graph = (rule.settings & kGraph) != 0;
    recipe.norms_and_activation = (rule.settings & kBalanced) != 0;
    break;
  }
  return recipe;
}

}  // namespace lynx::validation
