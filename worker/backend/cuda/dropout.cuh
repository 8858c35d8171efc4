// Dropout's decisions within a kernel, and the places of elements on which they depend. The decisions are drawn again each time
// they are needed; dropout_words.h defines them.
#ifndef LYNX_WORKER_BACKEND_CUDA_DROPOUT_CUH_
#define LYNX_WORKER_BACKEND_CUDA_DROPOUT_CUH_

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "common/check.h"
#include "worker/backend/dropout_words.h"

namespace lynx::worker::cuda {

// A DropoutKey in the form that kernels take by value.
struct Dropout {
  std::array<uint32_t, 2> key;
  int64_t first_sample;
  uint32_t threshold;  // 0: nothing is dropped
  float keep_factor;

  static Dropout Of(const DropoutKey& key) {
    LYNX_CHECK(key.rate >= 0 && key.rate < 1);
    return {DropoutPhiloxKey(key), key.first_sample, DropoutThreshold(key.rate), static_cast<float>(1.0 / (1.0 - key.rate))};
  }

  // Computes the factors, 0 or 1/(1-rate), of the elements [4 block, 4 block + 4) of sample `sample` of the microbatch.
  __device__ void Factors(int64_t sample, int64_t block, float factors[4]) const {
    const PhiloxBlock words = DropoutWords(key, static_cast<uint64_t>(first_sample + sample), static_cast<uint64_t>(block));
#pragma unroll
    for (int i = 0; i < 4; ++i) factors[i] = words[i] >= threshold ? keep_factor : 0.0f;
  }

  __device__ float Factor(int64_t sample, int64_t element) const {
    if (threshold == 0) return 1.0f;
    return Keeps(sample, element) ? keep_factor : 0.0f;
  }

  // Returns true if the element is kept. Like KeepsFour, it draws also if the threshold is 0.
  __device__ bool Keeps(int64_t sample, int64_t element) const {
    return (KeepsFour(sample, element / 4) >> (element % 4) & 1) != 0;
  }

  // Returns four bits: bit i is 1 if element 4 block + i is kept.
  __device__ uint32_t KeepsFour(int64_t sample, int64_t block) const {
    const PhiloxBlock words = DropoutWords(key, static_cast<uint64_t>(first_sample + sample), static_cast<uint64_t>(block));
    uint32_t kept = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) kept |= uint32_t{words[i] >= threshold} << i;
    return kept;
  }
};

// Where a pack of kWidth consecutive elements of a tensor (tokens, h) is: its column, its sample, and the number of its first
// element in the sample. Dropout derives its random numbers from the last two. kWidth divides h; it is 1 or a multiple of 4.
template <int kWidth>
struct Place {
  int64_t column, sample, element;

  __device__ Place(int64_t at, int64_t first_token, int64_t s, int64_t h) : column(at % h) {
    const int64_t token = first_token + at / h;
    sample = token / s;
    element = token % s * h + column;
  }
  __device__ void Factors(const Dropout& dropout, float factors[kWidth]) const {
    if constexpr (kWidth == 1) {
      factors[0] = dropout.Factor(sample, element);
    } else if (dropout.threshold == 0) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) factors[i] = 1.0f;
    } else {
      static_assert(kWidth % 4 == 0);
#pragma unroll
      for (int i = 0; i < kWidth; i += 4) dropout.Factors(sample, (element + i) / 4, factors + i);
    }
  }
};

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_DROPOUT_CUH_
