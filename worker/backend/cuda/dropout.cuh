// Dropout's decisions within a kernel. They are drawn again each time they are needed; dropout_words.h defines them.
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
    const PhiloxBlock words =
        DropoutWords(key, static_cast<uint64_t>(first_sample + sample), static_cast<uint64_t>(element / 4));
    return words[element % 4] >= threshold ? keep_factor : 0.0f;
  }
};

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_DROPOUT_CUH_
