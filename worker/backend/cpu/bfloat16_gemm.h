// Bfloat16Gemm: products of bfloat16 matrices, summed in fp32 and rounded once.
//
// On a processor that multiplies bfloat16 (AVX512-BF16, AMX), oneDNN computes them (one_dnn_gemm.h). On any other processor,
// OpenBLAS computes them in single precision from fp32 copies, which are made block by block in panels of fixed size. The
// choice depends only on the machine, and the order of a sum only on the shapes, so the same product gives the same bits on one
// machine. One thread at a time; owns the panels.
#ifndef LYNX_WORKER_BACKEND_CPU_BFLOAT16_GEMM_H_
#define LYNX_WORKER_BACKEND_CPU_BFLOAT16_GEMM_H_

#include <cstdint>
#include <memory>

#include "common/bfloat16.h"
#include "worker/backend/cpu/gemm.h"
#include "worker/backend/cpu/one_dnn_gemm.h"

namespace lynx::worker::cpu {

class Bfloat16Gemm {
 public:
  Bfloat16Gemm();

  // c = op(a) op(b) + bias. The bias is one row that is added to every row; null: no bias.
  void Multiply(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b, const Bfloat16* bias,
                MatrixView<Bfloat16> c);
  // c = op(a) op(b), or c += op(a) op(b).
  void Multiply(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b, ProductInto into,
                MatrixView<float> c);

 private:
  template <class C>
  void MultiplyWidened(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b,
                       const Bfloat16* bias, float beta, MatrixView<C> c);

  std::unique_ptr<OneDnnGemm> one_dnn_;  // null where oneDNN has no fast bfloat16 product
  std::unique_ptr<float[]> panels_;      // used where one_dnn_ is null
};

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_BFLOAT16_GEMM_H_
