// The token embedding of one vocabulary shard. The forward pass gathers rows; the backward pass adds rows to their places.
//
// The backward pass adds the rows of equal tokens in the order of tokens. Each token has a block. The block looks for an
// earlier equal token. If there is none, it adds the rows of all equal tokens to this token's row of dtok. So no two blocks
// write the same row.
#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kBlock)
    Gather(const int32_t* tokens, const T* tok, int32_t first_row, int64_t h, int64_t v, T* out) {
  const int64_t token = blockIdx.x;
  const int64_t row = int64_t{tokens[token]} - first_row;
  const bool held = row >= 0 && row < v;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) out[token * h + i] = held ? tok[row * h + i] : T(0.0f);
}

// Returns true in all threads if `mine` is true in any thread of the block.
__device__ bool Any(bool mine) { return ReduceBlock<Max>(mine ? 1 : 0) != 0; }

template <class T>
__global__ void __launch_bounds__(kBlock)
    Scatter(const int32_t* tokens, const T* dout, int32_t first_row, int64_t n, int64_t h, int64_t v, float* dtok) {
  __shared__ unsigned equal[kBlock / kWarp];  // one bit for each token of a piece; 1: it equals `token`
  const int64_t first = blockIdx.x;
  const int32_t token = tokens[first];
  const int64_t row = int64_t{token} - first_row;
  if (row < 0 || row >= v) return;
  bool earlier = false;
  for (int64_t i = threadIdx.x; i < first; i += kBlock) earlier |= tokens[i] == token;
  if (Any(earlier)) return;
  for (int64_t piece = first; piece < n; piece += kBlock) {
    const int64_t mine = piece + threadIdx.x;
    const unsigned ballot = __ballot_sync(kWholeWarp, mine < n && tokens[mine] == token);
    if (threadIdx.x % kWarp == 0) equal[threadIdx.x / kWarp] = ballot;
    __syncthreads();
    for (int warp = 0; warp < kBlock / kWarp; ++warp) {
      for (unsigned left = equal[warp]; left != 0; left &= left - 1) {
        const T* const from = dout + (piece + warp * kWarp + __ffs(left) - 1) * h;
        for (int64_t i = threadIdx.x; i < h; i += kBlock) dtok[row * h + i] += from[i];
      }
    }
    __syncthreads();
  }
}

}  // namespace

template <class T>
void CudaOps<T>::EmbeddingForward(const int32_t* tokens, const T* tok, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                  T* out) {
  this->stream_.Launch("embedding", &Gather<T>, dim3(BlocksOf(n, 1)), dim3(kBlock), tokens, tok, first_row, h, v, out);
}

template <class T>
void CudaOps<T>::EmbeddingBackward(const int32_t* tokens, const T* dout, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                   float* dtok) {
  this->stream_.Launch("embedding backward", &Scatter<T>, dim3(BlocksOf(n, 1)), dim3(kBlock), tokens, dout, first_row, n, h, v,
                       dtok);
}

#define LYNX_INSTANTIATE(T)                                                                                     \
  template void CudaOps<T>::EmbeddingForward(const int32_t*, const T*, int32_t, int64_t, int64_t, int64_t, T*); \
  template void CudaOps<T>::EmbeddingBackward(const int32_t*, const T*, int32_t, int64_t, int64_t, int64_t, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
