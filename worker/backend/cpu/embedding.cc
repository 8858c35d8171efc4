// The token embedding of one vocabulary shard. The forward pass gathers rows; the backward pass adds rows to their places.
#include <cstring>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

template <class T>
LYNX_SIMD void AddRow(const T* row, int64_t h, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < h; ++i) sum[i] += row[i];
}

}  // namespace

template <class T>
void CpuOps<T>::EmbeddingForward(const int32_t* tokens, const T* tok, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                 T* out) {
  const size_t row_bytes = static_cast<size_t>(h) * sizeof(T);
  for (int64_t token = 0; token < n; ++token) {
    const int64_t row = int64_t{tokens[token]} - first_row;
    if (row >= 0 && row < v) {
      std::memcpy(out + token * h, tok + row * h, row_bytes);
    } else {
      std::memset(out + token * h, 0, row_bytes);
    }
  }
}

template <class T>
void CpuOps<T>::EmbeddingBackward(const int32_t* tokens, const T* dout, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                  float* dtok) {
  for (int64_t token = 0; token < n; ++token) {
    const int64_t row = int64_t{tokens[token]} - first_row;
    if (row >= 0 && row < v) AddRow(dout + token * h, h, dtok + row * h);
  }
}

#define LYNX_INSTANTIATE(T)                                                                                    \
  template void CpuOps<T>::EmbeddingForward(const int32_t*, const T*, int32_t, int64_t, int64_t, int64_t, T*); \
  template void CpuOps<T>::EmbeddingBackward(const int32_t*, const T*, int32_t, int64_t, int64_t, int64_t, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
