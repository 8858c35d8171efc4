#include "planner/recompute/recompute_modules.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

constexpr int kModuleCount = static_cast<int>(kEnumNames<RecomputeModule>.size());

TensorSet TensorsOf(const LayerGraph& graph, std::initializer_list<Tensor> tensors) {
  TensorSet set = 0;
  for (const Tensor tensor : tensors) {
    if (graph.RecomputableIndex(tensor) >= 0) set |= Bit(tensor);
  }
  return set;
}

OpSet OpsOf(const LayerGraph& graph, std::initializer_list<Op> ops) {
  OpSet set = 0;
  for (const Op op : ops) {
    if (graph.Has(op)) set |= Bit(op);
  }
  return set;
}

TensorSet TensorsOfModule(const LayerGraph& graph, RecomputeModule module) {
  if (!HasModule(graph, module)) return 0;
  using enum Tensor;
  switch (module) {
    case RecomputeModule::kCoreAttn:
      return graph.Has(Op::kFlash) ? TensorsOf(graph, {kContext}) : TensorsOf(graph, {kProbs, kProbsDropped});
    case RecomputeModule::kLayernorm: return TensorsOf(graph, {kLn1, kLn2});
    case RecomputeModule::kMoeAct: return TensorsOf(graph, {kSilu, kSwiglu});
    case RecomputeModule::kMlaUpProj: return TensorsOf(graph, {kQkv});
    case RecomputeModule::kMlp: return TensorsOf(graph, {kFc1, kGelu, kSilu, kSwiglu});
    case RecomputeModule::kMoe:
      return TensorsOf(graph, {kScores, kExpertRows, kFc1, kSilu, kSwiglu, kSharedFc1, kSharedSwiglu});
    case RecomputeModule::kSharedExperts: return TensorsOf(graph, {kSharedFc1, kSharedSwiglu});
  }
  return 0;
}

// The ops of the function that Megatron Core calls again.
OpSet FunctionOf(const LayerGraph& graph, RecomputeModule module, bool fused_norms) {
  if (!HasModule(graph, module)) return 0;
  switch (module) {
    case RecomputeModule::kCoreAttn: return OpsOf(graph, {Op::kProbs, Op::kDrop, Op::kContext, Op::kFlash});
    case RecomputeModule::kLayernorm: {
      // Layers with latent attention or experts call the norm before these by itself.
      OpSet norms = 0;
      if (!fused_norms || graph.Has(Op::kLatent)) norms |= Bit(Op::kLn1);
      if (!fused_norms || graph.Has(Op::kRouter)) norms |= Bit(Op::kLn2);
      return norms;
    }
    case RecomputeModule::kMoeAct: return OpsOf(graph, {Op::kSilu, Op::kSwiglu});
    case RecomputeModule::kMlaUpProj:
      return OpsOf(graph, {Op::kQkv, Op::kRope}) | (fused_norms ? OpsOf(graph, {Op::kLatentNorm}) : 0);
    case RecomputeModule::kMlp:
      return OpsOf(graph, {Op::kFc1, Op::kGelu, Op::kSilu, Op::kSwiglu, Op::kFc2}) | (fused_norms ? Bit(Op::kLn2) : 0);
    case RecomputeModule::kMoe:
      return OpsOf(graph, {Op::kRouter, Op::kPermute, Op::kFc1, Op::kSilu, Op::kSwiglu, Op::kFc2, Op::kUnpermute,
                           Op::kSharedFc1, Op::kSharedSwiglu, Op::kSharedFc2});
    case RecomputeModule::kSharedExperts: return OpsOf(graph, {Op::kSharedFc1, Op::kSharedSwiglu, Op::kSharedFc2});
  }
  return 0;
}

}  // namespace

bool HasModule(const LayerGraph& graph, RecomputeModule module) {
  switch (module) {
    case RecomputeModule::kCoreAttn:
    case RecomputeModule::kLayernorm: return true;
    case RecomputeModule::kMlaUpProj: return graph.Has(Op::kLatent);
    case RecomputeModule::kMlp: return !graph.Has(Op::kRouter);
    case RecomputeModule::kMoeAct:
    case RecomputeModule::kMoe: return graph.Has(Op::kRouter);
    case RecomputeModule::kSharedExperts: return graph.Has(Op::kSharedFc1);
  }
  return false;
}

TensorSet TensorsOfModules(const LayerGraph& graph, const std::vector<RecomputeModule>& modules) {
  TensorSet set = 0;
  for (const RecomputeModule module : modules) set |= TensorsOfModule(graph, module);
  return set;
}

RepeatedModules MegatronModules(const LayerGraph& graph, const std::vector<RecomputeModule>& modules, bool fused_norms) {
  RepeatedModules repeated;
  for (const RecomputeModule module : modules) repeated.ops |= FunctionOf(graph, module, fused_norms);
  for (const Tensor tensor : graph.recomputable()) {
    bool again = true;
    for (const Op op : graph.ProducersOf(tensor)) again = again && Contains(repeated.ops, op);
    // proj keeps the attention's output as its input. Unfused attention makes nothing else with it.
    if (tensor == Tensor::kContext && !graph.Has(Op::kFlash)) continue;
    if (again) repeated.dropped |= Bit(tensor);
    if (again && tensor == Tensor::kContext) repeated.kept_part |= Bit(tensor);
  }
  return repeated;
}

std::vector<std::vector<RecomputeModule>> MegatronModuleSets(const ModelSpec& model) {
  using enum RecomputeModule;
  std::vector<std::vector<RecomputeModule>> sets;
  if (model.moe.any()) sets.push_back({kLayernorm, kMoeAct});
  if (model.latent.any()) {
    sets.push_back({kMlaUpProj});
    sets.push_back(model.moe.any() ? std::vector{kLayernorm, kMoeAct, kMlaUpProj} : std::vector{kLayernorm, kMlaUpProj});
  }
  if (!model.moe.any()) {
    sets.push_back({kMlp});
  } else {
    sets.push_back(model.moe.dense_layers > 0 ? std::vector{kLayernorm, kMlp, kMoe} : std::vector{kLayernorm, kMoe});
  }
  return sets;
}

std::string ModulesText(const std::vector<RecomputeModule>& modules) {
  std::string text;
  for (const RecomputeModule module : modules) absl::StrAppend(&text, text.empty() ? "" : " ", EnumName(module));
  return text;
}

std::string RecomputeText(RecomputeMode mode, const std::vector<RecomputeModule>& modules) {
  return modules.empty() ? EnumName(mode) : absl::StrCat(EnumName(mode), " (", ModulesText(modules), ")");
}

std::vector<RecomputeModule> ModulesOfTensors(const LayerGraph& graph, TensorSet recomputed) {
  // moe contains the tensors of moe_act and shared_experts, so it is tried before them.
  constexpr RecomputeModule kOuterFirst[] = {
      RecomputeModule::kMoe,       RecomputeModule::kCoreAttn, RecomputeModule::kLayernorm,    RecomputeModule::kMoeAct,
      RecomputeModule::kMlaUpProj, RecomputeModule::kMlp,      RecomputeModule::kSharedExperts};
  TensorSet covered = 0;
  std::vector<bool> taken(kModuleCount, false);
  for (const RecomputeModule module : kOuterFirst) {
    const TensorSet own = TensorsOfModule(graph, module);
    if (own == 0 || (own & ~recomputed) != 0 || (own & ~covered) == 0) continue;
    covered |= own;
    taken[static_cast<size_t>(module)] = true;
  }
  if (covered != recomputed) return {};
  std::vector<RecomputeModule> modules;
  for (int i = 0; i < kModuleCount; ++i) {
    if (taken[static_cast<size_t>(i)]) modules.push_back(static_cast<RecomputeModule>(i));
  }
  return modules;
}

}  // namespace lynx
