// SwiGLU in one op, multiplied by a gate of each row, and the gate: the sigmoid of a product of a token with one weight. A
// block works on one row where a sum over the row is needed.
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"
#include "worker/backend/cuda/experts/scores_product.cuh"

namespace lynx::worker::cuda {
namespace {

// Returns e^(-x), limited to e^87 so that its reciprocal is still a normal number.
__device__ float ExpMinus(float x) { return expf(x < -87.0f ? 87.0f : -x); }

template <class T, int kWidth>
struct Activation {
  using P = Pack<T, kWidth>;
  const T* gated;
  const float* gate;
  int64_t f;
  T* y;

  __device__ void operator()(int64_t pack) const {
    const int64_t at = pack * kWidth, row = at / f;
    const float open = gate == nullptr ? 1.0f : gate[row];
    auto values = P::Load(gated + at + row * f);
    const auto up = P::Load(gated + at + (row + 1) * f);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float x = values.at[i];
      values.at[i] = x / (1.0f + ExpMinus(x)) * up.at[i] * open;
    }
    values.Store(y + at);
  }
};

// silu' = sigma + x sigma (1 - sigma)
template <class T, int kWidth>
struct ActivationGradient {
  using P = Pack<T, kWidth>;
  const T* gated;
  const float* gate;
  const T* dy;
  int64_t f;
  T* dgated;

  __device__ void operator()(int64_t pack) const {
    const int64_t at = pack * kWidth, row = at / f, opened = at + row * f;
    const float open = gate == nullptr ? 1.0f : gate[row];
    auto gates = P::Load(gated + opened), up = P::Load(gated + opened + f);
    const auto gradients = P::Load(dy + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float x = gates.at[i], gradient = gradients.at[i];
      const float e = ExpMinus(x);
      const float sigma = 1.0f / (1.0f + e);
      const float silu = x * sigma;
      gates.at[i] = gradient * up.at[i] * open * (sigma + silu * (e * sigma));
      up.at[i] = gradient * silu * open;
    }
    gates.Store(dgated + opened);
    up.Store(dgated + opened + f);
  }
};

// dproduct (n) = the gradient of the product whose sigmoid the gate is
template <class T>
__global__ void __launch_bounds__(kBlock)
    GateGradient(const T* gated, const float* gate, const T* dy, int64_t f, float* dproduct) {
  const int64_t row = blockIdx.x;
  float dgate = 0;
  for (int64_t i = threadIdx.x; i < f; i += kBlock) {
    const float x = gated[2 * row * f + i], up = gated[(2 * row + 1) * f + i];
    dgate += float{dy[row * f + i]} * (x / (1.0f + ExpMinus(x)) * up);
  }
  dgate = ReduceBlock<Sum>(dgate);
  if (threadIdx.x == 0) dproduct[row] = dgate * gate[row] * (1.0f - gate[row]);
}

template <class T>
__global__ void __launch_bounds__(kBlock) Gate(const T* x, const T* w, int64_t h, float* gate) {
  const int64_t row = blockIdx.x;
  float product = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) product += float{x[row * h + i]} * float{w[i]};
  product = ReduceBlock<Sum>(product);
  if (threadIdx.x == 0) gate[row] = 1.0f / (1.0f + ExpMinus(product));
}

}  // namespace

template <class T>
void CudaOps<T>::GatedSwigluForward(const T* gated, const float* gate, int64_t n, int64_t f, T* y) {
  constexpr char kName[] = "gated swiglu";
  if (!FitsPacks(f, gated, y)) return ForEach(this->stream_, kName, n * f, Activation<T, 1>{gated, gate, f, y});
  ForEach(this->stream_, kName, n * f / kPackOf<T>, Activation<T, kPackOf<T>>{gated, gate, f, y});
}

template <class T>
void CudaOps<T>::GatedSwigluBackward(const T* gated, const float* gate, const T* dy, int64_t n, int64_t f, T* dgated,
                                     float* dproduct) {
  constexpr char kName[] = "gated swiglu backward";
  if (FitsPacks(f, gated, dy, dgated)) {
    ForEach(this->stream_, kName, n * f / kPackOf<T>, ActivationGradient<T, kPackOf<T>>{gated, gate, dy, f, dgated});
  } else {
    ForEach(this->stream_, kName, n * f, ActivationGradient<T, 1>{gated, gate, dy, f, dgated});
  }
  if (gate == nullptr) return;
  this->stream_.Launch(kName, &GateGradient<T>, dim3(BlocksOf(n, 1)), dim3(kBlock), gated, gate, dy, f, dproduct);
}

template <class T>
void CudaOps<T>::TokenGateForward(const T* x, const T* w, int64_t n, int64_t h, float* gate) {
  this->stream_.Launch("gate of tokens", &Gate<T>, dim3(BlocksOf(n, 1)), dim3(kBlock), x, w, h, gate);
}

template <class T>
void CudaOps<T>::TokenGateBackward(const float* dproduct, const T* w, int64_t n, int64_t h, T* dx) {
  AddScoresTimes(this->stream_, "gate of tokens backward", n, h, 1, dproduct, w, dx);
}

template <class T>
void CudaOps<T>::TokenGateWeight(const T* x, const float* dproduct, int64_t n, int64_t h, float* dw) {
  AddTransposedScoresTimes(this->stream_, "gate's weight", 1, h, n, dproduct, x, dw);
}

#define LYNX_INSTANTIATE(T)                                                                                      \
  template void CudaOps<T>::GatedSwigluForward(const T*, const float*, int64_t, int64_t, T*);                    \
  template void CudaOps<T>::GatedSwigluBackward(const T*, const float*, const T*, int64_t, int64_t, T*, float*); \
  template void CudaOps<T>::TokenGateForward(const T*, const T*, int64_t, int64_t, float*);                      \
  template void CudaOps<T>::TokenGateBackward(const float*, const T*, int64_t, int64_t, T*);                     \
  template void CudaOps<T>::TokenGateWeight(const T*, const float*, int64_t, int64_t, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
