// Cross-entropy over a vocabulary that is split into shards (Megatron-LM, Shoeybi et al. 2019). Each shard computes three
// numbers for each token from its logits. The numbers of all shards together give the loss and the gradient. Each token has one
// block.
//
// A row of logits may begin at any element, because the number of columns may be odd. So the elements of all rows together are
// divided into groups of one pack each, and a thread works on whole groups. The first and the last group of a row may belong
// to a neighbouring row too; their elements are read and written one by one. So a thread has the same elements at every
// address.
#include <algorithm>
#include <limits>

#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/cuda_backend.h"

namespace lynx::worker::cuda {
namespace {

constexpr int64_t kStats = 3;  // max, sum, target logit

// A group of kWidth elements of a tensor, of which those in [begin, end) belong to the row that is worked on. kPacked: the
// tensor's address fits packs.
template <class T, int kWidth, bool kPacked>
struct Group {
  using P = Pack<T, kWidth>;

  // Reads the group. Elements that are not of the row become `otherwise`.
  __device__ static P Load(const T* tensor, int64_t at, int64_t begin, int64_t end, float otherwise) {
    if (kPacked && at >= begin && at + kWidth <= end) return P::Load(tensor + at);
    P values;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values.at[i] = otherwise;
      if (at + i >= begin && at + i < end) values.at[i] = tensor[at + i];
    }
    return values;
  }
  // Writes those elements of the group that are of the row.
  __device__ static void Store(const P& values, int64_t at, int64_t begin, int64_t end, T* tensor) {
    if (kPacked && at >= begin && at + kWidth <= end) return values.Store(tensor + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (at + i >= begin && at + i < end) tensor[at + i] = values.at[i];
    }
  }
};

// The largest of some logits, and the sum of exp(logit - max) over them.
struct MaxAndSum {
  float max = -std::numeric_limits<float>::infinity(), sum = 0;

  // Makes `larger` the maximum. While all logits are minus infinity, their differences to it count as minus infinity.
  __device__ void Raise(float larger) {
    sum *= expf(max - Base(larger));
    max = larger;
  }
  __device__ void Add(float logit) { sum += expf(logit - Base(max)); }

 private:
  __device__ static float Base(float max) { return max == -std::numeric_limits<float>::infinity() ? 0.0f : max; }
};

// Reads each logit once. A thread reads several groups before it uses them, so that it waits for all of them together.
template <bool kPacked>
__global__ void __launch_bounds__(kBlock)
    Stats(const float* logits, const int32_t* targets, int32_t first_row, int64_t v, int64_t valid, float* stats) {
  constexpr int kWidth = kPackOf<float>, kGroups = 4;
  using G = Group<float, kWidth, kPacked>;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const int64_t token = blockIdx.x, begin = token * v, end = begin + valid;
  MaxAndSum mine;
  for (int64_t at = begin / kWidth * kWidth + threadIdx.x * kWidth; at < end; at += kGroups * kBlock * kWidth) {
    Pack<float, kWidth> groups[kGroups];
    constexpr int64_t kNext = kBlock * kWidth;  // the distance to this thread's next group
    if (kPacked && at >= begin && at + (kGroups - 1) * kNext + kWidth <= end) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) groups[group] = Pack<float, kWidth>::Load(logits + at + group * kNext);
    } else {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) groups[group] = G::Load(logits, at + group * kNext, begin, end, kNone);
    }
    float max = mine.max;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) max = Max::Of(max, groups[group].at[i]);
    }
    mine.Raise(max);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) mine.Add(groups[group].at[i]);
    }
  }
  mine.Raise(ReduceBlock<Max>(mine.max));
  const float sum = ReduceBlock<Sum>(mine.sum);
  if (threadIdx.x != 0) return;
  const int64_t target = int64_t{targets[token]} - first_row;
  stats[token * kStats] = mine.max;
  stats[token * kStats + 1] = targets[token] == kNoTarget ? 0.0f : sum;
  stats[token * kStats + 2] = target >= 0 && target < valid ? logits[begin + target] : 0.0f;
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
  bool in_place;  // dlogits are smaller elements than the logits and begin at the same address
};

// Computes the gradients of the tokens from `first` on; each block computes one token. A block processes a row in pieces of one
// group for each thread. In place, row 0 overwrites its own logits: there, all threads read a piece before any thread writes
// it. No other row does; LossBackward protects the rows from each other.
template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock) Backward(GradientOf of, int64_t first, const float* logits, T* dlogits) {
  constexpr int kWidth = kPackOf<T>, kRead = kPackOf<float>;
  const int64_t token = first + blockIdx.x;
  const Denominator all = Combine(of.stats + token * kStats, of.t, of.n);
  const auto max = static_cast<float>(all.max);
  const float factor = of.targets[token] == kNoTarget ? 0.0f : static_cast<float>(of.scale / all.sum);
  const int64_t begin = token * of.v, end = begin + of.v, valid_end = begin + of.valid;
  const int64_t target = begin + int64_t{of.targets[token]} - of.first_row;
  for (int64_t piece = begin / kWidth * kWidth; piece < end; piece += kBlock * kWidth) {
    const int64_t at = piece + threadIdx.x * kWidth;
    Pack<T, kWidth> gradients;
#pragma unroll
    for (int read = 0; read < kWidth; read += kRead) {
      const auto values = Group<float, kRead, kPacked>::Load(logits, at + read, begin, valid_end, max);
#pragma unroll
      for (int i = 0; i < kRead; ++i) {
        const int64_t element = at + read + i;
        float gradient = element < valid_end ? factor * expf(values.at[i] - max) : 0.0f;
        if (element == target && element < valid_end) gradient -= static_cast<float>(of.scale);
        gradients.at[read + i] = gradient;
      }
    }
    if (of.in_place && token == 0) __syncthreads();
    Group<T, kWidth, kPacked>::Store(gradients, at, begin, end, dlogits);
  }
}

}  // namespace

void CudaBackend::LossStats(const float* logits, const int32_t* targets, int32_t first_row, int64_t n, int64_t v, int64_t valid,
                            float* stats) {
  stream_.Launch("loss stats", FitsPacks(0, logits) ? &Stats<true> : &Stats<false>, dim3(BlocksOf(n, 1)), dim3(kBlock), logits,
                 targets, first_row, v, valid, stats);
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
  const bool in_place = sizeof(T) < sizeof(float) && static_cast<const void*>(logits) == dlogits;
  const bool packed = FitsPacks(0, logits) && FitsPacks(0, dlogits);
  const GradientOf of{stats, targets, first_row, t, n, v, valid, scale, in_place};
  for (int64_t first = 0; first < n;) {
    const int64_t rows = in_place ? std::min(std::max<int64_t>(first, 1), n - first) : n;
    this->stream_.Launch("loss backward", packed ? &Backward<T, true> : &Backward<T, false>, dim3(BlocksOf(rows, 1)),
                         dim3(kBlock), of, first, logits, dlogits);
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
