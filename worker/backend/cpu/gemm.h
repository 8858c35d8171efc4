// Gemm is the single-precision matrix product of OpenBLAS, row-major. It is deterministic for given shapes and a given number
// of BLAS threads, because the order of each element's sum depends on nothing else. Thread-safe for distinct results.
#ifndef LYNX_WORKER_BACKEND_CPU_GEMM_H_
#define LYNX_WORKER_BACKEND_CPU_GEMM_H_

#include <cblas.h>

#include <cstdint>

#include "common/check.h"

namespace lynx::worker::cpu {

enum class Transpose { kNo, kYes };

// A matrix in memory. Each row begins `stride` elements after the row before it.
template <class T>
struct MatrixView {
  T* data;
  int64_t stride;
};

// c (m, n) = alpha op(a) (m, k) op(b) (k, n) + beta c. If beta is 0, the old content of c is not read.
inline void Gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, float alpha,
                 MatrixView<const float> a, MatrixView<const float> b, float beta, MatrixView<float> c) {
  if (m == 0 || n == 0) return;
  const auto fits = [](int64_t x) { return x >= 0 && x <= INT32_MAX; };
  LYNX_CHECK(fits(m) && fits(n) && fits(k) && fits(a.stride) && fits(b.stride) && fits(c.stride));
  cblas_sgemm(CblasRowMajor, transpose_a == Transpose::kYes ? CblasTrans : CblasNoTrans,
              transpose_b == Transpose::kYes ? CblasTrans : CblasNoTrans, static_cast<blasint>(m), static_cast<blasint>(n),
              static_cast<blasint>(k), alpha, a.data, static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride),
              beta, c.data, static_cast<blasint>(c.stride));
}

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_GEMM_H_
