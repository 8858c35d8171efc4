// Fused causal attention (FlashAttention-2, Dao 2023): the scores are made tile by tile and never stored. Forward
// keeps of each row the largest score m and the sum l of e^(score - m) so far, and scales what it has summed of the
// result when m grows; at the end it divides by l. The log-sum-exp of a row, m + log l, is all that backward needs to
// make a tile's probabilities again: P = e^(S - lse). With M the dropout factors and C the result,
//   dV = (P M)^T dC,  dP = (dC V^T) M,  dS = P (dP - rowsum(dC C)),  dQ = dS K / sqrt(d),  dK = dS^T Q / sqrt(d).
//
// The dropout decisions are those of the unfused form. Tiles right of the diagonal are never visited.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "worker/backend/cpu/attention_view.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/dropout.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::cpu {
namespace {

constexpr int64_t kRows = 64, kColumns = 256;  // of a tile
static_assert(kColumns <= DropoutStream::kChunk);
static_assert(kColumns % kRows == 0, "every row of a tile that is visited sees its first column");

struct alignas(64) Tile {
  std::array<float, kRows * kColumns> values;

  float* Row(int64_t row) { return values.data() + row * kColumns; }
  MatrixView<float> view() { return {values.data(), kColumns}; }
  MatrixView<const float> const_view() const { return {values.data(), kColumns}; }
};

// Rows [first_row, first_row + rows) and columns [first_column, first_column + columns) of one head's scores.
struct TilePlace {
  int64_t sample, head, s;  // head: counted over all ranks
  int64_t first_row, rows, first_column, columns;

  // Columns of the tile that its row `row` may look at.
  int64_t VisibleIn(int64_t row) const { return std::min(first_row + row + 1 - first_column, columns); }
  const float* Factors(DropoutStream& dropout, int64_t row) const {
    return dropout.Factors(sample, (head * s + first_row + row) * s + first_column, VisibleIn(row));
  }
};

// What a row has seen so far.
struct RowSums {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
};

// scores (count) become e^(score - m), and the row's sums take them in. Returns what the results so far must be
// multiplied by. count > 0.
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

LYNX_SIMD float Dot(const float* x, const float* y, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

// scores become P, gradient dS. `row_sum`: of dC C.
LYNX_SIMD void ScoreGradient(float lse, float row_sum, int64_t count, float* scores, float* gradient) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = Exp(scores[i] - lse);
    gradient[i] = scores[i] * (gradient[i] - row_sum);
  }
}

// The same, and scores become P M.
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
  HeadView<const float> in;
  int64_t sample, index, d;
  float scale;  // of the scores

  void Scores(const TilePlace& at, Tile& scores) const {
    Gemm(Transpose::kNo, Transpose::kYes, at.rows, at.columns, d, scale, FromRow(in.q, at.first_row),
         FromRow(in.k, at.first_column), 0.0f, scores.view());
  }
};

// The result's rows of one tile row, and their log-sum-exps.
void ForwardRows(const Head& head, TilePlace at, DropoutStream& dropout, Tile& probs, MatrixView<float> context,
                 float* lse) {
  std::array<RowSums, kRows> sums;
  const MatrixView<float> out = FromRow(context, at.first_row);
  const int64_t end = at.first_row + at.rows;
  for (at.first_column = 0; at.first_column < end; at.first_column += kColumns) {
    at.columns = std::min(kColumns, end - at.first_column);
    head.Scores(at, probs);
    for (int64_t row = 0; row < at.rows; ++row) {
      const int64_t visible = at.VisibleIn(row);
      const float factor = TakeIn(probs.Row(row), visible, &sums[row]);
      if (at.first_column > 0) Scale(factor, head.d, out.data + row * out.stride);
      if (!dropout.identity()) Multiply(at.Factors(dropout, row), visible, probs.Row(row));
      ClearFrom(visible, at.columns, probs.Row(row));
    }
    Gemm(Transpose::kNo, Transpose::kNo, at.rows, head.d, at.columns, 1.0f, probs.const_view(),
         FromRow(head.in.v, at.first_column), at.first_column == 0 ? 0.0f : 1.0f, out);
  }
  for (int64_t row = 0; row < at.rows; ++row) {
    Scale(1.0f / sums[row].sum, head.d, out.data + row * out.stride);
    lse[row] = sums[row].max + std::log(sums[row].sum);
  }
}

struct BackwardTiles {
  Tile probs;     // P M
  Tile gradient;  // dP, then dS
};

// What one tile row adds to the gradients. `lse`, `row_sums`: from its first row on. `writes`: it is the first to
// touch the gradients of keys and values, and sees all of them.
void BackwardRows(const Head& head, TilePlace at, DropoutStream& dropout, MatrixView<const float> dcontext,
                  const float* lse, const float* row_sums, bool writes, BackwardTiles& tiles,
                  const HeadView<float>& out) {
  const MatrixView<const float> dout = FromRow(dcontext, at.first_row);
  const float beta = writes ? 0.0f : 1.0f;
  const int64_t end = at.first_row + at.rows;
  for (at.first_column = 0; at.first_column < end; at.first_column += kColumns) {
    at.columns = std::min(kColumns, end - at.first_column);
    head.Scores(at, tiles.probs);
    Gemm(Transpose::kNo, Transpose::kYes, at.rows, at.columns, head.d, 1.0f, dout,
         FromRow(head.in.v, at.first_column), 0.0f, tiles.gradient.view());
    for (int64_t row = 0; row < at.rows; ++row) {
      const int64_t visible = at.VisibleIn(row);
      float *const probs = tiles.probs.Row(row), *const gradient = tiles.gradient.Row(row);
      if (dropout.identity()) {
        ScoreGradient(lse[row], row_sums[row], visible, probs, gradient);
      } else {
        DroppedScoreGradient(at.Factors(dropout, row), lse[row], row_sums[row], visible, probs, gradient);
      }
      ClearFrom(visible, at.columns, probs);
      ClearFrom(visible, at.columns, gradient);
    }
    Gemm(Transpose::kYes, Transpose::kNo, at.columns, head.d, at.rows, 1.0f, tiles.probs.const_view(), dout, beta,
         FromRow(out.v, at.first_column));
    Gemm(Transpose::kNo, Transpose::kNo, at.rows, head.d, at.columns, head.scale, tiles.gradient.const_view(),
         FromRow(head.in.k, at.first_column), at.first_column == 0 ? 0.0f : 1.0f, FromRow(out.q, at.first_row));
    Gemm(Transpose::kYes, Transpose::kNo, at.columns, head.d, at.rows, head.scale, tiles.gradient.const_view(),
         FromRow(head.in.q, at.first_row), beta, FromRow(out.k, at.first_column));
  }
}

}  // namespace

void CpuBackend::FlashForward(const AttentionShape& shape, const float* qkv, const DropoutKey& key, float* context,
                              float* lse) {
  CheckShape(shape);
  DropoutStream dropout(key);
  Tile probs;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.d));
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < shape.a; ++head, lse += shape.s) {
      const Head one{{qkv, shape, sample, head}, sample, shape.first_head + head, shape.d, scale};
      for (int64_t first = 0; first < shape.s; first += kRows) {
        const TilePlace at{sample, one.index, shape.s, first, std::min(kRows, shape.s - first), 0, 0};
        ForwardRows(one, at, dropout, probs, ContextView(context, shape, sample, head), lse + first);
      }
    }
  }
}

void CpuBackend::FlashBackward(const AttentionShape& shape, const float* qkv, const float* context, const float* lse,
                               const float* dcontext, const DropoutKey& key, float* workspace, float* dqkv) {
  CheckShape(shape);
  DropoutStream dropout(key);
  BackwardTiles tiles;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.d));
  float* row_sums = workspace;
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < shape.a; ++head, lse += shape.s, row_sums += shape.s) {
      const Head one{{qkv, shape, sample, head}, sample, shape.first_head + head, shape.d, scale};
      const HeadView<float> out(dqkv, shape, sample, head);
      const MatrixView<const float> made = ContextView(context, shape, sample, head);
      const MatrixView<const float> dout = ContextView(dcontext, shape, sample, head);
      for (int64_t row = 0; row < shape.s; ++row) {
        row_sums[row] = Dot(made.data + row * made.stride, dout.data + row * dout.stride, shape.d);
      }
      const bool first_of_keys = head % (shape.a / shape.k) == 0;  // the others add to what it wrote
      for (int64_t first = (shape.s - 1) / kRows * kRows; first >= 0; first -= kRows) {
        const TilePlace at{sample, one.index, shape.s, first, std::min(kRows, shape.s - first), 0, 0};
        BackwardRows(one, at, dropout, dout, lse + first, row_sums + first, first_of_keys && first + kRows >= shape.s,
                     tiles, out);
      }
    }
  }
}

}  // namespace lynx::cpu
