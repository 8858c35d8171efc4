// Adds the sums of the columns of a row-major matrix to memory: the gradients of biases, of norms' weights and of positions. A
// block sums kColumns columns. Each of its threads sums some of the rows, and then the threads' sums are added in pairs.
#ifndef LYNX_WORKER_BACKEND_CUDA_COLUMN_SUM_CUH_
#define LYNX_WORKER_BACKEND_CUDA_COLUMN_SUM_CUH_

#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/stream.h"

namespace lynx::worker::cuda {

inline constexpr int kColumns = 32, kRowsAtOnce = 16;

// `terms` says what is summed. Its members are kSums: the number of sums for each column; Add(row, column, sums): adds the
// terms of a row to the sums; At(which, column): returns the memory to which sum number `which` is added.
template <class Terms>
__global__ void __launch_bounds__(kColumns* kRowsAtOnce) AddColumns(int64_t rows, int64_t columns, Terms terms) {
  __shared__ float partial[kRowsAtOnce][kColumns];
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x;
  float sums[Terms::kSums] = {};
  if (column < columns) {
    for (int64_t row = threadIdx.y; row < rows; row += kRowsAtOnce) terms.Add(row, column, sums);
  }
  for (int which = 0; which < Terms::kSums; ++which) {
    partial[threadIdx.y][threadIdx.x] = sums[which];
    __syncthreads();
    for (unsigned half = kRowsAtOnce / 2; half > 0; half /= 2) {
      if (threadIdx.y < half) partial[threadIdx.y][threadIdx.x] += partial[threadIdx.y + half][threadIdx.x];
      __syncthreads();
    }
    if (threadIdx.y == 0 && column < columns) terms.At(which, column) += partial[0][threadIdx.x];
    __syncthreads();
  }
}

template <class Terms>
void SumColumns(Stream& stream, const char* name, int64_t rows, int64_t columns, const Terms& terms) {
  stream.Launch(name, &AddColumns<Terms>, dim3(BlocksOf(columns, kColumns)), dim3(kColumns, kRowsAtOnce), rows, columns, terms);
}

// The terms are the elements of the matrix itself.
template <class T>
struct ColumnsOf {
  static constexpr int kSums = 1;
  const T* matrix;
  int64_t columns;
  float* sums;

  __device__ void Add(int64_t row, int64_t column, float* sum) const { *sum += matrix[row * columns + column]; }
  __device__ float& At(int, int64_t column) const { return sums[column]; }
};

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_COLUMN_SUM_CUH_
