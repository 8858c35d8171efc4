// Ops that fill and round memory.
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

// Rounds packs of 8 elements, which it reads with two accesses, or single elements.
template <int kWidth>
struct RoundEach {
  static constexpr int kRead = kWidth < kPackOf<float> ? kWidth : kPackOf<float>;
  const float* from;
  Bfloat16* to;

  __device__ void operator()(int64_t pack) const {
    Pack<Bfloat16, kWidth> rounded;
#pragma unroll
    for (int first = 0; first < kWidth; first += kRead) {
      const auto values = Pack<float, kRead>::Load(from + pack * kWidth + first);
#pragma unroll
      for (int i = 0; i < kRead; ++i) rounded.at[first + i] = values.at[i];
    }
    rounded.Store(to + pack * kWidth);
  }
};

template <int kWidth>
struct FillEach {
  float* x;
  float value;

  __device__ void operator()(int64_t pack) const {
    Pack<float, kWidth> values;
#pragma unroll
    for (float& each : values.at) each = value;
    values.Store(x + pack * kWidth);
  }
};

}  // namespace

// If the addresses fit, all elements but the last few are processed in packs.
void CudaBackend::Round(const float* from, int64_t count, Bfloat16* to) {
  constexpr char kName[] = "rounding to bfloat16";
  constexpr int kWidth = kPackOf<Bfloat16>;
  const int64_t packs = FitsPacks(0, from) && FitsPacks(0, to) ? count / kWidth : 0, packed = packs * kWidth;
  ForEach(stream_, kName, packs, RoundEach<kWidth>{from, to});
  ForEach(stream_, kName, count - packed, RoundEach<1>{from + packed, to + packed});
}

void CudaBackend::Fill(float* x, int64_t count, float value) {
  constexpr int kWidth = kPackOf<float>;
  const int64_t packs = FitsPacks(0, x) ? count / kWidth : 0, packed = packs * kWidth;
  ForEach(stream_, "fill", packs, FillEach<kWidth>{x, value});
  ForEach(stream_, "fill", count - packed, FillEach<1>{x + packed, value});
}

}  // namespace lynx::worker::cuda
