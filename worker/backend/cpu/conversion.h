// Converts between bfloat16 in memory and fp32, which matrix products work on. Data that is fp32 already is used without a
// copy. So the code of an op is the same for both types. Pure; thread-safe for distinct results.
#ifndef LYNX_WORKER_BACKEND_CPU_CONVERSION_H_
#define LYNX_WORKER_BACKEND_CPU_CONVERSION_H_

#include <cstdint>

#include "common/bfloat16.h"
#include "worker/backend/cpu/gemm.h"

namespace lynx::worker::cpu {

void WidenAll(const Bfloat16* from, int64_t count, float* to);
void RoundAll(const float* from, int64_t count, Bfloat16* to);

// Returns the matrix (rows, columns) in fp32: the matrix itself, or a copy of it in `panel` (rows, columns).
inline MatrixView<const float> Widened(MatrixView<const float> matrix, int64_t, int64_t, float*) { return matrix; }
MatrixView<const float> Widened(MatrixView<const Bfloat16> matrix, int64_t rows, int64_t columns, float* panel);

// Returns the memory in which a matrix with `columns` columns is computed in fp32: the matrix itself, or `panel`. Call Store
// afterwards, which rounds the result.
inline MatrixView<float> Accumulator(MatrixView<float> matrix, int64_t, float*) { return matrix; }
inline MatrixView<float> Accumulator(MatrixView<Bfloat16>, int64_t columns, float* panel) { return {panel, columns}; }

// Sets `to` (rows, columns) to the rounded values of its accumulator.
inline void Store(MatrixView<float>, int64_t, int64_t, MatrixView<float>) {}
void Store(MatrixView<float> accumulator, int64_t rows, int64_t columns, MatrixView<Bfloat16> to);

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_CONVERSION_H_
