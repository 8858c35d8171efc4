// See state_sharing.h.
#include "planner/program/state_sharing.h"

#include <algorithm>

namespace lynx {
namespace {

bool Shares(const StageContext& context, ZeroStage from) { return context.layout.zero >= from && context.gradient_ranks() > 1; }

int64_t PaddedFor(int64_t shares, int64_t parameters) {
  const int64_t multiple = shares > 1 ? shares * kShareAlignment : 1;
  return (parameters + multiple - 1) / multiple * multiple;
}

template <class Test>
bool AnyOp(const std::vector<Op>& ops, const Test& test) {
  return std::any_of(ops.begin(), ops.end(), test);
}

}  // namespace

bool HoldsTiedEmbedding(const StageContext& context) {
  return context.model.tied_embeddings && context.has_embedding() && context.has_head();
}

bool SharesWeights(const StageContext& context) { return Shares(context, ZeroStage::kWeights); }
bool ReducesEachMicrobatch(const StageContext& context) { return Shares(context, ZeroStage::kGradients); }
bool GathersUpdatedWeights(const StageContext& context) {
  return Shares(context, ZeroStage::kOptimizer) && !SharesWeights(context);
}

int32_t OptimizerShares(const StageContext& context) {
  return Shares(context, ZeroStage::kOptimizer) ? ShardRanks(context.layout) : 1;
}

int64_t Shareable(const StageContext& context, int64_t parameters) { return PaddedFor(OptimizerShares(context), parameters); }

bool HasExpertReplicas(const StageContext& context) { return context.model.moe.any() && ExpertReplicas(context.layout) > 1; }

int32_t ExpertShares(const StageContext& context) {
  return HasExpertReplicas(context) && context.layout.zero >= ZeroStage::kOptimizer ? ExpertReplicas(context.layout) : 1;
}

int64_t ShareableExperts(const StageContext& context, int64_t parameters) {
  return PaddedFor(ExpertShares(context), parameters);
}

bool ReadsWeights(const Action& action, const LayerGraph& graph, const LayerShape& shape) {
  const auto has_weights = [&](Op op) { return OpParameters(op, shape) > 0; };
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kRecompute: return AnyOp(OpsOf(graph, action), has_weights);
    case ActionKind::kBackward:
      return AnyOp(OpsOf(graph, action), [&](Op op) {
        return has_weights(op) && op != Op::kAdd1 && op != Op::kAdd2 && op != Op::kEmbed && op != Op::kPosition;
      });
    default: return false;
  }
}

bool AddsWeightGradients(const Action& action, const LayerGraph& graph, const LayerShape& shape) {
  if (action.kind == ActionKind::kWeight) return true;
  if (action.kind != ActionKind::kBackward) return false;
  return AnyOp(OpsOf(graph, action), [&](Op op) { return OpParameters(op, shape) > 0 && !graph.InfoOf(op).has_weight_pass; });
}

}  // namespace lynx
