// The block that every token passes in addition to its experts: a SwiGLU block of whole weights on the rank's own tokens. If it
// has a gate, the sigmoid of a token's product with the gate's weight multiplies the activation. So the product of fc2 is
// multiplied too, and no pass needs it again. The gates follow the products of fc1 in one tensor, and their gradients those of
// fc1.
#include "common/check.h"
#include "worker/engine/layer_ops.h"

namespace lynx::worker {

template <class T>
void TypedLayerOps<T>::SharedForward(Op op, int32_t layer, const Tensors& t) {
  using enum Tensor;
  const auto weight = [&](Parameter parameter) { return WeightOf(layer, parameter); };
  T* const fc1 = t[kSharedFc1];
  switch (op) {
    case Op::kSharedFc1:
      if (shared_gate_) ops_.TokenGateForward(t[kLn2], weight(Parameter::kSharedGateWeight), share_n_, h_, GateOf(fc1));
      return ops_.LinearForward(t[kLn2], weight(Parameter::kSharedFc1Weight), nullptr, share_n_, h_, 2 * shared_width_, fc1);
    case Op::kSharedSwiglu: return ops_.GatedSwigluForward(fc1, GateOf(fc1), share_n_, shared_width_, t[kSharedSwiglu]);
    case Op::kSharedFc2:
      return ops_.LinearForward(t[kSharedSwiglu], weight(Parameter::kSharedFc2Weight), nullptr, share_n_, shared_width_, h_,
                                t[kFc2Sum]);
    default: break;
  }
  LYNX_CHECK(!"not an op of the block");
}

template <class T>
void TypedLayerOps<T>::SharedBackward(Op op, int32_t layer, const Tensors& t) {
  using enum Tensor;
  const auto weight = [&](Parameter parameter) { return WeightOf(layer, parameter); };
  T* const grad_fc1 = t[kGradSharedFc1];
  switch (op) {
    case Op::kSharedFc2:
      return ops_.LinearBackward(t[kGradFc2], weight(Parameter::kSharedFc2Weight), share_n_, shared_width_, h_,
                                 t[kGradSharedSwiglu]);
    case Op::kSharedSwiglu:
      return ops_.GatedSwigluBackward(t[kSharedFc1], GateOf(t[kSharedFc1]), t[kGradSharedSwiglu], share_n_, shared_width_,
                                      grad_fc1, GateOf(grad_fc1));
    case Op::kSharedFc1:  // begins the gradient of ln2
      ops_.LinearBackward(grad_fc1, weight(Parameter::kSharedFc1Weight), share_n_, h_, 2 * shared_width_, t[kGradLn2]);
      if (shared_gate_) {
        ops_.TokenGateBackward(GateOf(grad_fc1), weight(Parameter::kSharedGateWeight), share_n_, h_, t[kGradLn2]);
      }
      return;
    default: break;
  }
  LYNX_CHECK(!"not an op of the block");
}

template <class T>
void TypedLayerOps<T>::SharedWeight(Op op, int32_t layer, const Tensors& t) {
  using enum Tensor;
  const auto gradient = [&](Parameter parameter) { return state_.Gradient(layer, parameter); };
  if (op == Op::kSharedFc2) {
    return ops_.LinearWeight(t[kSharedSwiglu], t[kGradFc2], share_n_, shared_width_, h_, gradient(Parameter::kSharedFc2Weight),
                             nullptr);
  }
  LYNX_CHECK(op == Op::kSharedFc1);
  T* const grad_fc1 = t[kGradSharedFc1];
  ops_.LinearWeight(t[kLn2], grad_fc1, share_n_, h_, 2 * shared_width_, gradient(Parameter::kSharedFc1Weight), nullptr);
  if (shared_gate_) {
    ops_.TokenGateWeight(t[kLn2], GateOf(grad_fc1), share_n_, h_, gradient(Parameter::kSharedGateWeight));
  }
}

#define LYNX_INSTANTIATE(T)                                                    \
  template void TypedLayerOps<T>::SharedForward(Op, int32_t, const Tensors&);  \
  template void TypedLayerOps<T>::SharedBackward(Op, int32_t, const Tensors&); \
  template void TypedLayerOps<T>::SharedWeight(Op, int32_t, const Tensors&);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker
