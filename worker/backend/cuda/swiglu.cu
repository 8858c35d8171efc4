// SwiGLU (Shazeer 2020): silu(g) u with silu(g) = g sigma(g). It is computed in two ops, so that silu(g) can be stored between
// them.
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

// Returns e^(-x), limited to e^87 so that its reciprocal is still a normal number.
__device__ float ExpMinus(float x) { return expf(x < -87.0f ? 87.0f : -x); }

__device__ float Silu(float x) { return x / (1.0f + ExpMinus(x)); }

// silu' = sigma + g sigma (1 - sigma)
__device__ float SiluSlope(float x) {
  const float e = ExpMinus(x);
  const float sigma = 1.0f / (1.0f + e);
  return sigma + x * sigma * (e * sigma);
}

// Returns the index in gated (n, 2, f) of the gate that belongs to element i of (n, f). The element that it multiplies is f
// elements later.
__device__ int64_t GateOf(int64_t i, int64_t f) { return i / f * 2 * f + i % f; }

template <class T, int kWidth>
struct SiluOf {
  using P = Pack<T, kWidth>;
  const T* gated;
  int64_t f;
  T* silu;

  __device__ void operator()(int64_t pack) const {
    auto gates = P::Load(gated + GateOf(pack * kWidth, f));
#pragma unroll
    for (T& gate : gates.at) gate = Silu(gate);
    gates.Store(silu + pack * kWidth);
  }
};

template <class T, int kWidth>
struct SiluGradient {
  using P = Pack<T, kWidth>;
  const T* gated;
  int64_t f;
  T* dgated;

  __device__ void operator()(int64_t pack) const {
    const int64_t at = GateOf(pack * kWidth, f);
    const auto gates = P::Load(gated + at);
    auto gradients = P::Load(dgated + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) gradients.at[i] = gradients.at[i] * SiluSlope(gates.at[i]);
    gradients.Store(dgated + at);
  }
};

template <class T, int kWidth>
struct Product {
  using P = Pack<T, kWidth>;
  const T* gated;
  const T* silu;
  int64_t f;
  T* y;

  __device__ void operator()(int64_t pack) const {
    const auto opened = P::Load(gated + GateOf(pack * kWidth, f) + f);
    auto values = P::Load(silu + pack * kWidth);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values.at[i] = values.at[i] * opened.at[i];
    values.Store(y + pack * kWidth);
  }
};

template <class T, int kWidth>
struct ProductGradient {
  using P = Pack<T, kWidth>;
  const T* gated;
  const T* silu;
  const T* dy;
  int64_t f;
  T* dgated;

  __device__ void operator()(int64_t pack) const {
    const int64_t at = GateOf(pack * kWidth, f);
    auto opened = P::Load(gated + at + f);
    auto open_by = P::Load(silu + pack * kWidth);
    const auto gradients = P::Load(dy + pack * kWidth);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      opened.at[i] = gradients.at[i] * opened.at[i];
      open_by.at[i] = gradients.at[i] * open_by.at[i];
    }
    opened.Store(dgated + at);
    open_by.Store(dgated + at + f);
  }
};

}  // namespace

template <class T>
void CudaOps<T>::SiluForward(const T* gated, int64_t n, int64_t f, T* silu) {
  if (!FitsPacks(f, gated, silu)) return ForEach(this->stream_, "silu", n * f, SiluOf<T, 1>{gated, f, silu});
  ForEach(this->stream_, "silu", n * f / kPackOf<T>, SiluOf<T, kPackOf<T>>{gated, f, silu});
}

template <class T>
void CudaOps<T>::SiluBackward(const T* gated, int64_t n, int64_t f, T* dgated) {
  constexpr char kName[] = "silu backward";
  if (!FitsPacks(f, gated, dgated)) return ForEach(this->stream_, kName, n * f, SiluGradient<T, 1>{gated, f, dgated});
  ForEach(this->stream_, kName, n * f / kPackOf<T>, SiluGradient<T, kPackOf<T>>{gated, f, dgated});
}

template <class T>
void CudaOps<T>::SwigluForward(const T* gated, const T* silu, int64_t n, int64_t f, T* y) {
  if (!FitsPacks(f, gated, silu, y)) {
    return ForEach(this->stream_, "swiglu", n * f, Product<T, 1>{gated, silu, f, y});
  }
  ForEach(this->stream_, "swiglu", n * f / kPackOf<T>, Product<T, kPackOf<T>>{gated, silu, f, y});
}

template <class T>
void CudaOps<T>::SwigluBackward(const T* gated, const T* silu, const T* dy, int64_t n, int64_t f, T* dgated) {
  constexpr char kName[] = "swiglu backward";
  if (!FitsPacks(f, gated, silu, dy, dgated)) {
    return ForEach(this->stream_, kName, n * f, ProductGradient<T, 1>{gated, silu, dy, f, dgated});
  }
  ForEach(this->stream_, kName, n * f / kPackOf<T>, ProductGradient<T, kPackOf<T>>{gated, silu, dy, f, dgated});
}

#define LYNX_INSTANTIATE(T)                                                          \
  template void CudaOps<T>::SiluForward(const T*, int64_t, int64_t, T*);             \
  template void CudaOps<T>::SiluBackward(const T*, int64_t, int64_t, T*);            \
  template void CudaOps<T>::SwigluForward(const T*, const T*, int64_t, int64_t, T*); \
  template void CudaOps<T>::SwigluBackward(const T*, const T*, const T*, int64_t, int64_t, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
