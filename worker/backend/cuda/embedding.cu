// The token embedding of one vocabulary shard. The forward pass gathers rows; the backward pass adds rows to their places.
//
// The backward pass first sorts the tokens by their rows and, within a row, by their order. Then the tokens of each row are
// neighbours, and a block adds all of them, in the order of tokens. So no two blocks write the same row.
#include <algorithm>
#include <utility>

#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock)
    Gather(const int32_t* tokens, const T* tok, int32_t first_row, int64_t h, int64_t v, T* out) {
  using P = Pack<T, kWidth>;
  const int64_t token = blockIdx.x;
  const int64_t row = int64_t{tokens[token]} - first_row;
  const bool held = row >= 0 && row < v;
  for (int64_t i = threadIdx.x * kWidth; i < h; i += kBlock * kWidth) {
    (held ? P::Load(tok + row * h + i) : P{}).Store(out + token * h + i);
  }
}

// A token's row in this shard, and its place among the tokens, as one number. These numbers are different from each other, and
// their order is that of rows and, within a row, that of tokens. Tokens of other shards have row v and come last.
using Key = uint64_t;

__device__ Key KeyOf(int64_t row, int64_t place) { return static_cast<Key>(row) << 32 | static_cast<Key>(place); }
__device__ int64_t RowOf(Key key) { return static_cast<int64_t>(key >> 32); }
__device__ int64_t PlaceOf(Key key) { return static_cast<int64_t>(key & 0xffffffff); }

// Returns the index of the first of the sorted keys [begin, end) that is not below `key`, or `end`.
__device__ int64_t FirstNotBelow(const Key* keys, int64_t begin, int64_t end, Key key) {
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (keys[middle] < key) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return end;
}

// `keys` (count) consists of sorted runs of `width` keys each; the last run may be shorter. Returns the index of key number
// `at` after its run is merged with the neighbouring one (the runs 0 and 1 are neighbours, 2 and 3, ...).
__device__ int64_t Merged(const Key* keys, int64_t count, int64_t width, int64_t at) {
  const int64_t run = at / width, other = run ^ 1;
  const int64_t begin = other * width < count ? other * width : count;
  const int64_t end = begin + width < count ? begin + width : count;
  return run / 2 * 2 * width + at % width + (FirstNotBelow(keys, begin, end, keys[at]) - begin);
}

constexpr int kTile = 4 * kBlock;  // the number of keys that a block sorts

// Writes the keys of the tokens, in sorted runs of kTile keys.
__global__ void __launch_bounds__(kBlock)
    SortTiles(const int32_t* tokens, int32_t first_row, int64_t n, int64_t v, Key* sorted) {
  __shared__ Key buffers[2][kTile];
  const int64_t first = int64_t{blockIdx.x} * kTile;
  const int count = static_cast<int>(n - first < kTile ? n - first : kTile);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlock) {
    const int64_t row = int64_t{tokens[first + i]} - first_row;
    buffers[0][i] = KeyOf(row >= 0 && row < v ? row : v, first + i);
  }
  int from = 0;
  for (int width = 1; width < count; width *= 2) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlock) {
      buffers[1 - from][Merged(buffers[from], count, width, i)] = buffers[from][i];
    }
    from = 1 - from;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlock) sorted[first + i] = buffers[from][i];
}

__global__ void __launch_bounds__(kBlock) MergeRuns(const Key* keys, int64_t count, int64_t width, Key* merged) {
  const int64_t at = GlobalThread();
  if (at < count) merged[Merged(keys, count, width, at)] = keys[at];
}

// Each block whose key is the first one of a row adds the rows of dout of all tokens of this row.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock)
    AddRows(const Key* sorted, const T* dout, int64_t n, int64_t h, int64_t v, float* dtok) {
  const int64_t first = blockIdx.x, row = RowOf(sorted[first]);
  if (row >= v || (first > 0 && RowOf(sorted[first - 1]) == row)) return;
  const int64_t end = FirstNotBelow(sorted, first, n, KeyOf(row + 1, 0));
  for (int64_t i = threadIdx.x * kWidth; i < h; i += kBlock * kWidth) {
    auto sums = Pack<float, kWidth>::Load(dtok + row * h + i);
#pragma unroll 8
    for (int64_t at = first; at < end; ++at) {
      const auto values = Pack<T, kWidth>::Load(dout + PlaceOf(sorted[at]) * h + i);
#pragma unroll
      for (int element = 0; element < kWidth; ++element) sums.at[element] += values.at[element];
    }
    sums.Store(dtok + row * h + i);
  }
}

}  // namespace

template <class T>
void CudaOps<T>::EmbeddingForward(const int32_t* tokens, const T* tok, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                  T* out) {
  const auto kernel = FitsPacks(h, tok, out) ? &Gather<T, kPackOf<T>> : &Gather<T, 1>;
  this->stream_.Launch("embedding", kernel, dim3(BlocksOf(n, 1)), dim3(kBlock), tokens, tok, first_row, h, v, out);
}

template <class T>
void CudaOps<T>::EmbeddingBackward(const int32_t* tokens, const T* dout, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                   float* dtok) {
  constexpr char kName[] = "embedding backward";
  constexpr int kWidth = kPackOf<float>;
  const auto add = FitsPacks(h, dtok) && FitsPacks(h, dout) ? &AddRows<T, kWidth> : &AddRows<T, 1>;
  constexpr int64_t kMaxTokens = Stream::kScratch.value / static_cast<int64_t>(2 * sizeof(Key));
  for (int64_t first = 0; first < n; first += kMaxTokens) {
    const int64_t count = std::min(kMaxTokens, n - first);
    Key *keys = this->stream_.template ScratchOf<Key>(2 * count), *merged = keys + count;
    this->stream_.Launch(kName, &SortTiles, dim3(BlocksOf(count, kTile)), dim3(kBlock), tokens + first, first_row, count, v,
                         keys);
    for (int64_t width = kTile; width < count; width *= 2) {
      this->stream_.Launch(kName, &MergeRuns, dim3(BlocksOf(count, kBlock)), dim3(kBlock), keys, count, width, merged);
      std::swap(keys, merged);
    }
    this->stream_.Launch(kName, add, dim3(BlocksOf(count, 1)), dim3(kBlock), keys, dout + first * h, count, h, v, dtok);
  }
}

#define LYNX_INSTANTIATE(T)                                                                                     \
  template void CudaOps<T>::EmbeddingForward(const int32_t*, const T*, int32_t, int64_t, int64_t, int64_t, T*); \
  template void CudaOps<T>::EmbeddingBackward(const int32_t*, const T*, int32_t, int64_t, int64_t, int64_t, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
