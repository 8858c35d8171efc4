// The forward pass of every op.
#include "common/check.h"
#include "worker/engine/layer_ops.h"

namespace lynx {

void LayerOps::Forward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& t) {
  using enum Tensor;
  const auto weight = [&](Parameter parameter) { return state_.Weight(layer, parameter); };
  switch (op) {
    case Op::kEmbed:
      return backend_.EmbeddingForward(input.inputs, weight(Parameter::kEmbedTok), v_first_, n_, h_, v_shard_,
                                       sharded_ ? t[kEmbedSum] : t.next_x);
    case Op::kPosition:
      return backend_.PositionForward(t.next_x, weight(Parameter::kEmbedPos), share_n_, s_, h_, KeyOf(op, layer, input));
    case Op::kLn1:
      return NormForward(layer, t[kX], Parameter::kLn1Weight, Parameter::kLn1Bias, t[kLn1]);
    case Op::kQkv:
      return backend_.LinearForward(t[sharded_ ? kLn1Full : kLn1], weight(Parameter::kQkvWeight),
                                    BiasOf(layer, Parameter::kQkvBias), n_, h_, qkv_width_, t[kQkv]);
    case Op::kRope:
      return backend_.RopeForward(attention_, t[kQkv]);
    case Op::kProbs:
      return backend_.ProbsForward(attention_, t[kQkv], t[kWorkspace], t[kProbs]);
    case Op::kContext:
      return backend_.ContextForward(attention_, t[kProbs], t[kQkv], KeyOf(op, layer, input), t[kWorkspace],
                                     t[kContext]);
    case Op::kFlash:
      return backend_.FlashForward(attention_, t[kQkv], KeyOf(op, layer, input), t[kWorkspace], t[kContext], t[kLse]);
    case Op::kProj:  // a partial sum: the bias comes after the collective, in add1
      return backend_.LinearForward(t[kContext], weight(Parameter::kProjWeight), nullptr, n_, h_shard_, h_,
                                    t[sharded_ ? kProjSum : kX1]);
    case Op::kAdd1:
      return backend_.BiasDropoutAddForward(t[kX], BiasOf(layer, Parameter::kProjBias), s_, share_n_, h_,
                                            KeyOf(op, layer, input), t[kX1]);
    case Op::kLn2:
      return NormForward(layer, t[kX1], Parameter::kLn2Weight, Parameter::kLn2Bias, t[kLn2]);
    case Op::kFc1:
      return backend_.LinearForward(t[sharded_ ? kLn2Full : kLn2], weight(Parameter::kFc1Weight),
                                    BiasOf(layer, Parameter::kFc1Bias), n_, h_, fc1_width_, t[kFc1]);
    case Op::kGelu:
      return backend_.GeluForward(t[kFc1], n_ * f_shard_, t[kGelu]);
    case Op::kSilu:
      return backend_.SiluForward(t[kFc1], n_, f_shard_, t[kSilu]);
    case Op::kSwiglu:
      return backend_.SwigluForward(t[kFc1], t[kSilu], n_, f_shard_, t[kSwiglu]);
    case Op::kFc2:
      return backend_.LinearForward(t[biases_ ? kGelu : kSwiglu], weight(Parameter::kFc2Weight), nullptr, n_, f_shard_,
                                    h_, sharded_ ? t[kFc2Sum] : t.next_x);
    case Op::kAdd2:
      return backend_.BiasDropoutAddForward(t[kX1], BiasOf(layer, Parameter::kFc2Bias), s_, share_n_, h_,
                                            KeyOf(op, layer, input), t.next_x);
    case Op::kLnf:
      return NormForward(layer, t[kX], Parameter::kHeadLnWeight, Parameter::kHeadLnBias, t[kLnf]);
    case Op::kLogits:
      backend_.LinearForward(t[sharded_ ? kLnfFull : kLnf], weight(Parameter::kHeadOutWeight), nullptr, n_, h_, v_shard_,
                             t[kLogits]);
      return backend_.LossStats(t[kLogits], input.targets, v_first_, n_, v_shard_, v_valid_,
                                t[kLossStats] + tp_rank_ * n_ * 3);
    case Op::kLoss:
      loss_sum_ += backend_.LossForward(t[kLossStats], shape_.tp, n_);
      return;
    default:
      break;
  }
  LYNX_CHECK(!"CheckEngineRuns lets no model with such an op through");
}

}  // namespace lynx
