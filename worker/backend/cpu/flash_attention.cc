// Fused causal attention (FlashAttention-2, Dao 2023): the scores are computed tile by tile and never stored. The forward pass
// keeps for each row the largest score m so far, and the sum l of e^(score - m) so far. If m grows, it rescales the partial
// result. At the end it divides the result by l. The backward pass needs only the log-sum-exp of each row, m + log l, to
// compute the probabilities of a tile again: P = e^(S - lse). With the dropout factors M and the result C,
//   dV = (P M)^T dC,  dP = (dC V^T) M,  dS = P (dP - rowsum(dC C)),  dQ = c dS K,  dK = c dS^T Q,
// where c is the factor of the scores: AttentionShape::factor / sqrt(d).
//
// The dropout decisions are those of unfused attention. Tiles that lie completely above the diagonal are not computed.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "worker/backend/cpu/attention_view.h"
#include "worker/backend/cpu/conversion.h"
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/dropout.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

constexpr int64_t kRows = 64, kColumns = 256;  // size of a tile
static_assert(kColumns <= DropoutStream::kChunk);
static_assert(kColumns % kRows == 0, "every row of a tile that is visited sees its first column");

struct alignas(64) Tile {
  std::array<float, kRows * kColumns> values;

  float* Row(int64_t row) { return values.data() + row * kColumns; }
  MatrixView<float> view() { return {values.data(), kColumns}; }
  MatrixView<const float> const_view() const { return {values.data(), kColumns}; }
};

// The place of a tile: rows [first_row, first_row + rows) and columns [first_column, first_column + columns) of one head's
// scores.
struct TilePlace {
  int64_t sample, head, s;  // head: counted over all ranks
  int64_t first_row, rows, first_column, columns;

  // Returns how many of the tile's columns its row `row` may use.
  int64_t VisibleIn(int64_t row) const { return std::min(first_row + row + 1 - first_column, columns); }
  const float* Factors(DropoutStream& dropout, int64_t row) const {
    return dropout.Factors(sample, (head * s + first_row + row) * s + first_column, VisibleIn(row));
  }
};

// The largest score m of a row and the sum of e^(score - m), over the tiles so far.
struct RowSums {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
};

// Replaces scores (count) by e^(score - m), where m is the new largest score, and adds them to the row's sum. Returns the
// factor by which the earlier results of the row must be multiplied. count > 0.
LYNX_SIMD float TakeIn(float* scores, int64_t count, RowSums* sums) {
  float max = sums->max;
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < count; ++i) max = scores[i] > max ? scores[i] : max;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = Exp(scores[i] - max);
    sum += scores[i];
  }
  const float factor = Exp(sums->max - max);  // 0 for the first tile
  sums->max = max;
  sums->sum = sums->sum * factor + sum;
  return factor;
}

LYNX_SIMD void Scale(float factor, int64_t count, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

LYNX_SIMD void Multiply(const float* factors, int64_t count, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] *= factors[i];
}

template <class T>
LYNX_SIMD float Dot(const T* x, const T* y, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

// Replaces the scores by P, and the gradient dP by dS. `row_sum`: the sum of the row of dC C.
LYNX_SIMD void ScoreGradient(float lse, float row_sum, int64_t count, float* scores, float* gradient) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = Exp(scores[i] - lse);
    gradient[i] = scores[i] * (gradient[i] - row_sum);
  }
}

// Does the same as ScoreGradient, but with dropout: replaces the scores by P M, and the gradient by dS.
LYNX_SIMD void DroppedScoreGradient(const float* factors, float lse, float row_sum, int64_t count, float* scores,
                                    float* gradient) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float probability = Exp(scores[i] - lse);
    scores[i] = probability * factors[i];
    gradient[i] = probability * (gradient[i] * factors[i] - row_sum);
  }
}

void ClearFrom(int64_t visible, int64_t columns, float* row) {
  std::memset(row + visible, 0, static_cast<size_t>(columns - visible) * sizeof(float));
}

// One head of one sample.
struct Head {
  MatrixView<const float> keys, values;
  int64_t d, e;  // the sizes of a head of keys and of one of values
  float scale;   // the factor of the scores

  // Computes scores = scale * queries keys^T for one tile. The first row of `queries` is the tile's first row.
  void Scores(const TilePlace& at, MatrixView<const float> queries, Tile& scores) const {
    Gemm(Transpose::kNo, Transpose::kYes, at.rows, at.columns, d, scale, queries, FromRow(keys, at.first_column), 0.0f,
         scores.view());
  }
};

// Computes the rows of the result for one row of tiles, and their log-sum-exps. queries, out and lse begin with the first row
// of these tiles.
void ForwardRows(const Head& head, TilePlace at, DropoutStream& dropout, MatrixView<const float> queries, Tile& probs,
                 MatrixView<float> out, float* lse) {
  std::array<RowSums, kRows> sums;
  const int64_t end = at.first_row + at.rows;
  for (at.first_column = 0; at.first_column < end; at.first_column += kColumns) {
    at.columns = std::min(kColumns, end - at.first_column);
    head.Scores(at, queries, probs);
    for (int64_t row = 0; row < at.rows; ++row) {
      const int64_t visible = at.VisibleIn(row);
      const float factor = TakeIn(probs.Row(row), visible, &sums[row]);
      if (at.first_column > 0) Scale(factor, head.e, out.data + row * out.stride);
      if (!dropout.identity()) Multiply(at.Factors(dropout, row), visible, probs.Row(row));
      ClearFrom(visible, at.columns, probs.Row(row));
    }
    Gemm(Transpose::kNo, Transpose::kNo, at.rows, head.e, at.columns, 1.0f, probs.const_view(),
         FromRow(head.values, at.first_column), at.first_column == 0 ? 0.0f : 1.0f, out);
  }
  for (int64_t row = 0; row < at.rows; ++row) {
    Scale(1.0f / sums[row].sum, head.e, out.data + row * out.stride);
    lse[row] = sums[row].max + std::log(sums[row].sum);
  }
}

struct BackwardTiles {
  Tile probs;     // P M
  Tile gradient;  // dP, then dS
};

// The tensors of one row of tiles. They begin with the first row of these tiles. Only dkeys and dvalues are whole.
struct BackwardRowsOf {
  MatrixView<const float> queries, dcontext;
  const float *lse, *row_sums;
  MatrixView<float> dqueries, dkeys, dvalues;
};

// Computes what one row of tiles adds to the gradients. `writes`: the gradients of keys and values are overwritten, because
// this row of tiles is computed first and covers all of them.
void BackwardRows(const Head& head, TilePlace at, DropoutStream& dropout, const BackwardRowsOf& row, bool writes,
                  BackwardTiles& tiles) {
  const float beta = writes ? 0.0f : 1.0f;
  const int64_t end = at.first_row + at.rows;
  for (at.first_column = 0; at.first_column < end; at.first_column += kColumns) {
    at.columns = std::min(kColumns, end - at.first_column);
    head.Scores(at, row.queries, tiles.probs);
    Gemm(Transpose::kNo, Transpose::kYes, at.rows, at.columns, head.e, 1.0f, row.dcontext,
         FromRow(head.values, at.first_column), 0.0f, tiles.gradient.view());
    for (int64_t i = 0; i < at.rows; ++i) {
      const int64_t visible = at.VisibleIn(i);
      float *const probs = tiles.probs.Row(i), *const gradient = tiles.gradient.Row(i);
      if (dropout.identity()) {
        ScoreGradient(row.lse[i], row.row_sums[i], visible, probs, gradient);
      } else {
        DroppedScoreGradient(at.Factors(dropout, i), row.lse[i], row.row_sums[i], visible, probs, gradient);
      }
      ClearFrom(visible, at.columns, probs);
      ClearFrom(visible, at.columns, gradient);
    }
    Gemm(Transpose::kYes, Transpose::kNo, at.columns, head.e, at.rows, 1.0f, tiles.probs.const_view(), row.dcontext, beta,
         FromRow(row.dvalues, at.first_column));
    Gemm(Transpose::kNo, Transpose::kNo, at.rows, head.d, at.columns, head.scale, tiles.gradient.const_view(),
         FromRow(head.keys, at.first_column), at.first_column == 0 ? 0.0f : 1.0f, row.dqueries);
    Gemm(Transpose::kYes, Transpose::kNo, at.columns, head.d, at.rows, head.scale, tiles.gradient.const_view(), row.queries,
         beta, FromRow(row.dkeys, at.first_column));
  }
}

Head HeadOf(const AttentionShape& shape) {
  return {.keys = {},
          .values = {},
          .d = shape.d,
          .e = shape.value_size(),
          .scale = shape.factor / std::sqrt(static_cast<float>(shape.d))};
}

}  // namespace

static_assert(kRows == kAttentionRows);

template <class T>
void CpuOps<T>::FlashForward(const AttentionShape& shape, const T* qkv, const DropoutKey& key, float* workspace, T* context,
                             float* lse) {
  CheckShape(shape);
  DropoutStream dropout(key);
  Tile probs;
  WideHead<T> wide(shape, workspace, 0);
  float *const wide_keys = wide.Whole(), *const wide_values = wide.Whole();
  float *const wide_queries = wide.Rows(), *const wide_context = wide.Rows();
  Head one = HeadOf(shape);
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < shape.a; ++head, lse += shape.s) {
      const HeadView<const T> in(qkv, shape, sample, head);
      if (IsFirstOfKeys(shape, head)) {
        one.keys = Widened(in.k, shape.s, shape.d, wide_keys);
        one.values = Widened(in.v, shape.s, one.e, wide_values);
      }
      for (int64_t first = 0; first < shape.s; first += kRows) {
        const int64_t rows = std::min(kRows, shape.s - first);
        const TilePlace at{sample, shape.first_head + head, shape.s, first, rows, 0, 0};
        const MatrixView<T> out = FromRow(ContextView(context, shape, sample, head), first);
        const MatrixView<float> sum = Accumulator(out, one.e, wide_context);
        ForwardRows(one, at, dropout, Widened(FromRow(in.q, first), rows, shape.d, wide_queries), probs, sum, lse + first);
        Store(sum, rows, one.e, out);
      }
    }
  }
}

template <class T>
void CpuOps<T>::FlashBackward(const AttentionShape& shape, const T* qkv, const T* context, const float* lse, const T* dcontext,
                              const DropoutKey& key, float* workspace, T* dqkv) {
  CheckShape(shape);
  const int64_t s = shape.s, d = shape.d;
  DropoutStream dropout(key);
  BackwardTiles tiles;
  float* row_sums = workspace;
  WideHead<T> wide(shape, workspace, shape.b * shape.a * s);
  float *const wide_keys = wide.Whole(), *const wide_values = wide.Whole();
  float *const wide_dkeys = wide.Whole(), *const wide_dvalues = wide.Whole();
  float *const wide_queries = wide.Rows(), *const wide_dout = wide.Rows(), *const wide_dqueries = wide.Rows();
  Head one = HeadOf(shape);
  BackwardRowsOf of{};
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < shape.a; ++head, lse += s, row_sums += s) {
      const HeadView<const T> in(qkv, shape, sample, head);
      const HeadView<T> out(dqkv, shape, sample, head);
      const MatrixView<const T> made = ContextView(context, shape, sample, head);
      const MatrixView<const T> dout = ContextView(dcontext, shape, sample, head);
      for (int64_t row = 0; row < s; ++row) {
        row_sums[row] = Dot(made.data + row * made.stride, dout.data + row * dout.stride, one.e);
      }
      // This head overwrites the shared gradients; the other heads add to them.
      const bool first_of_keys = IsFirstOfKeys(shape, head);
      if (first_of_keys) {
        one.keys = Widened(in.k, s, d, wide_keys);
        one.values = Widened(in.v, s, one.e, wide_values);
        of.dkeys = Accumulator(out.k, d, wide_dkeys);
        of.dvalues = Accumulator(out.v, one.e, wide_dvalues);
      }
      for (int64_t first = (s - 1) / kRows * kRows; first >= 0; first -= kRows) {
        const int64_t rows = std::min(kRows, s - first);
        const TilePlace at{sample, shape.first_head + head, s, first, rows, 0, 0};
        of.queries = Widened(FromRow(in.q, first), rows, d, wide_queries);
        of.dcontext = Widened(FromRow(dout, first), rows, one.e, wide_dout);
        of.lse = lse + first;
        of.row_sums = row_sums + first;
        of.dqueries = Accumulator(FromRow(out.q, first), d, wide_dqueries);
        BackwardRows(one, at, dropout, of, first_of_keys && first + kRows >= s, tiles);
        Store(of.dqueries, rows, d, FromRow(out.q, first));
      }
      if (IsLastOfKeys(shape, head)) {
        Store(of.dkeys, s, d, out.k);
        Store(of.dvalues, s, one.e, out.v);
      }
    }
  }
}

#define LYNX_INSTANTIATE(T)                                                                                                    \
  template void CpuOps<T>::FlashForward(const AttentionShape&, const T*, const DropoutKey&, float*, T*, float*);               \
  template void CpuOps<T>::FlashBackward(const AttentionShape&, const T*, const T*, const float*, const T*, const DropoutKey&, \
                                         float*, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
