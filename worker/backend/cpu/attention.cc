// Causal attention. Per sample and head: P = softmax(causal(Q K^T / sqrt(d))), C = (P M) V, where P M is elementwise and M are
// the dropout factors. Backward:  dV = (P M)^T dC,  dP = (dC V^T) M,  dS = P (dP - rowsum(dP P)),  dQ = dS K / sqrt(d),  dK =
// dS^T Q / sqrt(d).
//
// Computes blocks of rows. A block is only as wide as the visible part of its last row, so most of the masked half costs
// nothing. fp32 Q, K and V are columns of qkv's rows (a + 2k, d), and are read there without a copy. bfloat16 Q, K and V are
// first copied into fp32: K and V once, Q one block at a time. If heads share keys and values, their gradients are added in
// fp32, in the order of heads.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "worker/backend/cpu/attention_view.h"
#include "worker/backend/cpu/conversion.h"
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/dropout.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

// Replaces the scores of the first `visible` columns of row (s) by their softmax, and all other scores by 0.
LYNX_SIMD void SoftmaxRow(float* row, int64_t visible, int64_t s) {
  float max = row[0];
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < visible; ++i) max = row[i] > max ? row[i] : max;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < visible; ++i) {
    row[i] = Exp(row[i] - max);
    sum += row[i];
  }
  const float inverse = 1.0f / sum;
#pragma omp simd
  for (int64_t i = 0; i < visible; ++i) row[i] *= inverse;
  std::memset(row + visible, 0, static_cast<size_t>(s - visible) * sizeof(float));
}

template <class T>
LYNX_SIMD void Multiply(const T* x, const float* factors, int64_t count, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * factors[i];
}

// Computes dS = P (dP - rowsum(dP P)), which overwrites dP.
template <class T>
LYNX_SIMD void SoftmaxBackwardRow(const T* probs, int64_t count, float* gradient) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += probs[i] * gradient[i];
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) gradient[i] = probs[i] * (gradient[i] - sum);
}

// One row of one head's (s, s) probabilities. The columns up to `row` itself are visible.
struct ProbsRow {
  int64_t sample, head, row, s;  // head: counted over all ranks

  int64_t visible() const { return row + 1; }
  int64_t first_element() const { return (head * s + row) * s; }
};

void ClearFrom(int64_t visible, int64_t end, float* row) {
  std::memset(row + visible, 0, static_cast<size_t>(end - visible) * sizeof(float));
}

// Sets dropped = probs M in the visible columns, and 0 in the other columns before `end`. If `gradient` is not null, changes it
// in place in the same way: multiplies it by M, and sets the same other columns to 0.
template <class T>
void DropRow(DropoutStream& dropout, const ProbsRow& where, int64_t end, const T* probs, float* dropped, float* gradient) {
  for (int64_t at = 0; at < where.visible(); at += DropoutStream::kChunk) {
    const int64_t count = std::min(DropoutStream::kChunk, where.visible() - at);
    const float* factors = dropout.Factors(where.sample, where.first_element() + at, count);
    Multiply(probs + at, factors, count, dropped + at);
    if (gradient != nullptr) Multiply(gradient + at, factors, count, gradient + at);
  }
  ClearFrom(where.visible(), end, dropped);
  if (gradient != nullptr) ClearFrom(where.visible(), end, gradient);
}

int64_t BlockRows(const AttentionShape& shape) { return std::min(kAttentionRows, shape.s); }

}  // namespace

template <class T>
void CpuOps<T>::ProbsForward(const AttentionShape& shape, const T* qkv, float* workspace, T* probs) {
  CheckUnfused(shape);
  const int64_t s = shape.s, d = shape.d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  WideHead<T> wide(shape, workspace, BlockRows(shape) * s);
  float *const wide_keys = wide.Whole(), *const wide_queries = wide.Rows();
  MatrixView<const float> keys;
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < shape.a; ++head, probs += s * s) {
      const HeadView<const T> in(qkv, shape, sample, head);
      if (IsFirstOfKeys(shape, head)) keys = Widened(in.k, s, d, wide_keys);
      for (int64_t first = 0; first < s; first += kAttentionRows) {
        const int64_t rows = std::min(kAttentionRows, s - first);
        const MatrixView<T> out{probs + first * s, s};
        const MatrixView<float> scores = Accumulator(out, s, workspace);
        Gemm(Transpose::kNo, Transpose::kYes, rows, first + rows, d, scale,
             Widened(FromRow(in.q, first), rows, d, wide_queries), keys, 0.0f, scores);
        for (int64_t row = 0; row < rows; ++row) SoftmaxRow(scores.data + row * s, first + row + 1, s);
        Store(scores, rows, s, out);
      }
    }
  }
}

template <class T>
void CpuOps<T>::ContextForward(const AttentionShape& shape, const T* probs, const T* qkv, const DropoutKey& key,
                               float* workspace, T* context) {
  CheckUnfused(shape);
  const int64_t s = shape.s, a = shape.a, d = shape.d;
  DropoutStream dropout(key);
  WideHead<T> wide(shape, workspace, BlockRows(shape) * s);
  float *const wide_values = wide.Whole(), *const wide_context = wide.Rows();
  MatrixView<const float> values;
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < a; ++head, probs += s * s) {
      const HeadView<const T> in(qkv, shape, sample, head);
      if (IsFirstOfKeys(shape, head)) values = Widened(in.v, s, d, wide_values);
      for (int64_t first = 0; first < s; first += kAttentionRows) {
        const int64_t end = std::min(first + kAttentionRows, s);
        const MatrixView<const T> block{probs + first * s, s};
        MatrixView<const float> weights{workspace, s};
        if (dropout.identity()) {
          weights = Widened(block, end - first, end, workspace);
        } else {
          for (int64_t row = first; row < end; ++row) {
            DropRow(dropout, {sample, shape.first_head + head, row, s}, end, probs + row * s, workspace + (row - first) * s,
                    nullptr);
          }
        }
        const MatrixView<T> out = FromRow(ContextView(context, shape, sample, head), first);
        const MatrixView<float> sum = Accumulator(out, d, wide_context);
        Gemm(Transpose::kNo, Transpose::kNo, end - first, d, end, 1.0f, weights, values, 0.0f, sum);
        Store(sum, end - first, d, out);
      }
    }
  }
}

namespace {

// Computes the gradients of one block of rows of one head.
template <class T>
struct BlockGradient {
  DropoutStream& dropout;
  float* dropped;  // (block rows, s): P M
  float* dscores;  // (block rows, s): dP, then dS
  float scale;
  int64_t s, d;
  MatrixView<const float> keys, values;
  MatrixView<float> dkeys, dvalues;

  // The first row of probs, queries, dout and dqueries is the block's first row. `where`: the place of that row. `beta`: the
  // factor for the old content of the gradients of keys and values: 0 overwrites it, 1 adds to it.
  void Add(ProbsRow where, int64_t rows, float beta, MatrixView<const T> probs, MatrixView<const float> queries,
           MatrixView<const float> dout, MatrixView<float> dqueries) const {
    const int64_t end = where.row + rows;
    MatrixView<const float> weights{dropped, s};
    Gemm(Transpose::kNo, Transpose::kYes, rows, end, d, 1.0f, dout, values, 0.0f, {dscores, s});
    for (int64_t row = 0; row < rows; ++row, ++where.row) {
      float* const gradient = dscores + row * s;
      if (!dropout.identity()) DropRow(dropout, where, end, probs.data + row * s, dropped + row * s, gradient);
      SoftmaxBackwardRow(probs.data + row * s, end, gradient);
    }
    if (dropout.identity()) weights = Widened(probs, rows, end, dropped);
    Gemm(Transpose::kYes, Transpose::kNo, end, d, rows, 1.0f, weights, dout, beta, dvalues);
    Gemm(Transpose::kNo, Transpose::kNo, rows, d, end, scale, {dscores, s}, keys, 0.0f, dqueries);
    Gemm(Transpose::kYes, Transpose::kNo, end, d, rows, scale, {dscores, s}, queries, beta, dkeys);
  }
};

}  // namespace

template <class T>
void CpuOps<T>::AttentionBackward(const AttentionShape& shape, const T* probs, const T* qkv, const T* dcontext,
                                  const DropoutKey& key, float* workspace, T* dqkv) {
  CheckUnfused(shape);
  const int64_t s = shape.s, d = shape.d;
  DropoutStream dropout(key);
  float* const dscores = workspace + BlockRows(shape) * s;
  WideHead<T> wide(shape, workspace, 2 * BlockRows(shape) * s);
  float *const wide_keys = wide.Whole(), *const wide_values = wide.Whole();
  float *const wide_dkeys = wide.Whole(), *const wide_dvalues = wide.Whole();
  float *const wide_queries = wide.Rows(), *const wide_dout = wide.Rows(), *const wide_dqueries = wide.Rows();
  BlockGradient<T> block{dropout, workspace, dscores, 1.0f / std::sqrt(static_cast<float>(d)), s, d, {}, {}, {}, {}};
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < shape.a; ++head, probs += s * s) {
      const HeadView<const T> in(qkv, shape, sample, head);
      const HeadView<T> out(dqkv, shape, sample, head);
      const MatrixView<const T> dout = ContextView(dcontext, shape, sample, head);
      const bool writes = IsFirstOfKeys(shape, head);  // this head overwrites the shared gradients; the other heads add to them
      if (writes) {
        block.keys = Widened(in.k, s, d, wide_keys);
        block.values = Widened(in.v, s, d, wide_values);
        block.dkeys = Accumulator(out.k, d, wide_dkeys);
        block.dvalues = Accumulator(out.v, d, wide_dvalues);
      }
      // The last block of rows comes first. It sees every column. So with `writes` it overwrites all of dK and dV, and the
      // other blocks add to them.
      for (int64_t first = (s - 1) / kAttentionRows * kAttentionRows; first >= 0; first -= kAttentionRows) {
        const int64_t rows = std::min(kAttentionRows, s - first);
        const MatrixView<float> dqueries = Accumulator(FromRow(out.q, first), d, wide_dqueries);
        block.Add({sample, shape.first_head + head, first, s}, rows, writes && first + rows == s ? 0.0f : 1.0f,
                  {probs + first * s, s}, Widened(FromRow(in.q, first), rows, d, wide_queries),
                  Widened(FromRow(dout, first), rows, d, wide_dout), dqueries);
        Store(dqueries, rows, d, FromRow(out.q, first));
      }
      if (IsLastOfKeys(shape, head)) {
        Store(block.dkeys, s, d, out.k);
        Store(block.dvalues, s, d, out.v);
      }
    }
  }
}

#define LYNX_INSTANTIATE(T)                                                                                                  \
  template void CpuOps<T>::ProbsForward(const AttentionShape&, const T*, float*, T*);                                        \
  template void CpuOps<T>::ContextForward(const AttentionShape&, const T*, const T*, const DropoutKey&, float*, T*);         \
  template void CpuOps<T>::AttentionBackward(const AttentionShape&, const T*, const T*, const T*, const DropoutKey&, float*, \
                                             T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
