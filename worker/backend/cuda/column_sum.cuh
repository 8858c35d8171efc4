// Adds the sums of the columns of a row-major matrix to memory: the gradients of biases and of norms' weights.
//
// A block sums some columns over some rows. Each of its threads sums one pack of columns over every R-th of these rows, where R
// is the number of threads that share a column. Then the sums of these R threads are added in the order of the threads. A
// matrix of many rows is cut into parts of rows, so that there are blocks for all multiprocessors of a large GPU. The sums of
// the parts go into the scratch, and a second kernel adds them in the same way. The order of all additions depends only on
// the shape and the type of the elements, and not on whether the addresses fit packs.
#ifndef LYNX_WORKER_BACKEND_CUDA_COLUMN_SUM_CUH_
#define LYNX_WORKER_BACKEND_CUDA_COLUMN_SUM_CUH_

#include <algorithm>

#include "common/check.h"
#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/stream.h"

namespace lynx::worker::cuda {

// The size of the sums of all parts. They lie at the beginning of the scratch. An op that keeps values in the scratch while it
// sums columns keeps them after these.
inline constexpr Bytes kPartSums{int64_t{2} << 20};

// How the work is divided. It depends on the shape only.
struct ColumnParts {
  static constexpr int64_t kBlocks = 512;         // about the number of blocks, if there are enough rows
  static constexpr int64_t kMinRowsOfThread = 8;  // if there are several parts: the least number of rows per thread

  int64_t lanes;         // the number of threads that sum neighbouring packs; a power of two, at most kWarp
  int64_t rows_of_part;  // the number of rows in each part, except the last
  int64_t parts;

  static ColumnParts Of(int64_t rows, int64_t columns, int64_t width) {
    int64_t lanes = 4;
    while (lanes < kWarp && lanes * width < columns) lanes *= 2;
    const int64_t row_threads = kBlock / lanes, min_rows = row_threads * kMinRowsOfThread;
    const int64_t across = BlocksOf(columns, lanes * width), wanted = BlocksOf(kBlocks, across);
    const int64_t most = std::max<int64_t>(1, std::min<int64_t>(wanted, rows / min_rows));
    const int64_t rows_of_part = std::max<int64_t>(1, BlocksOf(BlocksOf(rows, most), row_threads)) * row_threads;
    return {lanes, rows_of_part, std::max<int64_t>(1, BlocksOf(rows, rows_of_part))};
  }
};

// `terms` says what is summed. Its members are T: the type of the elements; kSums: the number of sums for each column;
// Add(row, column, sums): adds the terms of a row to the sums of kWidth columns; FitsPacks(columns): returns true if Add can be
// called with a kWidth of kPackOf<T>; At(which, column): returns the memory to which sum number `which` is added.
//
// `parts`: where the sums of each part go, (parts, kSums, columns); null: there is one part, and its sums are added to At.
template <class Terms, int kWidth>
__global__ void __launch_bounds__(kBlock)
    AddColumns(int64_t rows, int64_t columns, int64_t rows_of_part, Terms terms, float* parts) {
  __shared__ float of_threads[kBlock * kWidth];
  const int lanes = static_cast<int>(blockDim.x), row_threads = static_cast<int>(blockDim.y);
  const int64_t first_column = int64_t{blockIdx.x} * lanes * kWidth, column = first_column + int64_t{threadIdx.x} * kWidth;
  const int64_t first_row = blockIdx.y * rows_of_part;
  const int64_t end_row = first_row + rows_of_part < rows ? first_row + rows_of_part : rows;
  float sums[Terms::kSums][kWidth] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = first_row + threadIdx.y; row < end_row; row += row_threads) terms.Add(row, column, sums);
  }
  // From now on each thread works on one column. A block has at most as many columns as threads.
  const int thread = static_cast<int>(threadIdx.y) * lanes + static_cast<int>(threadIdx.x);
  const int64_t mine = first_column + thread % lanes * kWidth + thread / lanes;
#pragma unroll
  for (int which = 0; which < Terms::kSums; ++which) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      of_threads[(static_cast<int>(threadIdx.y) * kWidth + i) * lanes + static_cast<int>(threadIdx.x)] = sums[which][i];
    }
    __syncthreads();
    if (thread < lanes * kWidth && mine < columns) {
      float sum = 0;
      for (int row = 0; row < row_threads; ++row) sum += of_threads[row * kWidth * lanes + thread];
      if (parts != nullptr) {
        parts[(int64_t{blockIdx.y} * Terms::kSums + which) * columns + mine] = sum;
      } else {
        terms.At(which, mine) += sum;
      }
    }
    __syncthreads();
  }
}

// The terms of the second kernel: the sums of the parts are a matrix, whose columns are added to those of `terms`.
template <class Terms>
struct SumsOfParts {
  static constexpr int kSums = 1;
  const float* parts;
  int64_t columns;
  Terms terms;

  template <int kWidth>
  __device__ void Add(int64_t row, int64_t column, float (&sums)[kSums][kWidth]) const {
    sums[0][0] += parts[row * Terms::kSums * columns + column];
  }
  __device__ float& At(int, int64_t column) const { return terms.At(static_cast<int>(column / columns), column % columns); }
};

template <class Terms>
void SumColumns(Stream& stream, const char* name, int64_t rows, int64_t columns, const Terms& terms) {
  constexpr int kWidth = kPackOf<typename Terms::T>;
  const ColumnParts cut = ColumnParts::Of(rows, columns, kWidth);
  const int64_t sums = cut.parts * Terms::kSums * columns;
  LYNX_CHECK(cut.parts == 1 || sums * static_cast<int64_t>(sizeof(float)) <= kPartSums.value);
  float* const parts = cut.parts > 1 ? stream.ScratchOf<float>(sums) : nullptr;
  const dim3 block(static_cast<unsigned>(cut.lanes), static_cast<unsigned>(kBlock / cut.lanes));
  const auto blocks = static_cast<unsigned>(cut.parts);
  if (terms.FitsPacks(columns)) {
    stream.Launch(name, &AddColumns<Terms, kWidth>, dim3(BlocksOf(columns, cut.lanes * kWidth), blocks), block, rows, columns,
                  cut.rows_of_part, terms, parts);
  } else {
    stream.Launch(name, &AddColumns<Terms, 1>, dim3(BlocksOf(columns, cut.lanes), blocks), block, rows, columns,
                  cut.rows_of_part, terms, parts);
  }
  if (parts == nullptr) return;
  const ColumnParts last = ColumnParts::Of(1, Terms::kSums * columns, 1);
  stream.Launch(name, &AddColumns<SumsOfParts<Terms>, 1>, dim3(BlocksOf(Terms::kSums * columns, last.lanes)),
                dim3(static_cast<unsigned>(last.lanes), static_cast<unsigned>(kBlock / last.lanes)), cut.parts,
                Terms::kSums * columns, cut.parts, SumsOfParts<Terms>{parts, columns, terms}, static_cast<float*>(nullptr));
}

// The terms are the elements of the matrix itself.
template <class Element>
struct ColumnsOf {
  using T = Element;
  static constexpr int kSums = 1;
  const T* matrix;
  int64_t columns;
  float* sums;

  template <int kWidth>
  __device__ void Add(int64_t row, int64_t column, float (&sum)[kSums][kWidth]) const {
    const auto values = Pack<T, kWidth>::Load(matrix + row * columns + column);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[0][i] += values.at[i];
  }
  bool FitsPacks(int64_t row) const { return cuda::FitsPacks(row, matrix); }
  __device__ float& At(int, int64_t column) const { return sums[column]; }
};

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_COLUMN_SUM_CUH_
