// Rotary position embedding (Su et al. 2021). The elements i and i + `pairs` of a head are pair i. At position p this pair is
// rotated by the angle p * slopes[i] and multiplied by `scale`. A block has one position. It computes the angles of all pairs
// once, in double, and then rotates all heads of all samples at this position.
#include "common/check.h"
#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

struct TurnOf {
  int64_t b, s, heads, d, width;  // `heads` queries' and keys' heads, of `width` elements together with the values' heads
  double sign;
  RotaryTable rotary;
};

// Each thread rotates kWidth neighbouring pairs of a head at once.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock) Turn(TurnOf of, T* qkv) {
  using P = Pack<T, kWidth>;
  __shared__ float cosines[RotaryTable::kMaxPairs], sines[RotaryTable::kMaxPairs];
  const int64_t position = blockIdx.x, half = of.rotary.pairs;
  for (int64_t pair = threadIdx.x; pair < half; pair += kBlock) {
    const double angle = of.sign * static_cast<double>(position) * of.rotary.slopes[pair];
    cosines[pair] = static_cast<float>(cos(angle) * of.rotary.scale);
    sines[pair] = static_cast<float>(sin(angle) * of.rotary.scale);
  }
  __syncthreads();
  const int64_t packs = half / kWidth, count = of.b * of.heads * packs;
  for (int64_t at = threadIdx.x; at < count; at += kBlock) {
    const int64_t row = at / packs, pair = at % packs * kWidth, sample = row / of.heads, head = row % of.heads;
    T* const x = qkv + (sample * of.s + position) * of.width + head * of.d + pair;
    auto lows = P::Load(x), highs = P::Load(x + half);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float low = lows.at[i], high = highs.at[i], cosine = cosines[pair + i], sine = sines[pair + i];
      lows.at[i] = low * cosine - high * sine;
      highs.at[i] = high * cosine + low * sine;
    }
    lows.Store(x);
    highs.Store(x + half);
  }
}

template <class T>
void TurnAll(Stream& stream, const AttentionShape& shape, const RotaryTable& rotary, double sign, T* qkv) {
  LYNX_CHECK(rotary.pairs >= 1 && rotary.pairs <= RotaryTable::kMaxPairs && 2 * rotary.pairs <= shape.d);
  const TurnOf of{shape.b, shape.s, shape.a + shape.k, shape.d, shape.width(), sign, rotary};
  // Every pack is aligned if rows and heads are, and the halves of the rotated part. Values may have a size of their own.
  const bool packed = FitsPacks(rotary.pairs, qkv) && FitsPacks(shape.d, qkv) && FitsPacks(shape.width(), qkv);
  stream.Launch("rotary positions", packed ? &Turn<T, kPackOf<T>> : &Turn<T, 1>, dim3(BlocksOf(shape.s, 1)), dim3(kBlock), of,
                qkv);
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
