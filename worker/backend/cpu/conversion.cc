#include "worker/backend/cpu/conversion.h"

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {

LYNX_SIMD void WidenAll(const Bfloat16* from, int64_t count, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

LYNX_SIMD void RoundAll(const float* from, int64_t count, Bfloat16* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

MatrixView<const float> Widened(MatrixView<const Bfloat16> matrix, int64_t rows, int64_t columns, float* panel) {
  if (matrix.stride == columns) {
    WidenAll(matrix.data, rows * columns, panel);
  } else {
    for (int64_t row = 0; row < rows; ++row) {
      WidenAll(matrix.data + row * matrix.stride, columns, panel + row * columns);
    }
  }
  return {panel, columns};
}

void Store(MatrixView<float> accumulator, int64_t rows, int64_t columns, MatrixView<Bfloat16> to) {
  for (int64_t row = 0; row < rows; ++row) {
    RoundAll(accumulator.data + row * accumulator.stride, columns, to.data + row * to.stride);
  }
}

void CpuBackend::Round(const float* from, int64_t count, Bfloat16* to) { RoundAll(from, count, to); }

}  // namespace lynx::worker::cpu
