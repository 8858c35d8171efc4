// Bfloat16Gemm computes products of bfloat16 matrices. They are summed in fp32 and rounded once.
//
// If the processor multiplies bfloat16 (AVX512-BF16, AMX), oneDNN computes the products (one_dnn_gemm.h). Otherwise OpenBLAS
// computes them in single precision, from fp32 copies that are made block by block in panels of fixed size. The choice depends
// only on the machine, and the order of a sum depends only on the shapes. So the same product has the same bits on the same
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
  // c = op(a) op(b), or c += op(a) op(b). A bfloat16 c to which a product is added is rounded once more.
  void Multiply(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b, ProductInto into,
                MatrixView<Bfloat16> c);
  void Multiply(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b, ProductInto into,
                MatrixView<float> c);

 private:
  template <class C>
  void MultiplyWidened(const ProductShape& shape, MatrixView<const Bfloat16> a, MatrixView<const Bfloat16> b,
                       const Bfloat16* bias, float beta, MatrixView<C> c);

  std::unique_ptr<OneDnnGemm> one_dnn_;  // null if oneDNN has no fast bfloat16 product
  std::unique_ptr<float[]> panels_;      // used if one_dnn_ is null
};

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_BFLOAT16_GEMM_H_
