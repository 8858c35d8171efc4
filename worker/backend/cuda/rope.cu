// Rotary position embedding (Su et al. 2021). The elements i and i + `pairs` of a head are pair i. At position p this pair is
// rotated by the angle p * slopes[i] and multiplied by `scale`. A thread computes one pair's angle at one position, in double.
// Then it rotates this pair in every head and every sample.
#include "common/check.h"
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

template <class T>
struct Turn {
  T* qkv;
  int64_t b, s, heads, d, width;
  double sign;
  RotaryTable rotary;

  __device__ void operator()(int64_t at) const {
    const int64_t half = rotary.pairs;
    const int64_t position = at / half, pair = at % half;
    const double angle = sign * static_cast<double>(position) * rotary.slopes[pair];
    const auto cosine = static_cast<float>(cos(angle) * rotary.scale), sine = static_cast<float>(sin(angle) * rotary.scale);
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
void TurnAll(Stream& stream, const AttentionShape& shape, const RotaryTable& rotary, double sign, T* qkv) {
  LYNX_CHECK(rotary.pairs >= 1 && rotary.pairs <= RotaryTable::kMaxPairs && 2 * rotary.pairs <= shape.d);
  ForEach(stream, "rotary positions", shape.s * rotary.pairs,
          Turn<T>{qkv, shape.b, shape.s, shape.a + shape.k, shape.d, shape.width(), sign, rotary});
}

}  // namespace

template <class T>
void CudaOps<T>::RopeForward(const AttentionShape& shape, const RotaryTable& rotary, T* qkv) {
  TurnAll(this->stream_, shape, rotary, 1, qkv);
}

template <class T>
void CudaOps<T>::RopeBackward(const AttentionShape& shape, const RotaryTable& rotary, T* dqkv) {
  TurnAll(this->stream_, shape, rotary, -1, dqkv);
}

#define LYNX_INSTANTIATE(T)                                                             \
  template void CudaOps<T>::RopeForward(const AttentionShape&, const RotaryTable&, T*); \
  template void CudaOps<T>::RopeBackward(const AttentionShape&, const RotaryTable&, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
