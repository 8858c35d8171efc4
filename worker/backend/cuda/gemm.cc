// cuBLASLt's matrices are column-major, so a row-major matrix is its transpose for cuBLASLt. Therefore this code asks cuBLASLt
// for c^T (n, m) = op(b)^T op(a)^T: only the operands change places.
#include "worker/backend/cuda/gemm.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace lynx::worker::cuda {
namespace {

absl::Status StatusOf(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuBLASLt: ", what, ": ", cublasLtGetStatusString(status)));
}

// Returns the largest power of two, up to 256, that divides the address of every matrix of a batch. 256 is enough for every
// algorithm. `bytes`: the distance of two matrices of the batch.
uint32_t AlignmentOf(const void* address, int64_t batch, int64_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(address) | (batch > 1 ? static_cast<uintptr_t>(bytes) : 0);
  return at % 256 == 0 ? 256 : static_cast<uint32_t>(at & (~at + 1));
}

// A row-major matrix (rows, columns), as it is stored. cuBLASLt sees it as a column-major matrix (columns, rows).
struct Operand {
  int64_t rows, columns;
  Steps steps;

  static Operand Of(Transpose transpose, int64_t rows, int64_t columns, const Steps& steps) {
    if (transpose == Transpose::kYes) std::swap(rows, columns);
    return {rows, columns, steps};
  }
  int64_t row_step() const { return steps.row == 0 ? columns : steps.row; }
  int64_t matrix_step() const { return steps.matrix == Steps::kContiguous ? rows * row_step() : steps.matrix; }
};

}  // namespace

class Gemm::Product {
 public:
  static absl::StatusOr<std::unique_ptr<Product>> Create(cublasLtHandle_t handle, const Key& key) {
    std::unique_ptr<Product> product(new Product());
    LYNX_RETURN_IF_ERROR(product->Describe(key));
    LYNX_RETURN_IF_ERROR(product->Choose(handle, key));
    return product;
  }
  ~Product() {
    if (desc_ != nullptr) cublasLtMatmulDescDestroy(desc_);
    for (cublasLtMatrixLayout_t layout : {a_, b_, c_}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }

  absl::Status Run(cublasLtHandle_t handle, const Stream& stream, const Key& key, const void* a, const void* b,
                   const void* bias, void* c) const {
    if (key.has_bias) {
      LYNX_RETURN_IF_ERROR(
          StatusOf(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)), "a bias"));
    }
    const float alpha = 1, beta = key.adds ? 1 : 0;
    return StatusOf(cublasLtMatmul(handle, desc_, &alpha, b, b_, a, a_, &beta, c, c_, c, c_, &algorithm_, stream.scratch(),
                                   static_cast<size_t>(Stream::kScratch.value), stream.handle()),
                    "a matrix product");
  }

 private:
  Product() = default;

  static absl::Status Layout(const Operand& operand, Element element, int64_t batch, cublasLtMatrixLayout_t* layout) {
    LYNX_RETURN_IF_ERROR(StatusOf(cublasLtMatrixLayoutCreate(layout, TypeOf(element), static_cast<uint64_t>(operand.columns),
                                                             static_cast<uint64_t>(operand.rows), operand.row_step()),
                                  "a matrix's layout"));
    if (batch == 1) return absl::OkStatus();
    const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
      return StatusOf(cublasLtMatrixLayoutSetAttribute(*layout, attribute, &value, sizeof(value)), "a batch's layout");
    };
    LYNX_RETURN_IF_ERROR(set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch)));
    return set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, operand.matrix_step());
  }

  template <class T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    return StatusOf(cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof(value)), "a product's attribute");
  }

  absl::Status Describe(const Key& key) {
    const ProductShape& s = key.shape;
    LYNX_RETURN_IF_ERROR(Layout(Operand::Of(s.a, s.m, s.k, s.of_a), key.operands, s.batch, &a_));
    LYNX_RETURN_IF_ERROR(Layout(Operand::Of(s.b, s.k, s.n, s.of_b), key.operands, s.batch, &b_));
    LYNX_RETURN_IF_ERROR(Layout({s.m, s.n, s.of_c}, key.result, s.batch, &c_));
    LYNX_RETURN_IF_ERROR(StatusOf(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product's description"));
    const auto operation = [](Transpose transpose) {
      return static_cast<int32_t>(transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N);
    };
    LYNX_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, operation(s.b)));
    LYNX_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, operation(s.a)));
    if (!key.has_bias) return absl::OkStatus();
    return Set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<int32_t>(CUBLASLT_EPILOGUE_BIAS));
  }

  absl::Status Choose(cublasLtHandle_t handle, const Key& key) {
    cublasLtMatmulPreference_t preference = nullptr;
    LYNX_RETURN_IF_ERROR(StatusOf(cublasLtMatmulPreferenceCreate(&preference), "a preference"));
    const absl::Status status = ChooseBy(preference, handle, key);
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
  }

  absl::Status ChooseBy(cublasLtMatmulPreference_t preference, cublasLtHandle_t handle, const Key& key) {
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return StatusOf(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)), "a preference");
    };
    LYNX_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(Stream::kScratch.value)));
    LYNX_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment_b));
    LYNX_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment_a));
    LYNX_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment_c));
    LYNX_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment_c));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, desc_, b_, a_, c_, c_, preference, 1, &found, &count);
    if (status == CUBLAS_STATUS_SUCCESS && count == 1) {
      algorithm_ = found.algo;
      return absl::OkStatus();
    }
    return absl::UnimplementedError(absl::StrCat("cuBLASLt has no algorithm for ", key.shape.batch, " products (", key.shape.m,
                                                 ", ", key.shape.k, ") x (", key.shape.k, ", ", key.shape.n,
                                                 "): ", cublasLtGetStatusString(status)));
  }

  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

absl::StatusOr<std::unique_ptr<Gemm>> Gemm::Create(Stream& stream) {
  std::unique_ptr<Gemm> gemm(new Gemm(stream));
  LYNX_RETURN_IF_ERROR(StatusOf(cublasLtCreate(&gemm->handle_), "creating its handle"));
  return gemm;
}

Gemm::Gemm(Stream& stream) : stream_(stream) {}

Gemm::~Gemm() {
  products_.clear();
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

cudaDataType Gemm::TypeOf(Element element) { return element == Element::kFloat ? CUDA_R_32F : CUDA_R_16BF; }

template <class T, class Result>
void Gemm::Multiply(const ProductShape& shape, const T* a, const T* b, ProductInto into, const Result* bias, Result* c) {
  const bool adds = into == ProductInto::kAdd;
  LYNX_CHECK((!adds && shape.batch == 1) || bias == nullptr);
  LYNX_CHECK(TakesBias(bias));
  const auto alignment = [&](const auto* matrix, const Operand& operand) {
    return AlignmentOf(matrix, shape.batch, operand.matrix_step() * static_cast<int64_t>(sizeof(*matrix)));
  };
  Run({.shape = shape,
       .operands = ElementOf(a),
       .result = ElementOf(c),
       .adds = adds,
       .has_bias = bias != nullptr,
       .alignment_a = alignment(a, Operand::Of(shape.a, shape.m, shape.k, shape.of_a)),
       .alignment_b = alignment(b, Operand::Of(shape.b, shape.k, shape.n, shape.of_b)),
       .alignment_c = alignment(c, {shape.m, shape.n, shape.of_c})},
      a, b, bias, c);
}

void Gemm::Run(const Key& key, const void* a, const void* b, const void* bias, void* c) {
  if (!stream_.ok() || key.shape.m == 0 || key.shape.n == 0 || key.shape.batch == 0) return;
  auto& product = products_[key];
  if (product == nullptr) {
    absl::StatusOr<std::unique_ptr<Product>> made = Product::Create(handle_, key);
    if (!made.ok()) return stream_.Note(made.status());
    product = std::move(*made);
  }
  stream_.Note(product->Run(handle_, stream_, key, a, b, bias, c));
}

template void Gemm::Multiply(const ProductShape&, const float*, const float*, ProductInto, const float*, float*);
template void Gemm::Multiply(const ProductShape&, const Bfloat16*, const Bfloat16*, ProductInto, const Bfloat16*, Bfloat16*);
template void Gemm::Multiply(const ProductShape&, const Bfloat16*, const Bfloat16*, ProductInto, const float*, float*);

}  // namespace lynx::worker::cuda
