// Cross-entropy over a vocabulary that is split into shards (Megatron-LM, Shoeybi et al. 2019). Each shard computes three
// numbers for each token from its logits. The numbers of all shards together give the loss and the gradient.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "worker/backend/cpu/conversion.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

constexpr int64_t kStats = 3;  // max, sum, target logit

LYNX_SIMD float Max(const float* x, int64_t count) {
  float max = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < count; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

LYNX_SIMD float SumExp(const float* x, int64_t count, float max) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += Exp(x[i] - max);
  return sum;
}

// y = factor e^(x - max)
LYNX_SIMD void ScaledExp(float max, float factor, const float* x, int64_t count, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = factor * Exp(x[i] - max);
}

// Computes the gradient of one token: factor e^(x - max), minus `scale` in the target's column.
struct RowGradient {
  float max, factor, scale;
  int64_t target;  // -1: no column of this shard is the target

  // dlogits (count) may be the same memory as logits.
  void Write(const float* logits, int64_t count, float* dlogits) const {
    ScaledExp(max, factor, logits, count, dlogits);
    if (target >= 0) dlogits[target] -= scale;
  }
  // Writes in chunks. So even if dlogits begins at the same address as logits, no write overlaps logits that must still be
  // read.
  void Write(const float* logits, int64_t count, Bfloat16* dlogits) const {
    std::array<float, 1024> chunk;
    const auto most = static_cast<int64_t>(chunk.size());
    for (int64_t at = 0; at < count; at += most) {
      const int64_t columns = std::min(most, count - at);
      ScaledExp(max, factor, logits + at, columns, chunk.data());
      if (target >= at && target < at + columns) chunk[static_cast<size_t>(target - at)] -= scale;
      RoundAll(chunk.data(), columns, dlogits + at);
    }
  }
};

// The denominator of one token's softmax over all shards: sum exp(logit - max).
struct Denominator {
  double max, sum;
};

// `stats` points to the token's entry of the first shard. The entry of the next shard is n entries later.
Denominator Combine(const float* stats, int64_t t, int64_t n) {
  Denominator all{-std::numeric_limits<double>::infinity(), 0};
  for (int64_t shard = 0; shard < t; ++shard) all.max = std::fmax(all.max, stats[shard * n * kStats]);
  for (int64_t shard = 0; shard < t; ++shard) {
    const float* entry = stats + shard * n * kStats;
    all.sum += entry[1] * std::exp(entry[0] - all.max);
  }
  return all;
}

}  // namespace

void CpuBackend::LossStats(const float* logits, const int32_t* targets, int32_t first_row, int64_t n, int64_t v, int64_t valid,
                           float* stats) {
  for (int64_t token = 0; token < n; ++token, logits += v, stats += kStats) {
    const int64_t target = int64_t{targets[token]} - first_row;
    stats[0] = Max(logits, valid);
    stats[1] = targets[token] == kNoTarget ? 0.0f : SumExp(logits, valid, stats[0]);
    stats[2] = target >= 0 && target < valid ? logits[target] : 0.0f;
  }
}

void CpuBackend::LossForward(const float* stats, int64_t t, int64_t n, double* sum) {
  double loss = 0;
  for (int64_t token = 0; token < n; ++token, stats += kStats) {
    const Denominator all = Combine(stats, t, n);
    if (all.sum == 0) continue;  // the token has no target
    double target_logit = 0;
    for (int64_t shard = 0; shard < t; ++shard) target_logit += stats[shard * n * kStats + 2];
    loss += std::log(all.sum) + all.max - target_logit;
  }
  *sum += loss;
}

template <class T>
void CpuOps<T>::LossBackward(const float* stats, const int32_t* targets, int32_t first_row, int64_t t, int64_t n, int64_t v,
                             int64_t valid, double scale, const float* logits, T* dlogits) {
  for (int64_t token = 0; token < n; ++token, logits += v, dlogits += v, stats += kStats) {
    const Denominator all = Combine(stats, t, n);
    const int64_t target = int64_t{targets[token]} - first_row;
    const RowGradient gradient{.max = static_cast<float>(all.max),
                               .factor = targets[token] == kNoTarget ? 0.0f : static_cast<float>(scale / all.sum),
                               .scale = static_cast<float>(scale),
                               .target = target >= 0 && target < valid ? target : -1};
    gradient.Write(logits, valid, dlogits);
    std::fill(dlogits + valid, dlogits + v, T(0.0f));
  }
}

#define LYNX_INSTANTIATE(T)                                                                                                \
  template void CpuOps<T>::LossBackward(const float*, const int32_t*, int32_t, int64_t, int64_t, int64_t, int64_t, double, \
                                        const float*, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
