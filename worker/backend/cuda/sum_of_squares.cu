// The sum of squares for the gradient norm. Each block adds up a chunk of a tensor in double. Then one block adds up the sums
// of all blocks. Only the tensors' sizes decide which elements a thread adds, and in which order.
#include <vector>

#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/tensor_list.cuh"

namespace lynx::worker::cuda {
namespace {

constexpr int64_t kMaxParts = 65'536;  // the largest number of chunks, plus one for each tensor (ChunkFor)

struct Summed {
  const float* x;
  int64_t count;
};

__global__ void __launch_bounds__(kBlock) SumOfChunks(TensorList<Summed> list, double* parts) {
  const Chunk<Summed> chunk = list.ChunkOf(blockIdx.x);
  const float* const x = chunk.tensor.x;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += kBlock) sum += double{x[i]} * double{x[i]};
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

void CudaBackend::SumOfSquares(std::span<const std::span<const float>> tensors, double* sum) {
  std::vector<Summed> summed;
  for (const std::span<const float> tensor : tensors) {
    summed.push_back({tensor.data(), static_cast<int64_t>(tensor.size())});
  }
  auto* const parts = stream_.ScratchOf<double>(kMaxParts + static_cast<int64_t>(summed.size()));
  int64_t count = 0;
  ForLists<Summed>(summed, ChunkFor(summed, kMaxParts), [&](const TensorList<Summed>& list, int32_t chunks) {
    stream_.Launch("sum of squares", &SumOfChunks, dim3(static_cast<unsigned>(chunks)), dim3(kBlock), list, parts + count);
    count += chunks;
  });
  stream_.Launch("sum of sums", &SumOfParts, dim3(count > 0), dim3(kBlock), parts, count, sum);
}

}  // namespace lynx::worker::cuda
