// The parts of the fused attention kernels on bfloat16 that use tensor cores. A block has kOwnRows rows of a head as its own
// rows, 16 for each warp. It loops over the head's other rows, kOthers at a time: queries over keys, or keys over queries. A
// product multiplies bfloat16 and sums in fp32. The values between two products (the probabilities, and their gradients) are
// rounded to bfloat16 when the second product reads them, and are never stored in memory. All other arithmetic is fp32. The
// dropout decisions are those of the other kernels.
#ifndef LYNX_WORKER_BACKEND_CUDA_ATTENTION_MMA_CUH_
#define LYNX_WORKER_BACKEND_CUDA_ATTENTION_MMA_CUH_

#include "worker/backend/cuda/attention_gradient.cuh"
#include "worker/backend/cuda/elementwise.cuh"
#include "worker/backend/cuda/tensor_core.cuh"

namespace lynx::worker::cuda {

inline constexpr int kMmaWarps = 4;
inline constexpr int kMmaThreads = kMmaWarps * kWarp;
inline constexpr int kOwnRows = kMmaWarps * 16;
inline constexpr int64_t kMaxMmaHeadSize = 128;  // the rows of larger heads need more than a block's shared memory

// True if the rows of the heads can be read in packs of eight elements.
template <class... T>
bool FitsEights(int64_t d, const T*... tensors) {
  return d % 8 == 0 && ((reinterpret_cast<uintptr_t>(tensors) % 16 == 0) && ...);
}

// Copies rows [0, Shared::kRows) and columns [0, kMost) into shared memory. Writes zeros for rows and columns that do not
// exist.
template <int kMost, class Shared>
__device__ void FetchRows(const RowsOf<const Bfloat16>& from, int64_t d, bool eights, Shared& to) {
  if (eights) {
    using Eight = Pack<Bfloat16, 8>;
    constexpr int kEights = kMost / 8;
    for (int i = threadIdx.x; i < Shared::kRows * kEights; i += kMmaThreads) {
      const int row = i / kEights, column = i % kEights * 8;
      Eight values{};
      if (row < from.rows && column < d) values = Eight::Load(from.data + row * from.stride + column);
      values.Store(&to.at[row][column]);
    }
    return;
  }
  for (int i = threadIdx.x; i < Shared::kRows * kMost; i += kMmaThreads) {
    const int row = i / kMost, column = i % kMost;
    const bool exists = row < from.rows && column < d;
    to.at[row][column] = exists ? from.data[row * from.stride + column] : Bfloat16{};
  }
}

// The elements that a lane has of the tile (16, kOthers) of its warp.
template <int kOthers>
struct WarpTile {
  SumFragment at[kOthers / 8];
};

// Returns the warp's own rows times the transposed other rows: (16, kOthers), summed over d columns.
template <int kMost, class Own, class Other>
__device__ WarpTile<Other::kRows> OwnTimesOthers(const Own& own, const Other& others, int64_t d) {
  WarpTile<Other::kRows> tile;
#pragma unroll
  for (int column = 0; column < kMost; column += 16) {
    if (column >= d) break;
    const LeftFragment left = LoadLeft(own, WarpOfBlock() * 16, column);
#pragma unroll
    for (int j = 0; j < Other::kRows / 8; ++j) {
      MultiplyAdd(left, LoadRightTransposed(others, j * 8, column), tile.at[j]);
    }
  }
  return tile;
}

// The part that a lane has of its warp's result (16, d).
template <int kMost>
struct WarpRows {
  SumFragment at[kMost / 8];

  // Multiplies the lane's row g + 8 half by the factor (tensor_core.cuh defines g).
  __device__ void Scale(int half, float factor) {
#pragma unroll
    for (SumFragment& sums : at) {
      sums.at[2 * half] *= factor;
      sums.at[2 * half + 1] *= factor;
    }
  }

  // Adds the product of the rounded weights and the values of the other rows.
  template <class Other>
  __device__ void Add(const WarpTile<Other::kRows>& weights, const Other& values, int64_t d) {
#pragma unroll
    for (int k = 0; k < Other::kRows / 16; ++k) {
      const LeftFragment left = LeftOf(weights.at[2 * k], weights.at[2 * k + 1]);
#pragma unroll
      for (int j = 0; j < kMost / 8; ++j) {
        if (j * 8 >= d) break;
        MultiplyAdd(left, LoadRight(values, k * 16, j * 8), at[j]);
      }
    }
  }

  // Writes the result to `to`, the block's own rows. A lane has two rows; each is multiplied by its scale.
  __device__ void Store(const RowsOf<Bfloat16>& to, int64_t d, float scale0, float scale1) const {
    const int lane = LaneOfWarp();
#pragma unroll
    for (int j = 0; j < kMost / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = WarpOfBlock() * 16 + lane / 4 + e / 2 * 8;
        const int64_t column = j * 8 + lane % 4 * 2 + e % 2;
        if (row < to.rows && column < d) to.data[row * to.stride + column] = at[j].at[e] * (e / 2 == 0 ? scale0 : scale1);
      }
    }
  }
};

enum class OwnRows : uint8_t { kQueries, kKeys };

// The place of a block's tile in one head of one sample. Also says which rows and columns a lane's elements have.
template <OwnRows kOwn>
struct MmaPlace {
  int64_t sample, head, s;  // head: counted among this rank's heads
  int64_t first_own, first_other = 0;

  __device__ int64_t Own(int half) const { return first_own + WarpOfBlock() * 16 + LaneOfWarp() / 4 + half * 8; }
  __device__ int64_t Other(int j, int e) const { return first_other + j * 8 + LaneOfWarp() % 4 * 2 + e % 2; }
  __device__ int64_t Query(int j, int e) const { return kOwn == OwnRows::kQueries ? Own(e / 2) : Other(j, e); }
  __device__ int64_t Key(int j, int e) const { return kOwn == OwnRows::kQueries ? Other(j, e) : Own(e / 2); }
  // True if the query exists and may use the key.
  __device__ bool Visible(int j, int e) const { return Query(j, e) < s && Key(j, e) <= Query(j, e); }
  __device__ float Factor(const Dropout& dropout, const AttentionShape& shape, int j, int e) const {
    return dropout.Factor(sample, ((shape.first_head + head) * s + Query(j, e)) * s + Key(j, e));
  }
  // Returns the index of a query's row among the rows (b, a, s) of all heads.
  __device__ int64_t RowOfAll(const AttentionShape& shape, int64_t query) const {
    return (sample * shape.a + head) * s + query;
  }
};

// For each of a lane's two rows: the largest score m so far, and the sum of e^(score - m) so far (see SoftmaxRows). The four
// lanes of a row hold the same values.
struct MmaSoftmax {
  float max[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float sum[2] = {};

  // Adds a tile of scores: scales them, and replaces them by e^(score - m), or by 0 if they are hidden. The caller must
  // multiply the partial result by `factors`.
  template <int kOthers>
  __device__ void TakeIn(const MmaPlace<OwnRows::kQueries>& at, float scale, WarpTile<kOthers>& scores, float factors[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = max[half];
#pragma unroll
      for (int j = 0; j < kOthers / 8; ++j) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores.at[j].at[e] *= scale;
          if (at.Visible(j, e)) largest = Max::Of(largest, scores.at[j].at[e]);
        }
      }
      largest = ReduceLanes<Max, 4>(largest);
      float tile_sum = 0;
#pragma unroll
      for (int j = 0; j < kOthers / 8; ++j) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores.at[j].at[e] = at.Visible(j, e) ? expf(scores.at[j].at[e] - largest) : 0.0f;
          tile_sum += scores.at[j].at[e];
        }
      }
      tile_sum = ReduceLanes<Sum, 4>(tile_sum);
      factors[half] = at.Own(half) < at.s ? expf(max[half] - largest) : 0.0f;  // 0 for the first tile
      max[half] = largest;
      sum[half] = sum[half] * factors[half] + tile_sum;
    }
  }
};

template <int kMost>
__global__ void __launch_bounds__(kMmaThreads)
    MmaForward(AttentionShape shape, const Bfloat16* qkv, bool eights, Dropout dropout, Bfloat16* context, float* lse) {
  constexpr int kOthers = kMost <= 64 ? 64 : 32;
  __shared__ SharedRows<kOwnRows, kMost> queries;
  __shared__ SharedRows<kOthers, kMost> keys, values;
  MmaPlace<OwnRows::kQueries> at{blockIdx.z, blockIdx.y, shape.s, int64_t{blockIdx.x} * kOwnRows};
  const HeadRows<const Bfloat16> in(qkv, shape, at.sample, at.head);
  FetchRows<kMost>(in.q.From(at.first_own), shape.d, eights, queries);
  const float scale = 1.0f / sqrtf(static_cast<float>(shape.d));
  MmaSoftmax softmax;
  WarpRows<kMost> sum;
  for (; at.first_other < at.s && at.first_other < at.first_own + kOwnRows; at.first_other += kOthers) {
    __syncthreads();  // all threads have read the previous tile
    FetchRows<kMost>(in.k.From(at.first_other), shape.d, eights, keys);
    FetchRows<kMost>(in.v.From(at.first_other), shape.d, eights, values);
    __syncthreads();
    WarpTile<kOthers> probs = OwnTimesOthers<kMost>(queries, keys, shape.d);
    float factors[2];
    softmax.TakeIn(at, scale, probs, factors);
#pragma unroll
    for (int j = 0; j < kOthers / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (at.Visible(j, e)) probs.at[j].at[e] *= at.Factor(dropout, shape, j, e);
      }
    }
    for (int half = 0; half < 2; ++half) sum.Scale(half, factors[half]);
    sum.Add(probs, values, shape.d);
  }
  sum.Store(ContextRows(context, shape, at.sample, at.head).From(at.first_own), shape.d, 1.0f / softmax.sum[0],
            1.0f / softmax.sum[1]);
  for (int half = 0; half < 2; ++half) {
    const int64_t row = at.Own(half);
    if (LaneOfWarp() % 4 == 0 && row < at.s) lse[at.RowOfAll(shape, row)] = softmax.max[half] + logf(softmax.sum[half]);
  }
}

// Computes the two matrices of a TileGradient: replaces the scores of the tile by dS, and its dP by P M.
template <OwnRows kOwn, int kOthers>
__device__ void MakeGradients(const GradientArgs<Bfloat16>& args, const float* lse, const MmaPlace<kOwn>& at, float scale,
                              WarpTile<kOthers>& scores, WarpTile<kOthers>& dprobs) {
#pragma unroll
  for (int j = 0; j < kOthers / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float &score = scores.at[j].at[e], &dprob = dprobs.at[j].at[e];
      if (!at.Visible(j, e)) {
        score = dprob = 0;
        continue;
      }
      const int64_t row = at.RowOfAll(args.shape, at.Query(j, e));
      const float prob = expf(score * scale - lse[row]), factor = at.Factor(args.dropout, args.shape, j, e);
      score = prob * (dprob * factor - args.row_sums[row]);
      dprob = prob * factor;
    }
  }
}

// Computes dQ of the block's queries, or dK and dV of its keys. If heads share keys, their gradients are added in the order of
// heads.
template <int kMost, OwnRows kOwn>
__global__ void __launch_bounds__(kMmaThreads) MmaGradient(GradientArgs<Bfloat16> args, const float* lse, bool eights) {
  constexpr int kOthers = kMost <= 64 ? 32 : 16;
  constexpr bool kQueries = kOwn == OwnRows::kQueries;
  __shared__ SharedRows<kOwnRows, kMost> own, own_values;      // q and dC, or k and v
  __shared__ SharedRows<kOthers, kMost> others, other_values;  // k and v, or q and dC
  const AttentionShape& shape = args.shape;
  const int64_t sharing = kQueries ? 1 : shape.a / shape.k, first_head = blockIdx.y * sharing;
  MmaPlace<kOwn> at{blockIdx.z, first_head, shape.s, int64_t{blockIdx.x} * kOwnRows};
  const float scale = 1.0f / sqrtf(static_cast<float>(shape.d));
  WarpRows<kMost> sum, values_sum;
  for (; at.head < first_head + sharing; ++at.head) {
    const HeadRows<const Bfloat16> in(args.qkv, shape, at.sample, at.head);
    const RowsOf<const Bfloat16> dout = ContextRows(args.dcontext, shape, at.sample, at.head);
    if (at.head == first_head) {
      FetchRows<kMost>((kQueries ? in.q : in.k).From(at.first_own), shape.d, eights, own);
      FetchRows<kMost>((kQueries ? dout : in.v).From(at.first_own), shape.d, eights, own_values);
    }
    const int64_t last = at.first_own + kOwnRows, end = kQueries && last < at.s ? last : at.s;
    for (at.first_other = kQueries ? 0 : at.first_own; at.first_other < end; at.first_other += kOthers) {
      __syncthreads();  // all threads have read the previous tile
      FetchRows<kMost>((kQueries ? in.k : in.q).From(at.first_other), shape.d, eights, others);
      FetchRows<kMost>((kQueries ? in.v : dout).From(at.first_other), shape.d, eights, other_values);
      __syncthreads();
      WarpTile<kOthers> scores = OwnTimesOthers<kMost>(own, others, shape.d);
      WarpTile<kOthers> dprobs = OwnTimesOthers<kMost>(own_values, other_values, shape.d);
      MakeGradients(args, lse, at, scale, scores, dprobs);
      sum.Add(scores, others, shape.d);
      if constexpr (!kQueries) values_sum.Add(dprobs, other_values, shape.d);
    }
  }
  const HeadRows<Bfloat16> out(args.dqkv, shape, at.sample, first_head);
  sum.Store((kQueries ? out.q : out.k).From(at.first_own), shape.d, scale, scale);
  if constexpr (!kQueries) values_sum.Store(out.v.From(at.first_own), shape.d, 1.0f, 1.0f);
}

inline dim3 MmaGrid(const AttentionShape& shape, int64_t heads) {
  return dim3(BlocksOf(shape.s, kOwnRows), BlocksOf(heads, 1), BlocksOf(shape.b, 1));
}

// Calls launch(std::integral_constant<int, kMost>) with the smallest kMost >= d for which kernels exist.
template <class Launch>
void ForMmaHeadSize(int64_t d, const Launch& launch) {
  if (d <= 64) return launch(std::integral_constant<int, 64>());
  launch(std::integral_constant<int, kMaxMmaHeadSize>());
}

inline void LaunchMmaForward(Stream& stream, const AttentionShape& shape, const Bfloat16* qkv, const Dropout& dropout,
                             Bfloat16* context, float* lse) {
  ForMmaHeadSize(shape.d, [&](auto most) {
    stream.Launch("fused attention", &MmaForward<decltype(most)::value>, MmaGrid(shape, shape.a), dim3(kMmaThreads), shape, qkv,
                  FitsEights(shape.d, qkv), dropout, context, lse);
  });
}

// Computes dqkv. args.row_sums must have been computed before.
inline void LaunchMmaGradients(Stream& stream, const GradientArgs<Bfloat16>& args, const float* lse) {
  const bool eights = FitsEights(args.shape.d, args.qkv, args.dcontext);
  ForMmaHeadSize(args.shape.d, [&](auto most) {
    constexpr int kMost = decltype(most)::value;
    stream.Launch("attention backward, queries", &MmaGradient<kMost, OwnRows::kQueries>, MmaGrid(args.shape, args.shape.a),
                  dim3(kMmaThreads), args, lse, eights);
    stream.Launch("attention backward, keys", &MmaGradient<kMost, OwnRows::kKeys>, MmaGrid(args.shape, args.shape.k),
                  dim3(kMmaThreads), args, lse, eights);
  });
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_ATTENTION_MMA_CUH_
