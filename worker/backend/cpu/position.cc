// The learned position embedding, and the dropout that follows it.
#include <algorithm>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/dropout.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

template <class T, class Sum>
LYNX_SIMD void Add(const T* values, int64_t count, Sum* x) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] + values[i];
}

template <class T>
LYNX_SIMD void AddAndDrop(const T* pos, const float* factors, int64_t count, T* x) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] = (x[i] + pos[i]) * factors[i];
}

template <class T>
LYNX_SIMD void DropAndSum(const float* factors, int64_t count, T* dx, float* dpos) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = dx[i] * factors[i];
    dx[i] = gradient;
    dpos[i] += gradient;
  }
}

// Divides the n rows into ranges within one sample, and these into runs of at most kChunk elements. Calls apply(sample, first
// element in the sample, count, first element in the rows) for each run.
template <class Apply>
void ForRuns(int64_t first_token, int64_t n, int64_t s, int64_t h, const Apply& apply) {
  for (int64_t row = 0; row < n;) {
    const int64_t token = first_token + row;
    const int64_t rows = std::min(n - row, s - token % s);
    for (int64_t at = 0; at < rows * h; at += DropoutStream::kChunk) {
      apply(token / s, token % s * h + at, std::min(DropoutStream::kChunk, rows * h - at), row * h + at);
    }
    row += rows;
  }
}

}  // namespace

template <class T>
void CpuOps<T>::PositionForward(T* x, const T* pos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) {
  DropoutStream dropout(key);
  ForRuns(key.first_token, n, s, h, [&](int64_t sample, int64_t element, int64_t count, int64_t at) {
    if (dropout.identity()) return Add(pos + element, count, x + at);
    AddAndDrop(pos + element, dropout.Factors(sample, element, count), count, x + at);
  });
}

template <class T>
void CpuOps<T>::PositionBackward(T* dx, float* dpos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) {
  DropoutStream dropout(key);
  ForRuns(key.first_token, n, s, h, [&](int64_t sample, int64_t element, int64_t count, int64_t at) {
    if (dropout.identity()) return Add(dx + at, count, dpos + element);
    DropAndSum(dropout.Factors(sample, element, count), count, dx + at, dpos + element);
  });
}

#define LYNX_INSTANTIATE(T)                                                                             \
  template void CpuOps<T>::PositionForward(T*, const T*, int64_t, int64_t, int64_t, const DropoutKey&); \
  template void CpuOps<T>::PositionBackward(T*, float*, int64_t, int64_t, int64_t, const DropoutKey&);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
