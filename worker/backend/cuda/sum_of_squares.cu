// The sum of squares for the gradient norm: each block adds up its part, in double, and one block adds up theirs.
#include <algorithm>

#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/cuda_backend.h"

namespace lynx::cuda {
namespace {

constexpr int64_t kParts = 1024;

__global__ void __launch_bounds__(kBlock) SumOfPart(const float* x, int64_t count, double* parts) {
  double sum = 0;
  for (int64_t i = GlobalThread(); i < count; i += int64_t{gridDim.x} * kBlock) sum += double{x[i]} * double{x[i]};
  sum = ReduceBlock<Sum>(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlock) SumOfParts(const double* parts, int64_t count, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) sum += parts[i];
  sum = ReduceBlock<Sum>(sum);
  if (threadIdx.x == 0) *total += sum;
}

}  // namespace

void CudaBackend::SumOfSquares(const float* x, int64_t count, double* sum) {
  const int64_t parts = std::min<int64_t>(BlocksOf(count, kBlock), kParts);
  auto* const sums = stream_.ScratchOf<double>(kParts);
  stream_.Launch("sum of squares", &SumOfPart, dim3(static_cast<unsigned>(parts)), dim3(kBlock), x, count, sums);
  stream_.Launch("sum of sums", &SumOfParts, dim3(1), dim3(kBlock), sums, parts, sum);
}

}  // namespace lynx::cuda
