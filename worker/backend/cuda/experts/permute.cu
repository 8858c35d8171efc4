// Brings tokens into the order of their experts, and back. To bring them into order, each row first gets the number of the
// choice that is there. Then a block copies each row.
#include <algorithm>

#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

constexpr int32_t kNoChoice = -1;

struct ForgetChoices {
  int32_t* of_rows;

  __device__ void operator()(int64_t row) const { of_rows[row] = kNoChoice; }
};

// For the rows [first, first + count) of all rows.
struct NoteChoice {
  const RouteChoice* route;
  int64_t first, count;
  int32_t* of_rows;

  __device__ void operator()(int64_t choice) const {
    const int64_t row = route[choice].place - first;
    if (route[choice].place >= 0 && row >= 0 && row < count) of_rows[row] = static_cast<int32_t>(choice);
  }
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock)
    CopyRows(const int32_t* of_rows, const RouteChoice* route, int64_t top_k, const T* x, int64_t h, T* rows, float* weights) {
  using P = Pack<T, kWidth>;
  const int64_t row = blockIdx.x;
  const int32_t choice = of_rows[row];
  const T* const from = x + (choice == kNoChoice ? 0 : choice / top_k * h);
  for (int64_t i = threadIdx.x * kWidth; i < h; i += kBlock * kWidth) {
    (choice == kNoChoice ? P{} : P::Load(from + i)).Store(rows + row * h + i);
  }
  if (weights != nullptr && threadIdx.x == 0) weights[row] = choice == kNoChoice ? kNoRow : route[choice].weight;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock)
    AddRows(const RouteChoice* route, int64_t top_k, const T* rows, int64_t h, bool accumulate, T* x) {
  route += blockIdx.x * top_k;
  x += blockIdx.x * h;
  for (int64_t i = threadIdx.x * kWidth; i < h; i += kBlock * kWidth) {
    float sums[kWidth] = {};
    if (accumulate) {
      const auto before = Pack<T, kWidth>::Load(x + i);
#pragma unroll
      for (int element = 0; element < kWidth; ++element) sums[element] = before.at[element];
    }
    for (int64_t c = 0; c < top_k; ++c) {
      if (route[c].place < 0) continue;
      const auto values = Pack<T, kWidth>::Load(rows + route[c].place * h + i);
#pragma unroll
      for (int element = 0; element < kWidth; ++element) sums[element] += values.at[element];
    }
    Pack<T, kWidth> all;
#pragma unroll
    for (int element = 0; element < kWidth; ++element) all.at[element] = sums[element];
    all.Store(x + i);
  }
}

}  // namespace

template <class T>
void CudaOps<T>::TokensToRows(const RouterShape& shape, const RouteChoice* route, const T* x, T* rows, float* weights) {
  constexpr char kName[] = "tokens to rows";
  constexpr int64_t kMaxRows = Stream::kScratch.value / static_cast<int64_t>(sizeof(int32_t));
  const auto copy = FitsPacks(shape.h, x, rows) ? &CopyRows<T, kPackOf<T>> : &CopyRows<T, 1>;
  for (int64_t first = 0; first < shape.rows(); first += kMaxRows) {
    const int64_t count = std::min(kMaxRows, shape.rows() - first);
    auto* const of_rows = this->stream_.template ScratchOf<int32_t>(count);
    ForEach(this->stream_, kName, count, ForgetChoices{of_rows});
    ForEach(this->stream_, kName, shape.n * shape.top_k, NoteChoice{route, first, count, of_rows});
    this->stream_.Launch(kName, copy, dim3(BlocksOf(count, 1)), dim3(kBlock), of_rows, route, shape.top_k, x, shape.h,
                         rows + first * shape.h, weights == nullptr ? weights : weights + first);
  }
}

template <class T>
void CudaOps<T>::RowsToTokens(const RouterShape& shape, const RouteChoice* route, const T* rows, bool accumulate, T* x) {
  const auto kernel = FitsPacks(shape.h, rows, x) ? &AddRows<T, kPackOf<T>> : &AddRows<T, 1>;
  this->stream_.Launch("rows to tokens", kernel, dim3(BlocksOf(shape.n, 1)), dim3(kBlock), route, shape.top_k, rows, shape.h,
                       accumulate, x);
}

#define LYNX_INSTANTIATE(T)                                                                             \
  template void CudaOps<T>::TokensToRows(const RouterShape&, const RouteChoice*, const T*, T*, float*); \
  template void CudaOps<T>::RowsToTokens(const RouterShape&, const RouteChoice*, const T*, bool, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
