// Causal attention that stores its probabilities: P = softmax(causal(Q K^T / sqrt(d))), C = (P M) V, where P M is elementwise
// and M are the dropout factors. attention_gradient.cuh has the gradients. The ops do not use the workspace; only other devices
// need it.
#include "worker/backend/cuda/attention_gradient.cuh"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

// Goes through a row's tiles twice: first to find the row's largest score and its sum of exponentials, then to write the
// softmax.
template <class T>
__global__ void __launch_bounds__(kTileThreads) Probs(AttentionShape shape, const T* qkv, T* probs) {
  __shared__ Tile left, right;
  TilePlace at{blockIdx.z, blockIdx.y, shape.s, int64_t{blockIdx.x} * kTile};
  const HeadRows<const T> in(qkv, shape, at.sample, at.head);
  SoftmaxRows softmax;
  for (; at.first_column <= at.first_row; at.first_column += kTile) {
    Four scores = Scores(in, at, shape, left, right);
    float factors[2];
    softmax.TakeIn(at, scores, factors);
  }
  for (at.first_column = 0; at.first_column < at.s; at.first_column += kTile) {
    Four scores;
    if (at.first_column <= at.first_row) scores = Scores(in, at, shape, left, right);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        if (at.Row(i) >= at.s || at.Column(j) >= at.s) continue;
        const float probability = at.Visible(i, j) ? expf(scores.at[i][j] - softmax.max[i]) * (1.0f / softmax.sum[i]) : 0.0f;
        probs[at.RowOfAll(shape, at.Row(i)) * at.s + at.Column(j)] = probability;
      }
    }
  }
}

template <class T, int kMost>
__global__ void __launch_bounds__(kTileThreads) Context(GradientArgs<T> args, StoredProbs<T> source, T* context) {
  __shared__ Tile part, weights;
  const AttentionShape& shape = args.shape;
  TilePlace at{blockIdx.z, blockIdx.y, shape.s, int64_t{blockIdx.x} * kTile};
  const HeadRows<const T> in(args.qkv, shape, at.sample, at.head);
  Rows<kMost> sum;
  for (; at.first_column <= at.first_row; at.first_column += kTile) {
    Four probs = source.Of(args, in, at, part, part);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        if (at.Visible(i, j)) probs.at[i][j] *= at.Factor(args.dropout, shape, i, j);
      }
    }
    __syncthreads();
    probs.Store(weights);
    sum.template Add<Transposed::kNo>(weights, in.v.From(at.first_column), shape.d, part);
  }
  sum.Store(ContextRows(context, shape, at.sample, at.head).From(at.first_row), shape.d, 1.0f, 1.0f);
}

// Returns the number of samples whose row sums fit into the scratch memory at once.
int64_t SamplesAtOnce(const AttentionShape& shape) {
  constexpr int64_t kMaxRows = Stream::kScratch.value / static_cast<int64_t>(sizeof(float));
  return std::max<int64_t>(1, std::min(shape.b, kMaxRows / (shape.a * shape.s)));
}

}  // namespace

template <class T>
void CudaOps<T>::ProbsForward(const AttentionShape& shape, const T* qkv, float*, T* probs) {
  this->stream_.Launch("attention, probabilities", &Probs<T>, TileGrid(shape, shape.a), dim3(kSide, kSide), shape, qkv, probs);
}

template <class T>
void CudaOps<T>::ContextForward(const AttentionShape& shape, const T* probs, const T* qkv, const DropoutKey& key, float*,
                                T* context) {
  const GradientArgs<T> args{.shape = shape, .qkv = qkv, .dropout = Dropout::Of(key)};
  ForHeadSize(this->stream_, shape.d, [&](auto most) {
    this->stream_.Launch("attention, context", &Context<T, decltype(most)::value>, TileGrid(shape, shape.a), dim3(kSide, kSide),
                         args, StoredProbs<T>{probs}, context);
  });
}

template <class T>
void CudaOps<T>::AttentionBackward(const AttentionShape& shape, const T* probs, const T* qkv, const T* dcontext,
                                   const DropoutKey& key, float*, T* dqkv) {
  const int64_t at_once = SamplesAtOnce(shape), row = shape.s * shape.width();
  for (int64_t sample = 0; sample < shape.b; sample += at_once) {
    GradientArgs<T> args{.shape = shape,
                         .qkv = qkv + sample * row,
                         .dcontext = dcontext + sample * shape.s * shape.a * shape.d,
                         .dropout = Dropout::Of(key),
                         .dqkv = dqkv + sample * row};
    args.shape.b = std::min(at_once, shape.b - sample);
    args.dropout.first_sample += sample;
    args.row_sums = this->stream_.template ScratchOf<float>(args.shape.b * shape.a * shape.s);
    const StoredProbs<T> source{probs + sample * shape.a * shape.s * shape.s};
    this->stream_.Launch("attention backward, rows", &SumRows<T>, TileGrid(args.shape, shape.a), dim3(kSide, kSide), args,
                         source);
    AllGradients(this->stream_, args, source);
  }
}

#define LYNX_INSTANTIATE(T)                                                                                                   \
  template void CudaOps<T>::ProbsForward(const AttentionShape&, const T*, float*, T*);                                        \
  template void CudaOps<T>::ContextForward(const AttentionShape&, const T*, const T*, const DropoutKey&, float*, T*);         \
  template void CudaOps<T>::AttentionBackward(const AttentionShape&, const T*, const T*, const T*, const DropoutKey&, float*, \
                                              T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
