// Gemm computes products of row-major matrices through cuBLASLt, in fp32 arithmetic. Products of bfloat16 use tensor cores.
// Products of fp32 are exact fp32, without TF32. The algorithm for a product is chosen once for its shape and then kept, so
// that its bits repeat. One thread at a time.
#ifndef LYNX_WORKER_BACKEND_CUDA_GEMM_H_
#define LYNX_WORKER_BACKEND_CUDA_GEMM_H_

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "common/bfloat16.h"
#include "worker/backend/cuda/stream.h"

namespace lynx::worker::cuda {

enum class Transpose : uint8_t { kNo, kYes };
enum class ProductInto : uint8_t { kOverwrite, kAdd };

// Where the elements of a matrix lie: each row begins `row` elements after the row before it (0: the rows are contiguous), and
// each matrix of a batch begins `matrix` elements after the matrix before it (kContiguous: after its last row; 0: all products
// have the same operand).
struct Steps {
  static constexpr int64_t kContiguous = -1;
  int64_t row = 0, matrix = kContiguous;

  auto operator<=>(const Steps&) const = default;
};

// The product is c (m, n) = op(a) (m, k) op(b) (k, n), or it is added to c. A transposed operand is stored as (k, m) or (n, k).
// A batch is that many products of the same shape.
struct ProductShape {
  Transpose a = Transpose::kNo, b = Transpose::kNo;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  Steps of_a = {}, of_b = {}, of_c = {};

  auto operator<=>(const ProductShape&) const = default;
};

class Gemm {
 public:
  static absl::StatusOr<std::unique_ptr<Gemm>> Create(Stream& stream);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // True if a product may have this bias. Kernels of cuBLASLt may read the bias in units of 16 bytes, and its heuristics cannot
  // be told a smaller alignment.
  static bool TakesBias(const void* bias) { return reinterpret_cast<uintptr_t>(bias) % 16 == 0; }
  // `bias` (n) has the type of c and is added to each row; null: no bias. TakesBias must be true for it, and it must be null if
  // the product is added to c or if the batch is above 1. Errors are noted in the stream.
  template <class T, class Result>
  void Multiply(const ProductShape& shape, const T* a, const T* b, ProductInto into, const Result* bias, Result* c);

 private:
  enum class Element : uint8_t { kFloat, kBfloat16 };
  static Element ElementOf(const float*) { return Element::kFloat; }
  static Element ElementOf(const Bfloat16*) { return Element::kBfloat16; }
  static cudaDataType TypeOf(Element element);

  // All values on which the choice of an algorithm may depend.
  struct Key {
    ProductShape shape;
    Element operands, result;
    bool adds, has_bias;
    uint32_t alignment_a, alignment_b, alignment_c;  // in bytes

    auto operator<=>(const Key&) const = default;
  };
  // The descriptors and the algorithm of one kind of product.
  class Product;

  explicit Gemm(Stream& stream);
  void Run(const Key& key, const void* a, const void* b, const void* bias, void* c);

  Stream& stream_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Product>> products_;
};

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_GEMM_H_
