// Queries, keys and values from latents (DeepSeek-V2, arXiv 2405.04434), as matrix products of columns of wider matrices. The
// columns that a head of keys gets from a product come after its rotated part, so each head has a product of its own. The
// gradients of the latents of keys and values are the sum of these products over the heads; it is computed in fp32.
#include <algorithm>
#include <array>

#include "common/check.h"
#include "worker/backend/cpu/conversion.h"
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

// The parts of a row of qkv.
template <class T>
struct Columns {
  MatrixView<T> queries, keys, values;

  Columns(const LatentShape& shape, T* qkv)
      : queries{qkv, shape.width()}, keys{qkv + shape.a * shape.d, shape.width()}, values{qkv + 2 * shape.a * shape.d,
                                                                                          shape.width()} {}
  // The elements of a head of keys that are made from latents of keys and values.
  MatrixView<T> MadeKeys(const LatentShape& shape, int64_t head) const {
    return {keys.data + head * shape.d + shape.t, keys.stride};
  }
};

template <class T>
MatrixView<const T> Const(MatrixView<T> matrix) {
  return {matrix.data, matrix.stride};
}

// What the queries are made from: latents, or the layer's input.
template <class T>
MatrixView<T> QueryInputs(const LatentShape& shape, T* normed, T* x) {
  return shape.p == 0 ? MatrixView<T>{x, shape.h} : MatrixView<T>{normed, shape.z()};
}

// The rows of a head of keys, and those of all heads of values, in the weight of keys and values or in its gradient.
template <class T>
MatrixView<T> KeyRows(const LatentShape& shape, T* w, int64_t head) {
  return {w + head * (shape.d - shape.t) * shape.r, shape.r};
}
template <class T>
MatrixView<T> ValueRows(const LatentShape& shape, T* w) {
  return KeyRows(shape, w, shape.a);
}

template <class T>
void CopyRotated(const LatentShape& shape, const T* normed, MatrixView<T> keys) {
  for (int64_t token = 0; token < shape.n; ++token) {
    const T* const rotated = normed + token * shape.z() + shape.p + shape.r;
    for (int64_t head = 0; head < shape.a; ++head) {
      std::copy(rotated, rotated + shape.t, keys.data + token * keys.stride + head * shape.d);
    }
  }
}

// Each head of keys has the rotated latents, so their gradient is the sum over the heads.
template <class T>
LYNX_SIMD void SumRotated(const LatentShape& shape, MatrixView<const T> dkeys, T* dnormed) {
  std::array<float, 2 * RotaryTable::kMaxPairs> sums;
  for (int64_t token = 0; token < shape.n; ++token) {
    std::fill_n(sums.begin(), shape.t, 0.0f);
    for (int64_t head = 0; head < shape.a; ++head) {
      const T* const of_head = dkeys.data + token * dkeys.stride + head * shape.d;
#pragma omp simd
      for (int64_t i = 0; i < shape.t; ++i) sums[i] += of_head[i];
    }
    T* const out = dnormed + token * shape.z() + shape.p + shape.r;
#pragma omp simd
    for (int64_t i = 0; i < shape.t; ++i) out[i] = sums[i];
  }
}

}  // namespace

template <class T>
void CpuOps<T>::LatentHeadsForward(const LatentShape& shape, const T* normed, const T* x, const T* w_query,
                                   const T* w_key_value, T* qkv) {
  const auto multiply = [&](MatrixView<const T> inputs, MatrixView<const T> w, int64_t in, int64_t out, MatrixView<T> y) {
    gemm_.Multiply({.b = Transpose::kYes, .m = shape.n, .n = out, .k = in}, inputs, w, ProductInto::kOverwrite, y);
  };
  const Columns<T> out(shape, qkv);
  const int64_t inputs = shape.query_inputs();
  multiply(QueryInputs(shape, normed, x), {w_query, inputs}, inputs, shape.a * shape.d, out.queries);
  const MatrixView<const T> latents{normed + shape.p, shape.z()};
  for (int64_t head = 0; head < shape.a; ++head) {
    multiply(latents, KeyRows(shape, w_key_value, head), shape.r, shape.d - shape.t, out.MadeKeys(shape, head));
  }
  multiply(latents, ValueRows(shape, w_key_value), shape.r, shape.a * shape.e, out.values);
  CopyRotated(shape, normed, out.keys);
}

template <class T>
void CpuOps<T>::LatentHeadsBackward(const LatentShape& shape, const T* dqkv, const T* w_query, const T* w_key_value,
                                    float* workspace, T* dnormed, T* dx) {
  LYNX_CHECK(shape.t <= 2 * RotaryTable::kMaxPairs);
  const Columns<const T> in(shape, dqkv);
  const int64_t inputs = shape.query_inputs();
  gemm_.Multiply({.m = shape.n, .n = inputs, .k = shape.a * shape.d}, in.queries, {w_query, inputs}, ProductInto::kOverwrite,
                 QueryInputs(shape, dnormed, dx));
  const MatrixView<T> dlatents{dnormed + shape.p, shape.z()};
  const MatrixView<float> sum = Accumulator(dlatents, shape.r, workspace);
  gemm_.Multiply({.m = shape.n, .n = shape.r, .k = shape.a * shape.e}, in.values, ValueRows(shape, w_key_value),
                 ProductInto::kOverwrite, sum);
  for (int64_t head = 0; head < shape.a; ++head) {
    gemm_.Multiply({.m = shape.n, .n = shape.r, .k = shape.d - shape.t}, in.MadeKeys(shape, head),
                   KeyRows(shape, w_key_value, head), ProductInto::kAdd, sum);
  }
  Store(sum, shape.n, shape.r, dlatents);
  SumRotated(shape, in.keys, dnormed);
}

template <class T>
void CpuOps<T>::LatentHeadsWeight(const LatentShape& shape, const T* normed, const T* x, const T* dqkv, float* dw_query,
                                  float* dw_key_value) {
  const auto add = [&](MatrixView<const T> dy, MatrixView<const T> inputs, int64_t in, int64_t out, MatrixView<float> dw) {
    gemm_.Multiply({.a = Transpose::kYes, .m = out, .n = in, .k = shape.n}, dy, inputs, ProductInto::kAdd, dw);
  };
  const Columns<const T> in(shape, dqkv);
  const int64_t inputs = shape.query_inputs();
  add(in.queries, QueryInputs(shape, normed, x), inputs, shape.a * shape.d, {dw_query, inputs});
  const MatrixView<const T> latents{normed + shape.p, shape.z()};
  for (int64_t head = 0; head < shape.a; ++head) {
    add(in.MadeKeys(shape, head), latents, shape.r, shape.d - shape.t, KeyRows(shape, dw_key_value, head));
  }
  add(in.values, latents, shape.r, shape.a * shape.e, ValueRows(shape, dw_key_value));
}

#define LYNX_INSTANTIATE(T)                                                                                       \
  template void CpuOps<T>::LatentHeadsForward(const LatentShape&, const T*, const T*, const T*, const T*, T*);    \
  template void CpuOps<T>::LatentHeadsBackward(const LatentShape&, const T*, const T*, const T*, float*, T*, T*); \
  template void CpuOps<T>::LatentHeadsWeight(const LatentShape&, const T*, const T*, const T*, float*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
