// The backward pass of attention, fused and unfused. With the probabilities P, the dropout factors M and the result C,
//   dV = (P M)^T dC,  dP = (dC V^T) M,  dS = P (dP - r),  dQ = c dS K,  dK = c dS^T Q,
// where r = rowsum(dP P) = rowsum(dC C), and c is the factor of the scores. One kernel has a block for each tile of queries.
// The other kernel has a block for each tile of keys. So no two blocks add to the same element. If heads share keys, their
// gradients are added in the order of heads.
#ifndef LYNX_WORKER_BACKEND_CUDA_ATTENTION_GRADIENT_CUH_
#define LYNX_WORKER_BACKEND_CUDA_ATTENTION_GRADIENT_CUH_

#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/backend/cuda/attention_softmax.cuh"
#include "worker/backend/cuda/stream.h"

namespace lynx::worker::cuda {

template <class T>
struct GradientArgs {
  AttentionShape shape;
  const T* qkv;
  const T* dcontext;
  Dropout dropout;
  float* row_sums;  // (b, a, s): r
  T* dqkv;
};

// Gives the probabilities of a tile for fused attention. It computes them again from the log-sum-exps (b, a, s) of the rows.
template <class T>
struct ProbsOfLse {
  const float* lse;

  __device__ Four Of(const GradientArgs<T>& args, const HeadRows<const T>& in, const TilePlace& at, Tile& left,
                     Tile& right) const {
    Four probs = Scores(in, at, args.shape, left, right);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        const float score = probs.at[i][j];
        probs.at[i][j] = at.Visible(i, j) ? expf(score - lse[at.RowOfAll(args.shape, at.Row(i))]) : 0.0f;
      }
    }
    return probs;
  }
};

// Gives the probabilities of a tile for unfused attention. It reads them from memory, where they are stored as (b, a, s, s).
template <class T>
struct StoredProbs {
  const T* probs;

  __device__ Four Of(const GradientArgs<T>& args, const HeadRows<const T>&, const TilePlace& at, Tile&, Tile&) const {
    Four tile;
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        if (at.Visible(i, j)) tile.at[i][j] = probs[at.RowOfAll(args.shape, at.Row(i)) * at.s + at.Column(j)];
      }
    }
    return tile;
  }
};

// The two matrices that determine the gradients of a tile.
struct TileGradient {
  Four dropped;  // P M
  Four scores;   // dS
};

template <class T>
__device__ Four ProbsGradient(const GradientArgs<T>& args, const HeadRows<const T>& in, const RowsOf<const T>& dout,
                              const TilePlace& at, Tile& left, Tile& right) {
  return Dot(dout.From(at.first_row), in.v.From(at.first_column), args.shape.value_size(), left, right);
}

template <class T, class Probs>
__device__ TileGradient GradientOf(const GradientArgs<T>& args, const Probs& source, const HeadRows<const T>& in,
                                   const RowsOf<const T>& dout, const TilePlace& at, Tile& left, Tile& right) {
  const Four probs = source.Of(args, in, at, left, right);
  const Four dprobs = ProbsGradient(args, in, dout, at, left, right);
  TileGradient gradient;
  for (int i = 0; i < 2; ++i) {
    const int64_t row = at.Row(i);
    const float row_sum = row < at.s ? args.row_sums[at.RowOfAll(args.shape, row)] : 0.0f;
    for (int j = 0; j < 2; ++j) {
      const float factor = at.Visible(i, j) ? at.Factor(args.dropout, args.shape, i, j) : 0.0f;
      gradient.dropped.at[i][j] = probs.at[i][j] * factor;
      gradient.scores.at[i][j] = probs.at[i][j] * (dprobs.at[i][j] * factor - row_sum);
    }
  }
  return gradient;
}

// Computes row_sums = rowsum(dP P).
template <class T>
__global__ void __launch_bounds__(kTileThreads) SumRows(GradientArgs<T> args, StoredProbs<T> source) {
  __shared__ Tile left, right;
  TilePlace at{blockIdx.z, blockIdx.y, args.shape.s, int64_t{blockIdx.x} * kTile};
  const HeadRows<const T> in(args.qkv, args.shape, at.sample, at.head);
  const RowsOf<const T> dout = ContextRows(args.dcontext, args.shape, at.sample, at.head);
  float sums[2] = {};
  for (; at.first_column <= at.first_row; at.first_column += kTile) {
    const Four probs = source.Of(args, in, at, left, right);
    const Four dprobs = ProbsGradient(args, in, dout, at, left, right);
    for (int i = 0; i < 2; ++i) {
      float sum = 0;
      for (int j = 0; j < 2; ++j) {
        if (at.Visible(i, j)) sum += probs.at[i][j] * (dprobs.at[i][j] * at.Factor(args.dropout, args.shape, i, j));
      }
      sums[i] += ReduceLanes<Sum, kSide>(sum);
    }
  }
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x == 0 && at.Row(i) < at.s) args.row_sums[at.RowOfAll(args.shape, at.Row(i))] = sums[i];
  }
}

template <class T, class Probs, int kMost>
__global__ void __launch_bounds__(kTileThreads) QueryGradient(GradientArgs<T> args, Probs source) {
  __shared__ Tile left, right, weights;
  TilePlace at{blockIdx.z, blockIdx.y, args.shape.s, int64_t{blockIdx.x} * kTile};
  const HeadRows<const T> in(args.qkv, args.shape, at.sample, at.head);
  const HeadRows<T> out(args.dqkv, args.shape, at.sample, at.head);
  const RowsOf<const T> dout = ContextRows(args.dcontext, args.shape, at.sample, at.head);
  Rows<kMost> dqueries;
  for (; at.first_column <= at.first_row; at.first_column += kTile) {
    GradientOf(args, source, in, dout, at, left, right).scores.Store(weights);
    dqueries.template Add<Transposed::kNo>(weights, in.k.From(at.first_column), args.shape.d, left);
  }
  const float scale = ScoreFactor(args.shape);
  dqueries.Store(out.q.From(at.first_row), args.shape.d, scale, scale);
}

template <class T, class Probs, int kMost>
__global__ void __launch_bounds__(kTileThreads) KeyGradient(GradientArgs<T> args, Probs source) {
  __shared__ Tile left, right, weights;
  const int64_t sharing = args.shape.a / args.shape.k, first_head = blockIdx.y * sharing;
  TilePlace at{blockIdx.z, first_head, args.shape.s};
  at.first_column = int64_t{blockIdx.x} * kTile;
  Rows<kMost> dkeys, dvalues;
  for (; at.head < first_head + sharing; ++at.head) {
    const HeadRows<const T> in(args.qkv, args.shape, at.sample, at.head);
    const RowsOf<const T> dout = ContextRows(args.dcontext, args.shape, at.sample, at.head);
    for (at.first_row = at.first_column; at.first_row < at.s; at.first_row += kTile) {
      const TileGradient gradient = GradientOf(args, source, in, dout, at, left, right);
      gradient.dropped.Store(weights);
      dvalues.template Add<Transposed::kYes>(weights, dout.From(at.first_row), args.shape.value_size(), left);
      __syncthreads();
      gradient.scores.Store(weights);
      dkeys.template Add<Transposed::kYes>(weights, in.q.From(at.first_row), args.shape.d, left);
    }
  }
  const HeadRows<T> out(args.dqkv, args.shape, at.sample, first_head);
  const float scale = ScoreFactor(args.shape);
  dkeys.Store(out.k.From(at.first_column), args.shape.d, scale, scale);
  dvalues.Store(out.v.From(at.first_column), args.shape.value_size(), 1.0f, 1.0f);
}

// Calls launch(std::integral_constant<int, kMost>) with the smallest kMost >= d for which kernels exist.
template <class Launch>
void ForHeadSize(Stream& stream, int64_t d, const Launch& launch) {
  if (d <= 64) return launch(std::integral_constant<int, 64>());
  if (d <= 128) return launch(std::integral_constant<int, 128>());
  if (d <= kMaxHeadSize) return launch(std::integral_constant<int, kMaxHeadSize>());
  stream.Note(
      absl::UnimplementedError(absl::StrCat("attention on CUDA has heads of at most ", kMaxHeadSize,
                                            " elements, but the model's have ", d, " (model.headDim, model.latent.valueDim)")));
}

// Computes dqkv. args.row_sums must have been computed before.
template <class T, class Probs>
void AllGradients(Stream& stream, const GradientArgs<T>& args, const Probs& source) {
  const dim3 block(kSide, kSide);
  ForHeadSize(stream, args.shape.widest(), [&](auto most) {
    constexpr int kMost = decltype(most)::value;
    stream.Launch("attention backward, queries", &QueryGradient<T, Probs, kMost>, TileGrid(args.shape, args.shape.a), block,
                  args, source);
    stream.Launch("attention backward, keys", &KeyGradient<T, Probs, kMost>, TileGrid(args.shape, args.shape.k), block, args,
                  source);
  });
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_ATTENTION_GRADIENT_CUH_
