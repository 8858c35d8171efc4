// Fused causal attention (FlashAttention-2, Dao 2023): the scores are computed tile by tile and never stored. A block has a
// tile of rows. It loops over the tiles of columns that these rows may use, and rescales the partial result if a row's largest
// score grows. The backward pass needs only the log-sum-exp of each row (attention_gradient.cuh). The dropout decisions are
// those of unfused attention.
//
// attention_mma.cuh computes heads of up to 128 elements on bfloat16, if the device has tensor cores for bfloat16, if the
// tensors are not too large for its indices, and if heads of values have the size of those of keys. The kernels here compute
// all other cases, completely in fp32.
#include "worker/backend/cuda/attention_gradient.cuh"
#include "worker/backend/cuda/attention_mma.cuh"
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

template <class T, int kMost>
__global__ void __launch_bounds__(kTileThreads)
    Forward(AttentionShape shape, const T* qkv, Dropout dropout, T* context, float* lse) {
  __shared__ Tile left, right, weights;
  TilePlace at{blockIdx.z, blockIdx.y, shape.s, int64_t{blockIdx.x} * kTile};
  const HeadRows<const T> in(qkv, shape, at.sample, at.head);
  SoftmaxRows softmax;
  Rows<kMost> sum;
  for (; at.first_column <= at.first_row; at.first_column += kTile) {
    Four probs = Scores(in, at, shape, left, right);
    float factors[2];
    softmax.TakeIn(at, probs, factors);
    for (int i = 0; i < 2; ++i) {
      sum.Scale(i, factors[i]);
      for (int j = 0; j < 2; ++j) {
        if (at.Visible(i, j)) probs.at[i][j] *= at.Factor(dropout, shape, i, j);
      }
    }
    probs.Store(weights);
    sum.template Add<Transposed::kNo>(weights, in.v.From(at.first_column), shape.value_size(), left);
  }
  sum.Store(ContextRows(context, shape, at.sample, at.head).From(at.first_row), shape.value_size(), 1.0f / softmax.sum[0],
            1.0f / softmax.sum[1]);
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x == 0 && at.Row(i) < at.s) {
      lse[at.RowOfAll(shape, at.Row(i))] = softmax.max[i] + logf(softmax.sum[i]);
    }
  }
}

// Computes row_sums (b, a, s) = rowsum(dC C), with one warp for each row.
template <class T>
__global__ void __launch_bounds__(kBlock)
    SumProducts(AttentionShape shape, const T* context, const T* dcontext, float* row_sums) {
  const int64_t position = int64_t{blockIdx.x} * (kBlock / kWarp) + threadIdx.x / kWarp, head = blockIdx.y, sample = blockIdx.z;
  if (position >= shape.s) return;
  const int64_t size = shape.value_size(), first = ((sample * shape.s + position) * shape.a + head) * size;
  float sum = 0;
  for (int i = threadIdx.x % kWarp; i < size; i += kWarp) sum += context[first + i] * dcontext[first + i];
  sum = ReduceLanes<Sum, kWarp>(sum);
  if (threadIdx.x % kWarp == 0) row_sums[(sample * shape.a + head) * shape.s + position] = sum;
}

bool OnTensorCores(const Stream& stream, const AttentionShape& shape) {
  return stream.multiplies_bfloat16() && shape.d <= kMaxMmaHeadSize && shape.s <= kMaxMmaPositions &&
         shape.width() <= kMaxMmaWidth && shape.value_size() == shape.d && shape.factor == 1;
}

}  // namespace

template <class T>
void CudaOps<T>::FlashForward(const AttentionShape& shape, const T* qkv, const DropoutKey& key, float*, T* context,
                              float* lse) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    if (OnTensorCores(this->stream_, shape)) {
      return LaunchMmaForward(this->stream_, shape, qkv, Dropout::Of(key), context, lse);
    }
  }
  ForHeadSize(this->stream_, shape.widest(), [&](auto most) {
    this->stream_.Launch("fused attention", &Forward<T, decltype(most)::value>, TileGrid(shape, shape.a), dim3(kSide, kSide),
                         shape, qkv, Dropout::Of(key), context, lse);
  });
}

template <class T>
void CudaOps<T>::FlashBackward(const AttentionShape& shape, const T* qkv, const T* context, const float* lse, const T* dcontext,
                               const DropoutKey& key, float* workspace, T* dqkv) {
  const dim3 grid(BlocksOf(shape.s, kBlock / kWarp), BlocksOf(shape.a, 1), BlocksOf(shape.b, 1));
  this->stream_.Launch("attention backward, rows", &SumProducts<T>, grid, dim3(kBlock), shape, context, dcontext, workspace);
  const GradientArgs<T> args{shape, qkv, dcontext, Dropout::Of(key), workspace, dqkv};
  if constexpr (std::is_same_v<T, Bfloat16>) {
    if (OnTensorCores(this->stream_, shape)) return LaunchMmaGradients(this->stream_, args, lse);
  }
  AllGradients(this->stream_, args, ProbsOfLse<T>{lse});
}

#define LYNX_INSTANTIATE(T)                                                                                       \
  template void CudaOps<T>::FlashForward(const AttentionShape&, const T*, const DropoutKey&, float*, T*, float*); \
  template void CudaOps<T>::FlashBackward(const AttentionShape&, const T*, const T*, const float*, const T*,      \
                                          const DropoutKey&, float*, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
