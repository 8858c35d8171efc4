// Finds the last word of memory that is not the mark. Each block finds the last such word in its part. Then one block finds the
// last of all these words.
#include <algorithm>
#include <bit>

#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/cuda_backend.h"

namespace lynx::worker::cuda {
namespace {

constexpr int64_t kParts = 1024;

__global__ void __launch_bounds__(kBlock) LastOfPart(uint32_t mark, const uint32_t* x, int64_t count, int64_t* parts) {
  int64_t words = 0;
  for (int64_t i = GlobalThread(); i < count; i += int64_t{gridDim.x} * kBlock) {
    if (x[i] != mark) words = i + 1;
  }
  words = ReduceBlock<Max>(words);
  if (threadIdx.x == 0) parts[blockIdx.x] = words;
}

__global__ void __launch_bounds__(kBlock) LastOfParts(const int64_t* parts, int64_t count, int64_t* last) {
  int64_t words = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) words = Max::Of(words, parts[i]);
  words = ReduceBlock<Max>(words);
  if (threadIdx.x == 0) *last = words;
}

}  // namespace

int64_t CudaBackend::WordsUnlike(float mark, const float* x, int64_t count) {
  const int64_t parts = std::min<int64_t>(BlocksOf(count, kBlock), kParts);
  auto* const words = stream_.ScratchOf<int64_t>(kParts + 1);
  stream_.Launch("looking for marks", &LastOfPart, dim3(static_cast<unsigned>(parts)), dim3(kBlock),
                 std::bit_cast<uint32_t>(mark), reinterpret_cast<const uint32_t*>(x), count, words);
  stream_.Launch("looking for marks", &LastOfParts, dim3(1), dim3(kBlock), words, parts, words + kParts);
  return Fetch(words + kParts, count);
}

}  // namespace lynx::worker::cuda
