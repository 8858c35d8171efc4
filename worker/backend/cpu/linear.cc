// Linear layers as matrix products.
#include <cstring>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/gemm.h"

namespace lynx::worker::cpu {
namespace {

// y (n, out) = x (n, in) w^T
ProductShape Forward(int64_t n, int64_t in, int64_t out) {
  return {.a = Transpose::kNo, .b = Transpose::kYes, .m = n, .n = out, .k = in};
}
// dx (n, in) = dy (n, out) w
ProductShape Backward(int64_t n, int64_t in, int64_t out) {
  return {.a = Transpose::kNo, .b = Transpose::kNo, .m = n, .n = in, .k = out};
}
// dw (out, in) = dy^T x
ProductShape Weight(int64_t n, int64_t in, int64_t out) {
  return {.a = Transpose::kYes, .b = Transpose::kNo, .m = out, .n = in, .k = n};
}

void Multiply(const ProductShape& shape, MatrixView<const float> a, MatrixView<const float> b, float beta,
              MatrixView<float> c) {
  Gemm(shape.a, shape.b, shape.m, shape.n, shape.k, 1.0f, a, b, beta, c);
}

}  // namespace

template <>
void CpuOps<float>::LinearForward(const float* x, const float* w, const float* bias, int64_t n, int64_t in, int64_t out,
                                  float* y) {
  // First writes the bias into the rows of y, then adds the product. This costs no time, because without a bias OpenBLAS fills
  // the rows with zeros first.
  if (bias != nullptr) {
    for (int64_t row = 0; row < n; ++row) std::memcpy(y + row * out, bias, static_cast<size_t>(out) * sizeof(float));
  }
  Multiply(Forward(n, in, out), {x, in}, {w, in}, bias != nullptr ? 1.0f : 0.0f, {y, out});
}

template <>
void CpuOps<Bfloat16>::LinearForward(const Bfloat16* x, const Bfloat16* w, const Bfloat16* bias, int64_t n, int64_t in,
                                     int64_t out, Bfloat16* y) {
  gemm_.Multiply(Forward(n, in, out), {x, in}, {w, in}, bias, {y, out});
}

template <>
void CpuOps<float>::LogitsForward(const float* x, const float* w, int64_t n, int64_t in, int64_t out, float* logits) {
  Multiply(Forward(n, in, out), {x, in}, {w, in}, 0.0f, {logits, out});
}

template <>
void CpuOps<Bfloat16>::LogitsForward(const Bfloat16* x, const Bfloat16* w, int64_t n, int64_t in, int64_t out, float* logits) {
  gemm_.Multiply(Forward(n, in, out), {x, in}, {w, in}, ProductInto::kOverwrite, {logits, out});
}

template <>
void CpuOps<float>::LinearBackward(const float* dy, const float* w, int64_t n, int64_t in, int64_t out, float* dx) {
  Multiply(Backward(n, in, out), {dy, out}, {w, in}, 0.0f, {dx, in});
}

template <>
void CpuOps<Bfloat16>::LinearBackward(const Bfloat16* dy, const Bfloat16* w, int64_t n, int64_t in, int64_t out, Bfloat16* dx) {
  gemm_.Multiply(Backward(n, in, out), {dy, out}, {w, in}, nullptr, {dx, in});
}

template <>
void CpuOps<float>::AddLinearBackward(const float* dy, const float* w, int64_t n, int64_t in, int64_t out, float* dx) {
  Multiply(Backward(n, in, out), {dy, out}, {w, in}, 1.0f, {dx, in});
}

template <>
void CpuOps<Bfloat16>::AddLinearBackward(const Bfloat16* dy, const Bfloat16* w, int64_t n, int64_t in, int64_t out,
                                         Bfloat16* dx) {
  gemm_.Multiply(Backward(n, in, out), {dy, out}, {w, in}, ProductInto::kAdd, MatrixView<Bfloat16>{dx, in});
}

template <>
void CpuOps<float>::LinearWeight(const float* x, const float* dy, int64_t n, int64_t in, int64_t out, float* dw, float* dbias) {
  Multiply(Weight(n, in, out), {dy, out}, {x, in}, 1.0f, {dw, in});
  if (dbias != nullptr) BiasGradient(dy, n, out, dbias);
}

template <>
void CpuOps<Bfloat16>::LinearWeight(const Bfloat16* x, const Bfloat16* dy, int64_t n, int64_t in, int64_t out, float* dw,
                                    float* dbias) {
  gemm_.Multiply(Weight(n, in, out), {dy, out}, {x, in}, ProductInto::kAdd, {dw, in});
  if (dbias != nullptr) BiasGradient(dy, n, out, dbias);
}

}  // namespace lynx::worker::cpu
