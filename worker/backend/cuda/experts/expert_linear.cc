// The linear layers of experts: the products of all experts of the rank with the rows of one rank are a batch. The batches of
// several ranks follow each other, so that their sums in a weight's gradient have an order. Rows without a token are 0, so
// their products are 0.
#include "common/check.h"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

template <class T>
constexpr T* kNoBias = nullptr;

// Calls product(rows of a block, batch, first block) for each batch. The blocks of a single expert are one long block.
template <class Product>
void ForEachBatch(const ExpertShape& shape, const Product& product) {
  LYNX_CHECK(shape.experts > 0 && shape.blocks % shape.experts == 0);
  if (shape.experts == 1) return product(shape.rows(), 1, 0);
  for (int64_t block = 0; block < shape.blocks; block += shape.experts) product(shape.room, shape.experts, block);
}

}  // namespace

template <class T>
void CudaOps<T>::ExpertForward(const ExpertShape& shape, const float*, const T* x, const T* w, int64_t in, int64_t out, T* y) {
  ForEachBatch(shape, [&](int64_t rows, int64_t batch, int64_t block) {
    const int64_t row = block * shape.room;
    gemm_.Multiply({.b = Transpose::kYes, .m = rows, .n = out, .k = in, .batch = batch}, x + row * in, w,
                   ProductInto::kOverwrite, kNoBias<const T>, y + row * out);
  });
}

template <class T>
void CudaOps<T>::ExpertBackward(const ExpertShape& shape, const float*, const T* dy, const T* w, int64_t in, int64_t out,
                                T* dx) {
  ForEachBatch(shape, [&](int64_t rows, int64_t batch, int64_t block) {
    const int64_t row = block * shape.room;
    gemm_.Multiply({.m = rows, .n = in, .k = out, .batch = batch}, dy + row * out, w, ProductInto::kOverwrite, kNoBias<const T>,
                   dx + row * in);
  });
}

template <class T>
void CudaOps<T>::ExpertWeight(const ExpertShape& shape, const float*, const T* x, const T* dy, int64_t in, int64_t out,
                              float* dw) {
  ForEachBatch(shape, [&](int64_t rows, int64_t batch, int64_t block) {
    const int64_t row = block * shape.room;
    gemm_.Multiply({.a = Transpose::kYes, .m = out, .n = in, .k = rows, .batch = batch}, dy + row * out, x + row * in,
                   ProductInto::kAdd, kNoBias<const float>, dw);
  });
}

#define LYNX_INSTANTIATE(T)                                                                                             \
  template void CudaOps<T>::ExpertForward(const ExpertShape&, const float*, const T*, const T*, int64_t, int64_t, T*);  \
  template void CudaOps<T>::ExpertBackward(const ExpertShape&, const float*, const T*, const T*, int64_t, int64_t, T*); \
  template void CudaOps<T>::ExpertWeight(const ExpertShape&, const float*, const T*, const T*, int64_t, int64_t, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
