// The end of a transformer block: bias, dropout and residual in one loop; its gradient; and the gradient of the bias.
#include <algorithm>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/dropout.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

template <class T>
LYNX_SIMD void AddBiasAndResidual(const T* residual, const T* bias, int64_t count, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = residual[i] + (y[i] + bias[i]);
}

template <class T>
LYNX_SIMD void AddResidual(const T* residual, int64_t count, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = y[i] + residual[i];
}

template <class T>
LYNX_SIMD void DropAndAddResidual(const T* residual, const float* factors, int64_t count, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = residual[i] + y[i] * factors[i];
}

template <class T>
LYNX_SIMD void AddBiasDropAndAddResidual(const T* residual, const T* bias, const float* factors, int64_t count, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = residual[i] + (y[i] + bias[i]) * factors[i];
}

template <class T>
LYNX_SIMD void Multiply(const T* x, const float* factors, int64_t count, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factors[i];
}

template <class T>
LYNX_SIMD void AddRows(const T* rows, int64_t n, int64_t h, float* sums) {
  for (int64_t row = 0; row < n; ++row, rows += h) {
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) sums[i] += rows[i];
  }
}

// Calls apply(first column, count, factors) for each chunk of a token's row.
template <class Apply>
void ForFactors(DropoutStream& dropout, int64_t token, int64_t s, int64_t h, const Apply& apply) {
  for (int64_t column = 0; column < h; column += DropoutStream::kChunk) {
    const int64_t count = std::min(DropoutStream::kChunk, h - column);
    apply(column, count, dropout.Factors(token / s, token % s * h + column, count));
  }
}

}  // namespace

template <class T>
void CpuOps<T>::BiasDropoutAddForward(const T* residual, const T* bias, int64_t s, int64_t n, int64_t h, const DropoutKey& key,
                                      T* y) {
  DropoutStream dropout(key);
  if (dropout.identity() && bias == nullptr) return AddResidual(residual, n * h, y);
  for (int64_t row = 0; row < n; ++row, residual += h, y += h) {
    if (dropout.identity()) {
      AddBiasAndResidual(residual, bias, h, y);
      continue;
    }
    ForFactors(dropout, key.first_token + row, s, h, [&](int64_t column, int64_t count, const float* factors) {
      if (bias == nullptr) return DropAndAddResidual(residual + column, factors, count, y + column);
      AddBiasDropAndAddResidual(residual + column, bias + column, factors, count, y + column);
    });
  }
}

template <class T>
void CpuOps<T>::BiasDropoutAddBackward(const T* dout, int64_t s, int64_t n, int64_t h, const DropoutKey& key, T* dy) {
  DropoutStream dropout(key);
  if (dropout.identity()) {
    std::copy_n(dout, n * h, dy);
    return;
  }
  for (int64_t row = 0; row < n; ++row, dout += h, dy += h) {
    ForFactors(dropout, key.first_token + row, s, h, [&](int64_t column, int64_t count, const float* factors) {
      Multiply(dout + column, factors, count, dy + column);
    });
  }
}

template <class T>
void CpuOps<T>::BiasGradient(const T* dy, int64_t n, int64_t h, float* dbias) {
  AddRows(dy, n, h, dbias);
}

#define LYNX_INSTANTIATE(T)                                                                                             \
  template void CpuOps<T>::BiasDropoutAddForward(const T*, const T*, int64_t, int64_t, int64_t, const DropoutKey&, T*); \
  template void CpuOps<T>::BiasDropoutAddBackward(const T*, int64_t, int64_t, int64_t, const DropoutKey&, T*);          \
  template void CpuOps<T>::BiasGradient(const T*, int64_t, int64_t, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
