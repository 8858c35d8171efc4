// GELU applies gelu_formula.h to every element.
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"
#include "worker/backend/gelu_formula.h"

namespace lynx::worker::cpu {
namespace {

template <class T>
LYNX_SIMD void Forward(const T* x, int64_t count, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = GeluValue(x[i], Exp(GeluExponent(x[i])));
}

template <class T>
LYNX_SIMD void Backward(const T* x, int64_t count, T* dy) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) dy[i] = dy[i] * GeluSlope(x[i], Exp(GeluExponent(x[i])));
}

}  // namespace

template <class T>
void CpuOps<T>::GeluForward(const T* x, int64_t count, T* y) {
  Forward(x, count, y);
}

template <class T>
void CpuOps<T>::GeluBackward(const T* x, int64_t count, T* dy) {
  Backward(x, count, dy);
}

#define LYNX_INSTANTIATE(T)                                    \
  template void CpuOps<T>::GeluForward(const T*, int64_t, T*); \
  template void CpuOps<T>::GeluBackward(const T*, int64_t, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
