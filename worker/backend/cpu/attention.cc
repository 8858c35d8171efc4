// Causal attention. Per sample and head: P = softmax(causal(Q K^T / sqrt(d))), C = (P M) V elementwise in M, the
// dropout factors. Backwards:  dV = (P M)^T dC,  dP = (dC V^T) M,  dS = P (dP - rowsum(dP P)),  dQ = dS K / sqrt(d),
// dK = dS^T Q / sqrt(d).
//
// Work goes by blocks of rows, each only as wide as its last row may look, so most of the masked half costs nothing.
// Q, K and V are read where they lie, as columns of qkv's rows (a + 2k, d). Heads that share keys and values add up
// their gradients in the order of heads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "worker/backend/cpu/attention_view.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/dropout.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::cpu {
namespace {

// row (s): scores of the first `visible` columns become their softmax, the others 0.
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

LYNX_SIMD void Multiply(const float* x, const float* factors, int64_t count, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * factors[i];
}

// dS = P (dP - rowsum(dP P)), in place of dP.
LYNX_SIMD void SoftmaxBackwardRow(const float* probs, int64_t count, float* gradient) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += probs[i] * gradient[i];
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) gradient[i] = probs[i] * (gradient[i] - sum);
}

// One row of one head's (s, s) probabilities, of which the columns up to `row` itself are visible.
struct ProbsRow {
  int64_t sample, head, row, s;  // head: counted over all ranks

  int64_t visible() const { return row + 1; }
  int64_t first_element() const { return (head * s + row) * s; }
};

struct DroppedRow {
  const float* in;
  float* out;  // may be `in`
};

// out = in M over the visible columns and 0 in the others before `end`, for each of `rows` with the same M.
void DropRow(DropoutStream& dropout, const ProbsRow& where, int64_t end, std::initializer_list<DroppedRow> rows) {
  for (int64_t at = 0; at < where.visible(); at += DropoutStream::kChunk) {
    const int64_t count = std::min(DropoutStream::kChunk, where.visible() - at);
    const float* factors = dropout.Factors(where.sample, where.first_element() + at, count);
    for (const DroppedRow& row : rows) Multiply(row.in + at, factors, count, row.out + at);
  }
  for (const DroppedRow& row : rows) {
    std::memset(row.out + where.visible(), 0, static_cast<size_t>(end - where.visible()) * sizeof(float));
  }
}

}  // namespace

void CpuBackend::ProbsForward(const AttentionShape& shape, const float* qkv, float* probs) {
  CheckShape(shape);
  const int64_t s = shape.s, d = shape.d;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < shape.a; ++head, probs += s * s) {
      const HeadView<const float> in(qkv, shape, sample, head);
      for (int64_t first = 0; first < s; first += kAttentionRows) {
        const int64_t end = std::min(first + kAttentionRows, s);
        Gemm(Transpose::kNo, Transpose::kYes, end - first, end, d, scale, FromRow(in.q, first), in.k, 0.0f,
             {probs + first * s, s});
        for (int64_t row = first; row < end; ++row) SoftmaxRow(probs + row * s, row + 1, s);
      }
    }
  }
}

void CpuBackend::ContextForward(const AttentionShape& shape, const float* probs, const float* qkv,
                                const DropoutKey& key, float* workspace, float* context) {
  CheckShape(shape);
  const int64_t s = shape.s, a = shape.a, d = shape.d;
  DropoutStream dropout(key);
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < a; ++head, probs += s * s) {
      const HeadView<const float> in(qkv, shape, sample, head);
      const MatrixView<float> out = ContextView(context, shape, sample, head);
      for (int64_t first = 0; first < s; first += kAttentionRows) {
        const int64_t end = std::min(first + kAttentionRows, s);
        const float* weights = probs + first * s;
        if (!dropout.identity()) {
          for (int64_t row = first; row < end; ++row) {
            DropRow(dropout, {sample, shape.first_head + head, row, s}, end,
                    {{probs + row * s, workspace + (row - first) * s}});
          }
          weights = workspace;
        }
        Gemm(Transpose::kNo, Transpose::kNo, end - first, d, end, 1.0f, {weights, s}, in.v, 0.0f,
             FromRow(out, first));
      }
    }
  }
}

void CpuBackend::AttentionBackward(const AttentionShape& shape, const float* probs, const float* qkv,
                                   const float* dcontext, const DropoutKey& key, float* workspace, float* dqkv) {
  CheckShape(shape);
  const int64_t s = shape.s, a = shape.a, d = shape.d;
  DropoutStream dropout(key);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  float* dropped = workspace;          // (block rows, s): P M
  float* dscores = workspace + std::min(kAttentionRows, s) * s;  // (block rows, s): dP, then dS
  for (int64_t sample = 0; sample < shape.b; ++sample) {
    for (int64_t head = 0; head < a; ++head, probs += s * s) {
      const HeadView<const float> in(qkv, shape, sample, head);
      const HeadView<float> out(dqkv, shape, sample, head);
      const MatrixView<const float> dout = ContextView(dcontext, shape, sample, head);
      const bool writes = head % (a / shape.k) == 0;  // the others that share its keys add to what it wrote
      // The last block sees every column: it writes dK and dV, and the earlier blocks add to them.
      for (int64_t first = (s - 1) / kAttentionRows * kAttentionRows; first >= 0; first -= kAttentionRows) {
        const int64_t end = std::min(first + kAttentionRows, s);
        const int64_t rows = end - first;
        const float beta = writes && end == s ? 0.0f : 1.0f;
        const float* weights = probs + first * s;
        Gemm(Transpose::kNo, Transpose::kYes, rows, end, d, 1.0f, FromRow(dout, first), in.v, 0.0f, {dscores, s});
        for (int64_t row = first; row < end; ++row) {
          float* gradient = dscores + (row - first) * s;
          if (!dropout.identity()) {
            DropRow(dropout, {sample, shape.first_head + head, row, s}, end,
                    {{probs + row * s, dropped + (row - first) * s}, {gradient, gradient}});
          }
          SoftmaxBackwardRow(probs + row * s, end, gradient);
        }
        if (!dropout.identity()) weights = dropped;
        Gemm(Transpose::kYes, Transpose::kNo, end, d, rows, 1.0f, {weights, s}, FromRow(dout, first), beta, out.v);
        Gemm(Transpose::kNo, Transpose::kNo, rows, d, end, scale, {dscores, s}, in.k, 0.0f, FromRow(out.q, first));
        Gemm(Transpose::kYes, Transpose::kNo, end, d, rows, scale, {dscores, s}, FromRow(in.q, first), beta, out.k);
      }
    }
  }
}

}  // namespace lynx::cpu
