// Learned position embedding and the dropout after it.
#include <algorithm>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/dropout.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::cpu {
namespace {

LYNX_SIMD void Add(const float* pos, int64_t count, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] += pos[i];
}

LYNX_SIMD void AddAndDrop(const float* pos, const float* factors, int64_t count, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] = (x[i] + pos[i]) * factors[i];
}

LYNX_SIMD void DropAndSum(const float* factors, int64_t count, float* dx, float* dpos) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    dx[i] *= factors[i];
    dpos[i] += dx[i];
  }
}

}  // namespace

void CpuBackend::PositionForward(float* x, const float* pos, int64_t b, int64_t s, int64_t h, const DropoutKey& key) {
  DropoutStream dropout(key);
  const int64_t per_sample = s * h;
  for (int64_t sample = 0; sample < b; ++sample) {
    float* out = x + sample * per_sample;
    if (dropout.identity()) {
      Add(pos, per_sample, out);
      continue;
    }
    for (int64_t at = 0; at < per_sample; at += DropoutStream::kChunk) {
      const int64_t count = std::min(DropoutStream::kChunk, per_sample - at);
      AddAndDrop(pos + at, dropout.Factors(sample, at, count), count, out + at);
    }
  }
}

void CpuBackend::PositionBackward(float* dx, float* dpos, int64_t b, int64_t s, int64_t h, const DropoutKey& key) {
  DropoutStream dropout(key);
  const int64_t per_sample = s * h;
  for (int64_t sample = 0; sample < b; ++sample) {
    float* gradient = dx + sample * per_sample;
    if (dropout.identity()) {
      Add(gradient, per_sample, dpos);
      continue;
    }
    for (int64_t at = 0; at < per_sample; at += DropoutStream::kChunk) {
      const int64_t count = std::min(DropoutStream::kChunk, per_sample - at);
      DropAndSum(dropout.Factors(sample, at, count), count, gradient + at, dpos + at);
    }
  }
}

}  // namespace lynx::cpu
