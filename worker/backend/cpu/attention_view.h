// Views of the heads of an attention in qkv. The q, k and v of a head are columns of qkv's rows (AttentionShape). Attention on
// fp32 reads them there without a copy. Pure.
#ifndef LYNX_WORKER_BACKEND_CPU_ATTENTION_VIEW_H_
#define LYNX_WORKER_BACKEND_CPU_ATTENTION_VIEW_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/check.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/gemm.h"

namespace lynx::worker::cpu {

// One query head of one sample, with the keys and values that it uses.
template <class T>
struct HeadView {
  MatrixView<T> q, k, v;  // (s, d), (s, d) and (s, e)

  HeadView(T* qkv, const AttentionShape& shape, int64_t sample, int64_t head) {
    T* const row = qkv + sample * shape.s * shape.width();
    const int64_t key_head = head / (shape.a / shape.k);
    q = {row + head * shape.d, shape.width()};
    k = {row + (shape.a + key_head) * shape.d, shape.width()};
    v = {row + (shape.a + shape.k) * shape.d + key_head * shape.value_size(), shape.width()};
  }
};

// Returns the view of the head in context (b, s, a, e) or in its gradient: a matrix (s, e).
template <class T>
MatrixView<T> ContextView(T* context, const AttentionShape& shape, int64_t sample, int64_t head) {
  return {context + (sample * shape.s * shape.a + head) * shape.value_size(), shape.a * shape.value_size()};
}

template <class T>
MatrixView<T> FromRow(MatrixView<T> matrix, int64_t row) {
  return {matrix.data + row * matrix.stride, matrix.stride};
}

// Gives out the matrices that WideHeadFloats<T> counts, one after another, from an op's workspace. fp32 needs no copies, so
// Whole and Rows then return null.
template <class T>
class WideHead {
 public:
  // The matrices begin `after` floats after the start of the workspace. For fp32 the workspace may be null.
  WideHead(const AttentionShape& shape, float* workspace, int64_t after)
      : shape_(shape), next_(std::is_same_v<T, float> ? nullptr : workspace + after) {}

  float* Whole() { return Take(shape_.s); }
  float* Rows() { return Take(std::min(shape_.s, kAttentionRows)); }

 private:
  float* Take(int64_t rows) {
    if constexpr (std::is_same_v<T, float>) return nullptr;
    float* const taken = next_;
    next_ += rows * shape_.widest();
    return taken;
  }

  const AttentionShape shape_;
  float* next_;
};

// True if a query head is the first, or the last, of the heads that use the same keys.
inline bool IsFirstOfKeys(const AttentionShape& shape, int64_t head) { return head % (shape.a / shape.k) == 0; }
inline bool IsLastOfKeys(const AttentionShape& shape, int64_t head) { return (head + 1) % (shape.a / shape.k) == 0; }

inline void CheckShape(const AttentionShape& shape) {
  LYNX_CHECK(shape.k > 0 && shape.a % shape.k == 0 && shape.first_head >= 0);
}
// Unfused attention has values of the size of keys, and scores without a factor.
inline void CheckUnfused(const AttentionShape& shape) {
  CheckShape(shape);
  LYNX_CHECK(shape.value_size() == shape.d && shape.factor == 1);
}

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_ATTENTION_VIEW_H_
