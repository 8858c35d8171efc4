// Rotary positions (Su et al. 2021). The elements i and i + d/2 of a head, a pair, turn by p * 10000^(-2i/d) at
// position p. A thread has one pair's angle at one position, found in double, and turns that pair in every head and
// sample.
#include "common/check.h"
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::cuda {
namespace {

constexpr double kBase = 10000;

template <class T>
struct Turn {
  T* qkv;
  int64_t b, s, heads, d, width;
  double sign;

  __device__ void operator()(int64_t at) const {
    const int64_t half = d / 2;
    const int64_t position = at / half, pair = at % half;
    const double slope = pow(kBase, -2.0 * static_cast<double>(pair) / static_cast<double>(d));
    const double angle = sign * static_cast<double>(position) * slope;
    const auto cosine = static_cast<float>(cos(angle)), sine = static_cast<float>(sin(angle));
    for (int64_t sample = 0; sample < b; ++sample) {
      T* x = qkv + (sample * s + position) * width + pair;
      for (int64_t head = 0; head < heads; ++head, x += d) {
        const float low = x[0], high = x[half];
        x[0] = low * cosine - high * sine;
        x[half] = high * cosine + low * sine;
      }
    }
  }
};

template <class T>
void TurnAll(Stream& stream, const AttentionShape& shape, double sign, T* qkv) {
  LYNX_CHECK(shape.d % 2 == 0);
  ForEach(stream, "rotary positions", shape.s * (shape.d / 2),
          Turn<T>{qkv, shape.b, shape.s, shape.a + shape.k, shape.d, shape.width(), sign});
}

}  // namespace

template <class T>
void CudaOps<T>::RopeForward(const AttentionShape& shape, T* qkv) {
  TurnAll(this->stream_, shape, 1, qkv);
}

template <class T>
void CudaOps<T>::RopeBackward(const AttentionShape& shape, T* dqkv) {
  TurnAll(this->stream_, shape, -1, dqkv);
}

#define LYNX_INSTANTIATE(T)                                         \
  template void CudaOps<T>::RopeForward(const AttentionShape&, T*); \
  template void CudaOps<T>::RopeBackward(const AttentionShape&, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::cuda
