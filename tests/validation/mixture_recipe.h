// How Megatron-Bridge's recipes ran the mixtures of experts whose speed its performance summaries publish. The summaries give
// the layout and the batch; all other settings are in the recipes that the summaries name. Pure; thread-safe.
#ifndef LYNX_TESTS_VALIDATION_MIXTURE_RECIPE_H_
#define LYNX_TESTS_VALIDATION_MIXTURE_RECIPE_H_

#include <string>

namespace lynx::validation {

struct MixtureRecipe {
  bool known = false;                 // false: the other fields have no meaning
  bool once_per_node = false;         // moe_flex_dispatcher_backend: DeepEP or HybridEP; else all-to-alls
  bool beside = false;                // overlap_moe_expert_parallel_comm: all-to-alls run during the other pass of 1F1B
  bool whole_graph = false;           // cuda_graph_impl full_iteration: the host launches nothing
  bool norms_and_activation = false;  // recompute_modules [layernorm, moe_act]
  bool slowed = false;                // the summary names a fault of a library that made the run slow
};

// `framework`: such as "megatron-bridge 26.04.01"; `gpu` as in published_runs.csv.
MixtureRecipe RecipeOf(const std::string& framework, const std::string& model, const std::string& gpu, bool eight_bit);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_MIXTURE_RECIPE_H_
