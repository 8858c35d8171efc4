// Computes the forward pass of every op.
#include "common/check.h"
#include "worker/engine/layer_ops.h"

namespace lynx::worker {

template <class T>
void TypedLayerOps<T>::Forward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& table) {
  using enum Tensor;
  const Tensors t{table};
  const Mlp& mlp = MlpOf(layer);
  const auto weight = [&](Parameter parameter) { return WeightOf(layer, parameter); };
  switch (op) {
    case Op::kEmbed:
      return ops_.EmbeddingForward(input.inputs, weight(Parameter::kEmbedTok), v_first_, n_, h_, v_shard_,
                                   sharded_ ? t[kEmbedSum] : t.next_x());
    case Op::kPosition:
      return ops_.PositionForward(t.next_x(), weight(Parameter::kEmbedPos), share_n_, s_, h_, KeyOf(op, layer, input));
    case Op::kLn1: return NormForward(layer, t[kX], Parameter::kLn1Weight, Parameter::kLn1Bias, t[kLn1]);
    case Op::kLatent:
    case Op::kLatentNorm: return LatentForward(op, layer, t);
    case Op::kQkv:
      if (shape_.latent()) return LatentForward(op, layer, t);
      return ops_.LinearForward(t[sharded_ ? kLn1Full : kLn1], weight(Parameter::kQkvWeight), QkvBiasOf(layer), n_, h_,
                                qkv_width_, t[kQkv]);
    case Op::kRope: return ops_.RopeForward(attention_, rotary_, t[heads_]);
    case Op::kQkNorm:
      return ops_.QkNormForward(normed_heads_, t[kQkv], weight(Parameter::kQNormWeight), weight(Parameter::kKNormWeight),
                                epsilon_, t[kQkNormed]);
    case Op::kProbs: return ops_.ProbsForward(attention_, t[heads_], t.Wide(kWorkspace), t[kProbs]);
    case Op::kContext:
      return ops_.ContextForward(attention_, t[kProbs], t[heads_], KeyOf(op, layer, input), t.Wide(kWorkspace), t[kContext]);
    case Op::kFlash:
      return ops_.FlashForward(attention_, t[heads_], KeyOf(op, layer, input), t.Wide(kWorkspace), t[kContext], t.Wide(kLse));
    case Op::kProj:  // a partial sum; add1 adds the bias after the collective has summed it
      return ops_.LinearForward(t[kContext], weight(Parameter::kProjWeight), nullptr, n_, context_width_, h_,
                                t[sharded_ ? kProjSum : kX1]);
    case Op::kAdd1:
      return ops_.BiasDropoutAddForward(t[kX], BiasOf(layer, Parameter::kProjBias), s_, share_n_, h_, KeyOf(op, layer, input),
                                        t[kX1]);
    case Op::kLn2: return NormForward(layer, t[kX1], Parameter::kLn2Weight, Parameter::kLn2Bias, t[kLn2]);
    case Op::kRouter:
      return ops_.RouterForward(router_, t[kLn2], weight(Parameter::kRouterWeight), state_.RouterBias(layer), t.Wide(kScores),
                                t.route());
    case Op::kPermute: return ops_.TokensToRows(router_, t.route(), t[kLn2], t[sent_.rows], t.Wide(sent_.weights));
    case Op::kFc1:
      if (mlp.moe) {
        return ops_.ExpertForward(experts_, t.Wide(kExpertWeights), t[kExpertRows], weight(Parameter::kExpertsFc1Weight), h_,
                                  mlp.fc1_width, t[kFc1]);
      }
      return ops_.LinearForward(t[sharded_ ? kLn2Full : kLn2], weight(Parameter::kFc1Weight),
                                BiasOf(layer, Parameter::kFc1Bias), n_, h_, mlp.fc1_width, t[kFc1]);
    case Op::kGelu: return ops_.GeluForward(t[kFc1], n_ * mlp.width, t[kGelu]);
    case Op::kSilu: return ops_.SiluForward(t[kFc1], mlp.rows, mlp.width, t[kSilu]);
    case Op::kSwiglu:
      if (mlp.moe) {
        return ops_.ExpertSwigluForward(experts_, t.Wide(kExpertWeights), t[kFc1], t[kSilu], mlp.width, t[kSwiglu]);
      }
      return ops_.SwigluForward(t[kFc1], t[kSilu], n_, mlp.width, t[kSwiglu]);
    case Op::kFc2:
      if (mlp.moe) {
        return ops_.ExpertForward(experts_, t.Wide(kExpertWeights), t[kSwiglu], weight(Parameter::kExpertsFc2Weight), mlp.width,
                                  h_, t[kExpertOut]);
      }
      return ops_.LinearForward(t[biases_ ? kGelu : kSwiglu], weight(Parameter::kFc2Weight), nullptr, n_, mlp.width, h_,
                                sharded_ ? t[kFc2Sum] : t.next_x());
    case Op::kUnpermute:
      if (shared_width_ > 0) backend_.Copy(t[kFc2Sum], Bytes(share_n_ * h_ * static_cast<int64_t>(sizeof(T))), t.next_x());
      return ops_.RowsToTokens(router_, t.route(), t[sent_.results], /*accumulate=*/shared_width_ > 0, t.next_x());
    case Op::kSharedFc1:
    case Op::kSharedSwiglu:
    case Op::kSharedFc2: return SharedForward(op, layer, t);
    case Op::kAdd2:
      return ops_.BiasDropoutAddForward(t[kX1], BiasOf(layer, Parameter::kFc2Bias), s_, share_n_, h_, KeyOf(op, layer, input),
                                        t.next_x());
    case Op::kLnf: return NormForward(layer, t[kX], Parameter::kHeadLnWeight, Parameter::kHeadLnBias, t[kLnf]);
    case Op::kLogits:
      ops_.LogitsForward(t[sharded_ ? kLnfFull : kLnf], weight(Parameter::kHeadOutWeight), n_, h_, v_shard_, t.Wide(kLogits));
      return backend_.LossStats(t.Wide(kLogits), input.targets, v_first_, n_, v_shard_, v_valid_,
                                t.Wide(kLossStats) + tp_rank_ * n_ * 3);
    case Op::kLoss: return backend_.LossForward(t.Wide(kLossStats), shape_.tp, n_, loss_sum_);
    default: break;
  }
  LYNX_CHECK(!"CheckEngineRuns lets no model with such an op through");
}

template <class T>
void TypedLayerOps<T>::NormForward(int32_t layer, const T* x, Parameter weight, Parameter bias, T* y) {
  const T* const gamma = WeightOf(layer, weight);
  if (!biases_) return ops_.RmsNormForward(x, gamma, share_n_, h_, epsilon_, y);
  ops_.LayerNormForward(x, gamma, WeightOf(layer, bias), share_n_, h_, epsilon_, y);
}

template void TypedLayerOps<float>::Forward(Op, int32_t, const MicrobatchInput&, const TensorTable&);
template void TypedLayerOps<Bfloat16>::Forward(Op, int32_t, const MicrobatchInput&, const TensorTable&);

}  // namespace lynx::worker
