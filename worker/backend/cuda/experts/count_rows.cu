// Counts the rows of experts. One block of threads is enough, because a binary search finds the end of a block's rows.
#include "common/check.h"
#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/cuda_backend.h"

namespace lynx::worker::cuda {
namespace {

// The number of rows with a token: they are the first ones of the `room` rows.
__device__ int32_t FilledRows(const float* weights, int64_t room) {
  int64_t begin = 0, end = room;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (weights[middle] == kNoRow) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return static_cast<int32_t>(begin);
}

__global__ void __launch_bounds__(kBlock) Count(ExpertShape shape, const float* weights, int64_t* by_expert, int64_t* total) {
  __shared__ int32_t rows[kMaxExperts];  // one number for each block of rows
  int32_t own = 0;
  for (int64_t block = threadIdx.x; block < shape.blocks; block += kBlock) {
    rows[block] = FilledRows(weights + block * shape.room, shape.room);
    own += rows[block];
  }
  const int32_t all = ReduceBlock<Sum>(own);  // its barriers also make `rows` visible to all threads
  if (threadIdx.x == 0) *total += all;
  if (by_expert == nullptr) return;
  for (int64_t expert = threadIdx.x; expert < shape.experts; expert += kBlock) {
    int64_t sum = 0;
    for (int64_t block = expert; block < shape.blocks; block += shape.experts) sum += rows[block];
    by_expert[expert] += sum;
  }
}

}  // namespace

void CudaBackend::CountRows(const ExpertShape& shape, const float* weights, int64_t* by_expert, int64_t* total) {
  LYNX_CHECK(shape.experts >= 1 && shape.blocks <= kMaxExperts && shape.blocks % shape.experts == 0);
  LYNX_CHECK(shape.rows() <= INT32_MAX);
  stream_.Launch("rows of experts", &Count, dim3(1), dim3(kBlock), shape, weights, by_expert, total);
}

}  // namespace lynx::worker::cuda
