// Linear layers as matrix products.
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

template <class T>
constexpr T* kNoBias = nullptr;

// y (n, out) = x (n, in) w^T
ProductShape Forward(int64_t n, int64_t in, int64_t out) {
  return {.a = Transpose::kNo, .b = Transpose::kYes, .m = n, .n = out, .k = in};
}

}  // namespace

template <class T>
void CudaOps<T>::LinearForward(const T* x, const T* w, const T* bias, int64_t n, int64_t in, int64_t out, T* y) {
  if (Gemm::TakesBias(bias)) return gemm_.Multiply(Forward(n, in, out), x, w, ProductInto::kOverwrite, bias, y);
  CopyToRows(bias, n, out, y);
  gemm_.Multiply(Forward(n, in, out), x, w, ProductInto::kAdd, kNoBias<const T>, y);
}

template <class T>
void CudaOps<T>::LogitsForward(const T* x, const T* w, int64_t n, int64_t in, int64_t out, float* logits) {
  gemm_.Multiply(Forward(n, in, out), x, w, ProductInto::kOverwrite, kNoBias<const float>, logits);
}

template <class T>
void CudaOps<T>::LinearBackward(const T* dy, const T* w, int64_t n, int64_t in, int64_t out, T* dx) {
  gemm_.Multiply({.m = n, .n = in, .k = out}, dy, w, ProductInto::kOverwrite, kNoBias<const T>, dx);
}

template <class T>
void CudaOps<T>::AddLinearBackward(const T* dy, const T* w, int64_t n, int64_t in, int64_t out, T* dx) {
  gemm_.Multiply({.m = n, .n = in, .k = out}, dy, w, ProductInto::kAdd, kNoBias<const T>, dx);
}

template <class T>
void CudaOps<T>::LinearWeight(const T* x, const T* dy, int64_t n, int64_t in, int64_t out, float* dw, float* dbias) {
  gemm_.Multiply({.a = Transpose::kYes, .m = out, .n = in, .k = n}, dy, x, ProductInto::kAdd, kNoBias<const float>, dw);
  if (dbias != nullptr) BiasGradient(dy, n, out, dbias);
}

#define LYNX_INSTANTIATE(T)                                                                             \
  template void CudaOps<T>::LinearForward(const T*, const T*, const T*, int64_t, int64_t, int64_t, T*); \
  template void CudaOps<T>::LogitsForward(const T*, const T*, int64_t, int64_t, int64_t, float*);       \
  template void CudaOps<T>::LinearBackward(const T*, const T*, int64_t, int64_t, int64_t, T*);          \
  template void CudaOps<T>::AddLinearBackward(const T*, const T*, int64_t, int64_t, int64_t, T*);       \
  template void CudaOps<T>::LinearWeight(const T*, const T*, int64_t, int64_t, int64_t, float*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
