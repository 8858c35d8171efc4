// Token embedding of one vocabulary shard: a gather of rows and its transpose, a scatter.
#include <cstring>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::cpu {
namespace {

LYNX_SIMD void AddRow(const float* row, int64_t h, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < h; ++i) sum[i] += row[i];
}

}  // namespace

void CpuBackend::EmbeddingForward(const int32_t* tokens, const float* tok, int32_t first_row, int64_t n, int64_t h,
                                  int64_t v, float* out) {
  const size_t row_bytes = static_cast<size_t>(h) * sizeof(float);
  for (int64_t token = 0; token < n; ++token) {
    const int64_t row = int64_t{tokens[token]} - first_row;
    if (row >= 0 && row < v) {
      std::memcpy(out + token * h, tok + row * h, row_bytes);
    } else {
      std::memset(out + token * h, 0, row_bytes);
    }
  }
}

void CpuBackend::EmbeddingBackward(const int32_t* tokens, const float* dout, int32_t first_row, int64_t n, int64_t h,
                                   int64_t v, float* dtok) {
  for (int64_t token = 0; token < n; ++token) {
    const int64_t row = int64_t{tokens[token]} - first_row;
    if (row >= 0 && row < v) AddRow(dout + token * h, h, dtok + row * h);
  }
}

}  // namespace lynx::cpu
