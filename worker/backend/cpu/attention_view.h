// Where the heads of an attention lie: q, k and v are read as columns of qkv's rows, (a + 2k, d), never copied. Pure.
#ifndef LYNX_WORKER_BACKEND_CPU_ATTENTION_VIEW_H_
#define LYNX_WORKER_BACKEND_CPU_ATTENTION_VIEW_H_

#include <cstdint>

#include "common/check.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/gemm.h"

namespace lynx::cpu {

// One query head of one sample, and the keys and values that it looks at.
template <class T>
struct HeadView {
  MatrixView<T> q, k, v;  // (s, d) each

  HeadView(T* qkv, const AttentionShape& shape, int64_t sample, int64_t head) {
    T* const row = qkv + sample * shape.s * shape.width();
    const int64_t key_head = head / (shape.a / shape.k);
    q = {row + head * shape.d, shape.width()};
    k = {row + (shape.a + key_head) * shape.d, shape.width()};
    v = {k.data + shape.k * shape.d, shape.width()};
  }
};

// The same of context (b, s, a, d) or its gradient: (s, d).
template <class T>
MatrixView<T> ContextView(T* context, const AttentionShape& shape, int64_t sample, int64_t head) {
  return {context + (sample * shape.s * shape.a + head) * shape.d, shape.a * shape.d};
}

template <class T>
MatrixView<T> FromRow(MatrixView<T> matrix, int64_t row) {
  return {matrix.data + row * matrix.stride, matrix.stride};
}

inline void CheckShape(const AttentionShape& shape) {
  LYNX_CHECK(shape.k > 0 && shape.a % shape.k == 0 && shape.first_head >= 0);
}

}  // namespace lynx::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_ATTENTION_VIEW_H_
