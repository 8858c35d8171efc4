// Conversion between bfloat16 in memory and the fp32 that matrix products work on. Data that is fp32 already is used in place,
// so that an op is written once for both types. Pure; thread-safe for distinct results.
#ifndef LYNX_WORKER_BACKEND_CPU_CONVERSION_H_
#define LYNX_WORKER_BACKEND_CPU_CONVERSION_H_

#include <cstdint>

#include "common/bfloat16.h"
#include "worker/backend/cpu/gemm.h"

namespace lynx::worker::cpu {

void WidenAll(const Bfloat16* from, int64_t count, float* to);
void RoundAll(const float* from, int64_t count, Bfloat16* to);

// The matrix (rows, columns) in fp32: the matrix itself, or a copy of it in `panel` (rows, columns).
inline MatrixView<const float> Widened(MatrixView<const float> matrix, int64_t, int64_t, float*) { return matrix; }
MatrixView<const float> Widened(MatrixView<const Bfloat16> matrix, int64_t rows, int64_t columns, float* panel);

// The memory in which a matrix with `columns` columns is computed in fp32: the matrix itself, or `panel`. Store then rounds the
// result.
inline MatrixView<float> Accumulator(MatrixView<float> matrix, int64_t, float*) { return matrix; }
inline MatrixView<float> Accumulator(MatrixView<Bfloat16>, int64_t columns, float* panel) { return {panel, columns}; }

// `to` (rows, columns) = its accumulator, rounded.
inline void Store(MatrixView<float>, int64_t, int64_t, MatrixView<float>) {}
void Store(MatrixView<float> accumulator, int64_t rows, int64_t columns, MatrixView<Bfloat16> to);

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_CONVERSION_H_
