// Cross-entropy over a vocabulary that is split into shards (Megatron-LM, Shoeybi et al. 2019). Each shard computes three
// numbers for each token from its logits. The numbers of all shards together give the loss and the gradient. Each token has one
// block.
#include <algorithm>
#include <limits>

#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/cuda_backend.h"

namespace lynx::worker::cuda {
namespace {

constexpr int64_t kStats = 3;  // max, sum, target logit

__global__ void __launch_bounds__(kBlock)
    Stats(const float* logits, const int32_t* targets, int32_t first_row, int64_t v, int64_t valid, float* stats) {
  const int64_t token = blockIdx.x;
  logits += token * v;
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t i = threadIdx.x; i < valid; i += kBlock) max = Max::Of(max, logits[i]);
  max = ReduceBlock<Max>(max);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < valid; i += kBlock) sum += expf(logits[i] - max);
  sum = ReduceBlock<Sum>(sum);
  if (threadIdx.x != 0) return;
  const int64_t target = int64_t{targets[token]} - first_row;
  stats[token * kStats] = max;
  stats[token * kStats + 1] = targets[token] == kNoTarget ? 0.0f : sum;
  stats[token * kStats + 2] = target >= 0 && target < valid ? logits[target] : 0.0f;
}

// The denominator of one token's softmax over all shards: sum exp(logit - max).
struct Denominator {
  double max, sum;
};

// `stats` points to the token's entry of the first shard. The entry of the next shard is n entries later.
__device__ Denominator Combine(const float* stats, int64_t t, int64_t n) {
  Denominator all{-std::numeric_limits<double>::infinity(), 0};
  for (int64_t shard = 0; shard < t; ++shard) all.max = fmax(all.max, double{stats[shard * n * kStats]});
  for (int64_t shard = 0; shard < t; ++shard) {
    const float* const entry = stats + shard * n * kStats;
    all.sum += entry[1] * exp(entry[0] - all.max);
  }
  return all;
}

// Adds the sum over all tokens to the loss. It runs in a single block.
__global__ void __launch_bounds__(kBlock) Loss(const float* stats, int64_t t, int64_t n, double* loss) {
  double sum = 0;
  for (int64_t token = threadIdx.x; token < n; token += kBlock) {
    const float* const entry = stats + token * kStats;
    const Denominator all = Combine(entry, t, n);
    if (all.sum == 0) continue;  // the token has no target
    double target_logit = 0;
    for (int64_t shard = 0; shard < t; ++shard) target_logit += entry[shard * n * kStats + 2];
    sum += log(all.sum) + all.max - target_logit;
  }
  sum = ReduceBlock<Sum>(sum);
  if (threadIdx.x == 0) *loss += sum;
}

struct GradientOf {
  const float* stats;
  const int32_t* targets;
  int32_t first_row;
  int64_t t, n, v, valid;
  double scale;
};

// Computes the gradients of the tokens from `first` on; each block computes one token. A block processes a row in pieces: all
// threads read a piece before any thread writes it. This order matters only for row 0 in bfloat16, if dlogits and logits begin
// at the same address: only this row overwrites its own logits. LossBackward protects the other rows.
template <class T>
__global__ void __launch_bounds__(kBlock) Backward(GradientOf of, int64_t first, const float* logits, T* dlogits) {
  const int64_t token = first + blockIdx.x;
  const Denominator all = Combine(of.stats + token * kStats, of.t, of.n);
  const auto max = static_cast<float>(all.max);
  const float factor = of.targets[token] == kNoTarget ? 0.0f : static_cast<float>(of.scale / all.sum);
  const int64_t target = int64_t{of.targets[token]} - of.first_row;
  logits += token * of.v;
  dlogits += token * of.v;
  for (int64_t piece = 0; piece < of.v; piece += kBlock) {
    const int64_t i = piece + threadIdx.x;
    float gradient = 0;
    if (i < of.valid) {
      gradient = factor * expf(logits[i] - max);
      if (i == target) gradient -= static_cast<float>(of.scale);
    }
    __syncthreads();
    if (i < of.v) dlogits[i] = gradient;
  }
}

}  // namespace

void CudaBackend::LossStats(const float* logits, const int32_t* targets, int32_t first_row, int64_t n, int64_t v, int64_t valid,
                            float* stats) {
  stream_.Launch("loss stats", &Stats, dim3(BlocksOf(n, 1)), dim3(kBlock), logits, targets, first_row, v, valid, stats);
}

void CudaBackend::LossForward(const float* stats, int64_t t, int64_t n, double* sum) {
  stream_.Launch("loss", &Loss, dim3(1), dim3(kBlock), stats, t, n, sum);
}

// A bfloat16 row takes half the memory of its logits. If both begin at the same address, the rows [r, 2r) overwrite only the
// logits of the rows [r/2, r), which have been read before. So the rows are processed in ranges, and each range is twice as
// large as the one before.
template <class T>
void CudaOps<T>::LossBackward(const float* stats, const int32_t* targets, int32_t first_row, int64_t t, int64_t n, int64_t v,
                              int64_t valid, double scale, const float* logits, T* dlogits) {
  const GradientOf of{stats, targets, first_row, t, n, v, valid, scale};
  const bool shrinks_in_place = sizeof(T) < sizeof(float) && static_cast<const void*>(logits) == dlogits;
  for (int64_t first = 0; first < n;) {
    const int64_t rows = shrinks_in_place ? std::min(std::max<int64_t>(first, 1), n - first) : n;
    this->stream_.Launch("loss backward", &Backward<T>, dim3(BlocksOf(rows, 1)), dim3(kBlock), of, first, logits, dlogits);
    first += rows;
  }
}

#define LYNX_INSTANTIATE(T)                                                                                                 \
  template void CudaOps<T>::LossBackward(const float*, const int32_t*, int32_t, int64_t, int64_t, int64_t, int64_t, double, \
                                         const float*, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
