// Computes the weight gradient of every op that has a weight pass.
#include "common/check.h"
#include "worker/engine/layer_ops.h"

namespace lynx::worker {

template <class T>
void TypedLayerOps<T>::Weight(Op op, int32_t layer, const TensorTable& table) {
  using enum Tensor;
  const Tensors t{table};
  const Mlp& mlp = MlpOf(layer);
  const auto gradient = [&](Parameter parameter) { return state_.Gradient(layer, parameter); };
  switch (op) {
    case Op::kLatent: return LatentWeight(op, layer, t);
    case Op::kQkv:
      if (shape_.latent()) return LatentWeight(op, layer, t);
      return ops_.LinearWeight(t[sharded_ ? kLn1Full : kLn1], t[kGradQkv], n_, h_, qkv_width_, gradient(Parameter::kQkvWeight),
                               QkvBiasGradientOf(layer));
    case Op::kProj:
      return ops_.LinearWeight(t[kContext], t[kGradProj], n_, context_width_, h_, gradient(Parameter::kProjWeight), nullptr);
    case Op::kAdd1: return ops_.BiasGradient(t[kGradProj], n_, h_, gradient(Parameter::kProjBias));
    case Op::kRouter: return ops_.RouterWeight(router_, t[kLn2], t.Wide(kGradScores), gradient(Parameter::kRouterWeight));
    case Op::kFc1:
      if (mlp.moe) {
        return ops_.ExpertWeight(experts_, t.Wide(kExpertWeights), t[kExpertRows], t[kGradFc1], h_, mlp.fc1_width,
                                 gradient(Parameter::kExpertsFc1Weight));
      }
      return ops_.LinearWeight(t[sharded_ ? kLn2Full : kLn2], t[kGradFc1], n_, h_, mlp.fc1_width,
                               gradient(Parameter::kFc1Weight), BiasGradientOf(layer, Parameter::kFc1Bias));
    case Op::kFc2:
      if (mlp.moe) {
        return ops_.ExpertWeight(experts_, t.Wide(kExpertWeights), t[kSwiglu], t[kGradExpertOut], mlp.width, h_,
                                 gradient(Parameter::kExpertsFc2Weight));
      }
      return ops_.LinearWeight(t[biases_ ? kGelu : kSwiglu], t[kGradFc2], n_, mlp.width, h_, gradient(Parameter::kFc2Weight),
                               nullptr);
    case Op::kSharedFc1:
    case Op::kSharedFc2: return SharedWeight(op, layer, t);
    case Op::kAdd2: return ops_.BiasGradient(t[kGradFc2], n_, h_, gradient(Parameter::kFc2Bias));
    case Op::kLogits:  // the gradient of the logits has overwritten the logits
      return ops_.LinearWeight(t[sharded_ ? kLnfFull : kLnf], t[kLogits], n_, h_, v_shard_, gradient(Parameter::kHeadOutWeight),
                               nullptr);
    default: LYNX_CHECK(!"the op has no weight pass");
  }
}

template void TypedLayerOps<float>::Weight(Op, int32_t, const TensorTable&);
template void TypedLayerOps<Bfloat16>::Weight(Op, int32_t, const TensorTable&);

}  // namespace lynx::worker
