// Computes the input gradient of every op. `grad` is the gradient of x. It flows backward through the residual connections and
// stays in one tensor. With sequence parallelism, a gradient may cover only the rank's share of the tokens (after a
// reduce-scatter, or before an all-gather). It then lies in a tensor of all tokens, at the place of the share. The gradient of
// the logits has the model's data type and overwrites the logits. In layers with experts, the gradients of ln2 and of the MLP's
// output are tensors of the share only.
#include "common/check.h"
#include "worker/engine/layer_ops.h"

namespace lynx::worker {

template <class T>
void TypedLayerOps<T>::Backward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& table) {
  using enum Tensor;
  const Tensors t{table};
  const Mlp& mlp = MlpOf(layer);
  const auto weight = [&](Parameter parameter) { return WeightOf(layer, parameter); };
  const auto gradient = [&](Parameter parameter) { return state_.Gradient(layer, parameter); };
  switch (op) {
    case Op::kEmbed:
      return ops_.EmbeddingBackward(input.inputs, t[sharded_ ? kGradEmbed : kGrad], v_first_, n_, h_, v_shard_,
                                    gradient(Parameter::kEmbedTok));
    case Op::kPosition:
      return ops_.PositionBackward(t[kGrad], gradient(Parameter::kEmbedPos), share_n_, s_, h_, KeyOf(op, layer, input));
    case Op::kLn1:
      return NormBackward(layer, t[kX], Parameter::kLn1Weight, Parameter::kLn1Bias, t[kGradLn1] + share_at_,
                          /*accumulate=*/true, t[kGrad]);
    case Op::kLatent:
    case Op::kLatentNorm: return LatentBackward(op, layer, t);
    case Op::kQkv:
      if (shape_.latent()) return LatentBackward(op, layer, t);
      return ops_.LinearBackward(t[kGradQkv], weight(Parameter::kQkvWeight), n_, h_, qkv_width_, t[kGradLn1]);
    case Op::kRope: return ops_.RopeBackward(attention_, rotary_, t[kGradQkv]);
    case Op::kQkNorm:
      return ops_.QkNormBackward(normed_heads_, t[kQkv], weight(Parameter::kQNormWeight), weight(Parameter::kKNormWeight),
                                 epsilon_, t[kGradQkv], gradient(Parameter::kQNormWeight), gradient(Parameter::kKNormWeight));
    case Op::kProbs: return;  // the backward pass of the context op computes the gradients of both ops
    case Op::kContext:
      return ops_.AttentionBackward(attention_, t[kProbs], t[heads_], t[kGradContext], KeyOf(op, layer, input),
                                    t.Wide(kWorkspace), t[kGradQkv]);
    case Op::kFlash:
      return ops_.FlashBackward(attention_, t[heads_], t[kContext], t.Wide(kLse), t[kGradContext], KeyOf(op, layer, input),
                                t.Wide(kWorkspace), t[kGradQkv]);
    case Op::kProj:
      return ops_.LinearBackward(t[kGradProj], weight(Parameter::kProjWeight), n_, context_width_, h_, t[kGradContext]);
    case Op::kAdd1: return BiasDropoutAdd(op, layer, input, t[kGrad], Parameter::kProjBias, t[kGradProj] + share_at_);
    case Op::kLn2:
      return NormBackward(layer, t[kX1], Parameter::kLn2Weight, Parameter::kLn2Bias, MlpShare(layer, t[kGradLn2]),
                          /*accumulate=*/true, t[kGrad]);
    case Op::kRouter:  // after permute, which writes the gradient of ln2 to which this op adds
      // Each choice is counted once: forward passes may run again, and evaluations run only them.
      if (router_bias_) {
        backend_.CountChoices(t.route(), router_.n * router_.top_k, router_.experts, gradient(Parameter::kRouterBias));
      }
      return ops_.RouterBackward(router_, router_losses_, t.Wide(kScores), t.route(), t.Wide(sent_.grad_weights),
                                 rounds_ ? t.Wide(kWorkspace) : nullptr, weight(Parameter::kRouterWeight), t.Wide(kGradScores),
                                 t[kGradLn2]);
    case Op::kPermute:  // the shared block, if there is one, has begun the sum
      return ops_.RowsToTokens(router_, t.route(), t[sent_.grad_rows], /*accumulate=*/shared_width_ > 0, t[kGradLn2]);
    case Op::kSharedFc1:
    case Op::kSharedSwiglu:
    case Op::kSharedFc2: return SharedBackward(op, layer, t);
    case Op::kFc1:
      if (mlp.moe) {
        return ops_.ExpertBackward(experts_, t.Wide(kExpertWeights), t[kGradFc1], weight(Parameter::kExpertsFc1Weight), h_,
                                   mlp.fc1_width, t[kGradExpertRows]);
      }
      return ops_.LinearBackward(t[kGradFc1], weight(Parameter::kFc1Weight), n_, h_, mlp.fc1_width, t[kGradLn2]);
    case Op::kGelu: return ops_.GeluBackward(t[kFc1], n_ * mlp.width, t[kGradFc1]);
    case Op::kSilu: return ops_.SiluBackward(t[kFc1], mlp.rows, mlp.width, t[kGradFc1]);
    case Op::kSwiglu:
      if (mlp.moe) {
        return ops_.ExpertSwigluBackward(experts_, t.Wide(kExpertWeights), t[kFc1], t[kSilu], t[kGradSwiglu], mlp.width,
                                         t[kGradFc1], t.Wide(kGradExpertWeights));
      }
      return ops_.SwigluBackward(t[kFc1], t[kSilu], t[kGradSwiglu], n_, mlp.width, t[kGradFc1]);
    case Op::kFc2:
      if (mlp.moe) {
        return ops_.ExpertBackward(experts_, t.Wide(kExpertWeights), t[kGradExpertOut], weight(Parameter::kExpertsFc2Weight),
                                   mlp.width, h_, t[kGradSwiglu]);
      }
      return ops_.LinearBackward(t[kGradFc2], weight(Parameter::kFc2Weight), n_, mlp.width, h_,
                                 t[biases_ ? kGradFc1 : kGradSwiglu]);
    case Op::kUnpermute:  // the rows' weights are not needed again
      return ops_.TokensToRows(router_, t.route(), t[kGradFc2], t[sent_.grad_results], nullptr);
    case Op::kAdd2: return BiasDropoutAdd(op, layer, input, t[kGrad], Parameter::kFc2Bias, MlpShare(layer, t[kGradFc2]));
    case Op::kLnf:  // the gradient of x begins with this op
      return NormBackward(layer, t[kX], Parameter::kHeadLnWeight, Parameter::kHeadLnBias, t[kGradLnf] + share_at_,
                          /*accumulate=*/false, t[kGrad]);
    case Op::kLogits: return ops_.LinearBackward(t[kLogits], weight(Parameter::kHeadOutWeight), n_, h_, v_shard_, t[kGradLnf]);
    case Op::kLoss:
      return ops_.LossBackward(t.Wide(kLossStats), input.targets, v_first_, shape_.tp, n_, v_shard_, v_valid_, loss_scale_,
                               t.Wide(kLogits), t[kLogits]);
    default: break;
  }
  LYNX_CHECK(!"CheckEngineRuns lets no model with such an op through");
}

template <class T>
void TypedLayerOps<T>::BiasDropoutAdd(Op op, int32_t layer, const MicrobatchInput& input, const T* grad, Parameter bias,
                                      T* share) {
  ops_.BiasDropoutAddBackward(grad, s_, share_n_, h_, KeyOf(op, layer, input), share);
  // Without sequence parallelism the weight pass computes this gradient.
  if (sharded_ && biases_) ops_.BiasGradient(share, share_n_, h_, state_.Gradient(layer, bias));
}

template <class T>
void TypedLayerOps<T>::NormBackward(int32_t layer, const T* x, Parameter weight, Parameter bias, const T* dy, bool accumulate,
                                    T* dx) {
  const T* const gamma = WeightOf(layer, weight);
  float* const dgamma = state_.Gradient(layer, weight);
  if (!biases_) return ops_.RmsNormBackward(x, gamma, dy, share_n_, h_, epsilon_, accumulate, dx, dgamma);
  ops_.LayerNormBackward(x, gamma, dy, share_n_, h_, epsilon_, accumulate, dx, dgamma, state_.Gradient(layer, bias));
}

template void TypedLayerOps<float>::Backward(Op, int32_t, const MicrobatchInput&, const TensorTable&);
template void TypedLayerOps<Bfloat16>::Backward(Op, int32_t, const MicrobatchInput&, const TensorTable&);

}  // namespace lynx::worker
