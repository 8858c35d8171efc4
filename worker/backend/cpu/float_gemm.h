// FloatGemm computes products of fp32 matrices, with the interface of Bfloat16Gemm. So the code of an op is the same for both
// types. Pure; thread-safe for distinct results.
#ifndef LYNX_WORKER_BACKEND_CPU_FLOAT_GEMM_H_
#define LYNX_WORKER_BACKEND_CPU_FLOAT_GEMM_H_

#include "worker/backend/cpu/gemm.h"
#include "worker/backend/cpu/one_dnn_gemm.h"

namespace lynx::worker::cpu {

struct FloatGemm {
  // c = op(a) op(b), or c += op(a) op(b).
  void Multiply(const ProductShape& shape, MatrixView<const float> a, MatrixView<const float> b, ProductInto into,
                MatrixView<float> c) const {
    Gemm(shape.a, shape.b, shape.m, shape.n, shape.k, 1.0f, a, b, into == ProductInto::kAdd ? 1.0f : 0.0f, c);
  }
};

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_FLOAT_GEMM_H_
