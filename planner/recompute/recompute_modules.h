// What the modules of RecomputeOptions::modules keep and run again in one layer. Two rules differ:
//
// - Lynx recomputes only tensors that an op of the backward pass reads, each on the critical path. So a module is a set of
//   tensors.
// - Megatron Core calls a function again. `core_attn`, `mlp`, `moe` and `shared_experts` are checkpointed as a whole, with
//   their last op and with their collectives. The others discard their output and make it again (CheckpointWithoutOutput in
//   megatron/core/tensor_parallel/random.py). What comes after a function keeps its own input: so the attention's output is
//   kept for proj, while only the log-sum-exp of fused attention is not. Where norms are part of the linear that follows them
//   (Transformer Engine's TELayerNormColumnParallelLinear; megatron/core/models/gpt/gpt_layer_specs.py), `layernorm` has no
//   norm to recompute, and `mlp` and `mla_up_proj` call the norm with their linear.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_RECOMPUTE_MODULES_H_
#define LYNX_PLANNER_RECOMPUTE_RECOMPUTE_MODULES_H_

#include <string>
#include <vector>

#include "planner/problem/job_spec.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

// True if layers of this graph have the module.
bool HasModule(const LayerGraph& graph, RecomputeModule module);
// The recomputable tensors that Lynx recomputes if `modules` are recomputed.
TensorSet TensorsOfModules(const LayerGraph& graph, const std::vector<RecomputeModule>& modules);

// What Megatron Core does with the modules in one layer.
struct RepeatedModules {
  OpSet ops = 0;            // run again in the backward pass; if fc2 or proj is one of them, then with the collective after it
  TensorSet dropped = 0;    // recomputable tensors that are not kept, except that `kept_part` is kept
  TensorSet kept_part = 0;  // tensors that are made together with a dropped one, and kept
};
// fused_norms: norms are part of the linear that follows them, as in Megatron Core with Transformer Engine.
RepeatedModules MegatronModules(const LayerGraph& graph, const std::vector<RecomputeModule>& modules, bool fused_norms);

// Sets of modules of which a plan for Megatron Core tries each, cheapest first: what costs few products, then whole blocks.
std::vector<std::vector<RecomputeModule>> MegatronModuleSets(const ModelSpec& model);

// The names of the modules, separated by blanks, such as "layernorm moe_act".
std::string ModulesText(const std::vector<RecomputeModule>& modules);
// A mode with its modules, such as "selective (layernorm moe_act)"; without modules, the name of the mode alone.
std::string RecomputeText(RecomputeMode mode, const std::vector<RecomputeModule>& modules);
// A set of modules that together recompute exactly these tensors. Empty if there is none, or if `recomputed` is empty.
std::vector<RecomputeModule> ModulesOfTensors(const LayerGraph& graph, TensorSet recomputed);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_RECOMPUTE_MODULES_H_
