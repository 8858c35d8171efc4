// OneDnnGemm computes matrix products of bfloat16 operands with oneDNN, summed in fp32. It is for processors that multiply
// bfloat16. It can also be made for fp32 operands. The same code then runs on any processor, so that machines without bfloat16
// units can test it.
//
// A oneDNN primitive is made when its shape occurs for the first time, and is then kept. One thread at a time.
#ifndef LYNX_WORKER_BACKEND_CPU_ONE_DNN_GEMM_H_
#define LYNX_WORKER_BACKEND_CPU_ONE_DNN_GEMM_H_

#include <cstdint>
#include <memory>

#include "common/bfloat16.h"
#include "worker/backend/cpu/gemm.h"

namespace lynx::worker::cpu {

// op(a) is (m, k), op(b) is (k, n).
struct ProductShape {
  Transpose a = Transpose::kNo, b = Transpose::kNo;
  int64_t m = 0, n = 0, k = 0;
};

enum class ProductInto : uint8_t { kOverwrite, kAdd };

class OneDnnGemm {
 public:
  enum class Operands : uint8_t { kBfloat16, kFloat };

  // True if this processor multiplies bfloat16. oneDNN decides this, so the environment variable DNNL_MAX_CPU_ISA can change
  // the result.
  static bool IsFast();

  // kBfloat16 is allowed only if IsFast() is true.
  explicit OneDnnGemm(Operands operands);
  ~OneDnnGemm();

  // c = op(a) op(b) + bias. The bias is one row that is added to every row; null: no bias. The bias and c have the type of the
  // operands.
  template <class T>
  void Multiply(const ProductShape& shape, MatrixView<const T> a, MatrixView<const T> b, const T* bias, MatrixView<T> c) {
    Run({.shape = shape, .wide = false, .into = ProductInto::kOverwrite}, a, b, bias, c.data, c.stride);
  }
  // c += op(a) op(b). c has the type of the operands.
  template <class T>
  void Add(const ProductShape& shape, MatrixView<const T> a, MatrixView<const T> b, MatrixView<T> c) {
    const T* const no_bias = nullptr;
    Run({.shape = shape, .wide = false, .into = ProductInto::kAdd}, a, b, no_bias, c.data, c.stride);
  }
  // c = op(a) op(b), or c += op(a) op(b). c is fp32.
  template <class T>
  void Multiply(const ProductShape& shape, MatrixView<const T> a, MatrixView<const T> b, ProductInto into,
                MatrixView<float> c) {
    const T* const no_bias = nullptr;
    Run({.shape = shape, .wide = true, .into = into}, a, b, no_bias, c.data, c.stride);
  }

 private:
  struct Request {
    ProductShape shape;
    bool wide;  // true: c is fp32
    ProductInto into;
  };
  class Primitives;

  template <class T>
  void Run(const Request& request, MatrixView<const T> a, MatrixView<const T> b, const T* bias, void* c, int64_t stride) {
    static_assert(sizeof(T) == sizeof(Bfloat16) || sizeof(T) == sizeof(float));
    RunUntyped(request, {a.data, a.stride}, {b.data, b.stride}, bias, {c, stride}, sizeof(T));
  }
  void RunUntyped(const Request& request, MatrixView<const void> a, MatrixView<const void> b, const void* bias,
                  MatrixView<void> c, size_t element_bytes);

  std::unique_ptr<Primitives> primitives_;
};

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_ONE_DNN_GEMM_H_
