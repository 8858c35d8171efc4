// The input gradient of every op. `grad` is the gradient of x, which flows backward through the residual connections
// in place. With sequence parallelism a gradient that a reduce-scatter has summed, or an all-gather will widen, is at
// the rank's share of a tensor of all tokens.
#include "common/check.h"
#include "worker/engine/layer_ops.h"

namespace lynx {

void LayerOps::Backward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& t) {
  using enum Tensor;
  const auto weight = [&](Parameter parameter) { return state_.Weight(layer, parameter); };
  const auto gradient = [&](Parameter parameter) { return state_.Gradient(layer, parameter); };
  switch (op) {
    case Op::kEmbed:
      return backend_.EmbeddingBackward(input.inputs, t[sharded_ ? kGradEmbed : kGrad], v_first_, n_, h_, v_shard_,
                                        gradient(Parameter::kEmbedTok));
    case Op::kPosition:
      return backend_.PositionBackward(t[kGrad], gradient(Parameter::kEmbedPos), share_n_, s_, h_,
                                       KeyOf(op, layer, input));
    case Op::kLn1:
      return NormBackward(layer, t[kX], Parameter::kLn1Weight, Parameter::kLn1Bias, t[kGradLn1], /*accumulate=*/true,
                          t[kGrad]);
    case Op::kQkv:
      return backend_.LinearBackward(t[kGradQkv], weight(Parameter::kQkvWeight), n_, h_, qkv_width_, t[kGradLn1]);
    case Op::kRope:
      return backend_.RopeBackward(attention_, t[kGradQkv]);
    case Op::kProbs:
      return;  // the backend does context and probs in one pass
    case Op::kContext:
      return backend_.AttentionBackward(attention_, t[kProbs], t[kQkv], t[kGradContext], KeyOf(op, layer, input),
                                        t[kWorkspace], t[kGradQkv]);
    case Op::kFlash:
      return backend_.FlashBackward(attention_, t[kQkv], t[kContext], t[kLse], t[kGradContext], KeyOf(op, layer, input),
                                    t[kWorkspace], t[kGradQkv]);
    case Op::kProj:
      return backend_.LinearBackward(t[kGradProj], weight(Parameter::kProjWeight), n_, h_shard_, h_, t[kGradContext]);
    case Op::kAdd1:
      return BiasDropoutAdd(op, layer, input, t[kGrad], Parameter::kProjBias, t[kGradProj]);
    case Op::kLn2:
      return NormBackward(layer, t[kX1], Parameter::kLn2Weight, Parameter::kLn2Bias, t[kGradLn2], /*accumulate=*/true,
                          t[kGrad]);
    case Op::kFc1:
      return backend_.LinearBackward(t[kGradFc1], weight(Parameter::kFc1Weight), n_, h_, fc1_width_, t[kGradLn2]);
    case Op::kGelu:
      return backend_.GeluBackward(t[kFc1], n_ * f_shard_, t[kGradFc1]);
    case Op::kSilu:
      return backend_.SiluBackward(t[kFc1], n_, f_shard_, t[kGradFc1]);
    case Op::kSwiglu:
      return backend_.SwigluBackward(t[kFc1], t[kSilu], t[kGradSwiglu], n_, f_shard_, t[kGradFc1]);
    case Op::kFc2:
      return backend_.LinearBackward(t[kGradFc2], weight(Parameter::kFc2Weight), n_, f_shard_, h_,
                                     t[biases_ ? kGradFc1 : kGradSwiglu]);
    case Op::kAdd2:
      return BiasDropoutAdd(op, layer, input, t[kGrad], Parameter::kFc2Bias, t[kGradFc2]);
    case Op::kLnf:  // where the gradient of x begins
      return NormBackward(layer, t[kX], Parameter::kHeadLnWeight, Parameter::kHeadLnBias, t[kGradLnf],
                          /*accumulate=*/false, t[kGrad]);
    case Op::kLogits:
      return backend_.LinearBackward(t[kLogits], weight(Parameter::kHeadOutWeight), n_, h_, v_shard_, t[kGradLnf]);
    case Op::kLoss:
      return backend_.LossBackward(t[kLossStats], input.targets, v_first_, shape_.tp, n_, v_shard_, v_valid_,
                                   loss_scale_, t[kLogits], t[kLogits]);
    default:
      break;
  }
  LYNX_CHECK(!"CheckEngineRuns lets no model with such an op through");
}

void LayerOps::BiasDropoutAdd(Op op, int32_t layer, const MicrobatchInput& input, const float* grad,
                              Parameter bias, float* out) {
  float* const share = out + share_at_;
  backend_.BiasDropoutAddBackward(grad, s_, share_n_, h_, KeyOf(op, layer, input), share);
  // Else the weight pass makes it.
  if (sharded_ && biases_) backend_.BiasGradient(share, share_n_, h_, state_.Gradient(layer, bias));
}

}  // namespace lynx
