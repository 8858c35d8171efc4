#include "cublasLt.h"

#include <cstring>
#include <type_traits>

#include "common/bfloat16.h"
#include "common/check.h"

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t stride;
  int32_t batch = 1;
  int64_t batch_stride = 0;  // in elements
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint32_t alignment[4];
  uint64_t workspace;
};

namespace {

double Read(const void* data, cudaDataType type, int64_t at) {
  return type == CUDA_R_32F ? static_cast<const float*>(data)[at] : float{static_cast<const lynx::Bfloat16*>(data)[at]};
}
void Write(void* data, cudaDataType type, int64_t at, double value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[at] = static_cast<float>(value);
  } else {
    static_cast<lynx::Bfloat16*>(data)[at] = static_cast<float>(value);
  }
}

uint64_t Rows(const cublasLtMatrixLayoutOpaque_t& layout, int32_t operation) {
  return operation == CUBLAS_OP_N ? layout.rows : layout.columns;
}
uint64_t Columns(const cublasLtMatrixLayoutOpaque_t& layout, int32_t operation) {
  return operation == CUBLAS_OP_N ? layout.columns : layout.rows;
}
int64_t At(const cublasLtMatrixLayoutOpaque_t& layout, int32_t operation, int64_t row, int64_t column) {
  return operation == CUBLAS_OP_N ? row + column * layout.stride : column + row * layout.stride;
}

// True if cuBLASLt supports these types and shapes. This is the part of its table that worker/backend/cuda uses.
bool Supported(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
               const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
               const cublasLtMatrixLayoutOpaque_t& d) {
  const bool types = a.type == b.type && c.type == d.type && (a.type == CUDA_R_16BF || d.type == CUDA_R_32F);
  const bool shapes = Rows(a, desc.transpose_a) == d.rows && Columns(b, desc.transpose_b) == d.columns &&
                      Columns(a, desc.transpose_a) == Rows(b, desc.transpose_b) && c.rows == d.rows && c.columns == d.columns;
  const auto strided = [](const cublasLtMatrixLayoutOpaque_t& m) { return m.stride >= static_cast<int64_t>(m.rows); };
  // The matrices of a batch of results must not overlap: they follow each other, or lie beside each other in longer rows.
  const auto apart = [](const cublasLtMatrixLayoutOpaque_t& m) {
    const bool beside = m.batch_stride >= static_cast<int64_t>(m.rows) &&
                        (m.batch - 1) * m.batch_stride + static_cast<int64_t>(m.rows) <= m.stride;
    return m.batch == 1 || beside || m.batch_stride >= m.stride * static_cast<int64_t>(m.columns);
  };
  const bool batches = a.batch == d.batch && b.batch == d.batch && c.batch == d.batch && (d.batch == 1 || desc.bias == nullptr);
  return types && shapes && batches && strided(a) && strided(b) && strided(c) && strided(d) && apart(c) && apart(d);
}

struct Matrix {
  const void* data;
  const cublasLtMatrixLayoutOpaque_t* layout;
};

// d = alpha op(a) op(b) + beta c, plus the bias. d has the layout of c.
void Multiply(const cublasLtMatmulDescOpaque_t& desc, float alpha, Matrix a, Matrix b, float beta, Matrix c, void* d) {
  const auto m = static_cast<int64_t>(c.layout->rows), n = static_cast<int64_t>(c.layout->columns);
  const auto k = static_cast<int64_t>(Columns(*a.layout, desc.transpose_a));
  const cudaDataType type = c.layout->type;
  for (int64_t column = 0; column < n; ++column) {
    for (int64_t row = 0; row < m; ++row) {
      const int64_t at = row + column * c.layout->stride;
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        sum += Read(a.data, a.layout->type, At(*a.layout, desc.transpose_a, row, i)) *
               Read(b.data, b.layout->type, At(*b.layout, desc.transpose_b, i, column));
      }
      sum *= alpha;
      if (beta != 0) sum += beta * Read(c.data, type, at);
      if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += Read(desc.bias, type, row);
      Write(d, type, at, sum);
    }
  }
}

// Returns the address of one matrix of a batch.
template <class Address>
Address MatrixOf(Address batch, const cublasLtMatrixLayoutOpaque_t& layout, int32_t number) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Address>>, const char, char>;
  return static_cast<Byte*>(batch) + number * layout.batch_stride * (layout.type == CUDA_R_32F ? 4 : 2);
}

template <class T>
void Set(const void* value, size_t bytes, T* to) {
  LYNX_CHECK(bytes == sizeof(T));
  std::memcpy(to, value, bytes);
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
size_t cublasLtGetVersion() { return 0; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (lynx::worker::cuda_on_host::Fails()) return CUBLAS_STATUS_NOT_SUPPORTED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType) {
  *desc = new cublasLtMatmulDescOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: Set(value, bytes, &desc->transpose_a); return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_TRANSB: Set(value, bytes, &desc->transpose_b); return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: Set(value, bytes, &desc->epilogue); return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: Set(value, bytes, &desc->bias); return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t stride) {
  *layout = new cublasLtMatrixLayoutOpaque_t{.type = type, .rows = rows, .columns = columns, .stride = stride};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: Set(value, bytes, &layout->batch); return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: Set(value, bytes, &layout->batch_stride); return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{{256, 256, 256, 256}, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    Set(value, bytes, &preference->workspace);
  } else {
    Set(value, bytes, &preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES]);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (lynx::worker::cuda_on_host::Fails()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!Supported(*desc, *a, *b, *c, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // The "algorithm" is the alignment for which it was chosen. It must not be used for operands with a smaller alignment.
  results[0] = {};
  std::memcpy(results[0].algo.data, preference->alignment, sizeof(preference->alignment));
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void*, size_t, cudaStream_t stream) {
  if (lynx::worker::cuda_on_host::Fails()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!Supported(*desc, *a_layout, *b_layout, *c_layout, *d_layout)) return CUBLAS_STATUS_NOT_SUPPORTED;
  uint32_t alignment[4];
  std::memcpy(alignment, algo->data, sizeof(alignment));
  const void* const matrices[4] = {a, b, c, d};
  const cublasLtMatrixLayout_t layouts[4] = {a_layout, b_layout, c_layout, d_layout};
  for (int i = 0; i < 4; ++i) {
    for (int32_t number = 0; number < layouts[i]->batch; ++number) {
      const void* const matrix = MatrixOf(matrices[i], *layouts[i], number);
      if (reinterpret_cast<uintptr_t>(matrix) % alignment[i] != 0) return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  // The real kernels may read a bias in units of 16 bytes.
  if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS && reinterpret_cast<uintptr_t>(desc->bias) % 16 != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  // The description of the product is copied, because it may change before the product is computed.
  lynx::worker::cuda_on_host::Issue(
      stream, [=, desc = *desc, alpha = *static_cast<const float*>(alpha), a_layout = *a_layout, b_layout = *b_layout,
               beta = *static_cast<const float*>(beta), c_layout = *c_layout] {
        for (int32_t number = 0; number < c_layout.batch; ++number) {
          Multiply(desc, alpha, {MatrixOf(a, a_layout, number), &a_layout}, {MatrixOf(b, b_layout, number), &b_layout}, beta,
                   {MatrixOf(c, c_layout, number), &c_layout}, MatrixOf(d, c_layout, number));
        }
      });
  return CUBLAS_STATUS_SUCCESS;
}
