// Bfloat16Gemm: products of bfloat16 matrices, summed in fp32 and rounded once.
//
// On a processor that multiplies bfloat16 (AVX512-BF16, AMX) they are oneDNN's (one_dnn_gemm.h). On any other they
// are OpenBLAS's in single precision, of copies in fp32 that are made block by block in panels of fixed size, as
// every matrix product copies its operands for the caches. Which of both it is depends on the machine alone, and the
// order of a sum on shapes: the same product gives the same bits on one machine. One thread at a time; owns the
// panels.
#ifndef LYNX_WORKER_BACKEND_CPU_BFLOAT16_GEMM_H_
#define LYNX_WORKER_BACKEND_CPU_BFLOAT16_GEMM_H_

#include <cstdint>
#include <memory>

#include "common/bfloat16.h"
#include "worker/backend/cpu/gemm.h"
#include "worker/backend/cpu/one_dnn_gemm.h"

namespace lynx::cpu {

class Bfloat16Gemm {
 public:
  Bfloat16Gemm();

  // c = op(a) op(b) + bias, a row that is added to every row; null: none.
  void Multiply(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b, const Bfloat16* bias,
                MatrixView<Bfloat16> c);
  // c = op(a) op(b), or += .
  void Multiply(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b, ProductInto into,
                MatrixView<float> c);

 private:
  template <class C>
  void MultiplyWidened(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b,
                       const Bfloat16* bias, float beta, MatrixView<C> c);

  std::unique_ptr<OneDnnGemm> one_dnn_;  // null where oneDNN does not multiply bfloat16 fast
  std::unique_ptr<float[]> panels_;      // for the others
};

}  // namespace lynx::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_BFLOAT16_GEMM_H_
