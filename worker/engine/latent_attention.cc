// The ops that latent attention has in place of qkv. Every tensor-parallel rank computes all latents of all its tokens, from
// the gathered ln1 if there is sequence parallelism. It makes the queries, keys and values of its own heads from them, so its
// gradients of latents, and of the weights of latents and of their norms, are partial sums over the ranks. The sum of the
// gradient of ln1 comes with the collective that ends the segment, the sums of the weights' gradients once a step.
#include "common/check.h"
#include "planner/problem/latents.h"
#include "worker/engine/layer_ops.h"

namespace lynx::worker {
namespace {

constexpr auto kEpsilon = static_cast<float>(kLatentNormEpsilon);

}  // namespace

template <class T>
void TypedLayerOps<T>::LatentForward(Op op, int32_t layer, const Tensors& t) {
  using enum Tensor;
  const auto weight = [&](Parameter parameter) { return WeightOf(layer, parameter); };
  const T* const input = t[sharded_ ? kLn1Full : kLn1];
  switch (op) {
    case Op::kLatent:
      return ops_.LinearForward(input, weight(Parameter::kLatentWeight), nullptr, n_, h_, latent_.z(), t[kLatent]);
    case Op::kLatentNorm:
      return ops_.LatentNormForward(latent_, t[kLatent], weight(Parameter::kLatentNormWeight), kEpsilon, t[kLatentNormed]);
    case Op::kQkv:
      return ops_.LatentHeadsForward(latent_, t[kLatentNormed], latent_.p == 0 ? input : nullptr,
                                     weight(Parameter::kQueryWeight), weight(Parameter::kKeyValueWeight), t[kQkv]);
    default: break;
  }
  LYNX_CHECK(!"not an op of latent attention");
}

template <class T>
void TypedLayerOps<T>::LatentBackward(Op op, int32_t layer, const Tensors& t) {
  using enum Tensor;
  const auto weight = [&](Parameter parameter) { return WeightOf(layer, parameter); };
  switch (op) {
    case Op::kQkv:  // begins the gradient of ln1 if it makes the queries from ln1
      return ops_.LatentHeadsBackward(latent_, t[kGradQkv], weight(Parameter::kQueryWeight), weight(Parameter::kKeyValueWeight),
                                      t.Wide(kWorkspace), t[kGradLatent], latent_.p == 0 ? t[kGradLn1] : nullptr);
    case Op::kLatentNorm:
      return ops_.LatentNormBackward(latent_, t[kLatent], weight(Parameter::kLatentNormWeight), kEpsilon, t[kGradLatent],
                                     state_.Gradient(layer, Parameter::kLatentNormWeight));
    case Op::kLatent: {
      const T* const w = weight(Parameter::kLatentWeight);
      if (latent_.p == 0) return ops_.AddLinearBackward(t[kGradLatent], w, n_, h_, latent_.z(), t[kGradLn1]);
      return ops_.LinearBackward(t[kGradLatent], w, n_, h_, latent_.z(), t[kGradLn1]);
    }
    default: break;
  }
  LYNX_CHECK(!"not an op of latent attention");
}

template <class T>
void TypedLayerOps<T>::LatentWeight(Op op, int32_t layer, const Tensors& t) {
  using enum Tensor;
  const T* const input = t[sharded_ ? kLn1Full : kLn1];
  if (op == Op::kLatent) {
    return ops_.LinearWeight(input, t[kGradLatent], n_, h_, latent_.z(), state_.Gradient(layer, Parameter::kLatentWeight),
                             nullptr);
  }
  LYNX_CHECK(op == Op::kQkv);
  ops_.LatentHeadsWeight(latent_, t[kLatentNormed], latent_.p == 0 ? input : nullptr, t[kGradQkv],
                         state_.Gradient(layer, Parameter::kQueryWeight), state_.Gradient(layer, Parameter::kKeyValueWeight));
}

#define LYNX_INSTANTIATE(T)                                                    \
  template void TypedLayerOps<T>::LatentForward(Op, int32_t, const Tensors&);  \
  template void TypedLayerOps<T>::LatentBackward(Op, int32_t, const Tensors&); \
  template void TypedLayerOps<T>::LatentWeight(Op, int32_t, const Tensors&);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker
