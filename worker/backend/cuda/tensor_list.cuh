// Lists of tensors that one kernel works on. A block works on one chunk of one tensor. A table in the kernel's parameters says
// which chunk this is. A model has hundreds of parameters, and most of them are too small to occupy a device. If each had a
// kernel of its own, starting the kernels would take longer than the work itself.
#ifndef LYNX_WORKER_BACKEND_CUDA_TENSOR_LIST_CUH_
#define LYNX_WORKER_BACKEND_CUDA_TENSOR_LIST_CUH_

#include <algorithm>
#include <cstdint>

#include "worker/backend/cuda/block.cuh"

namespace lynx::worker::cuda {

// With 64 bytes for each tensor, a list stays below the 4 KiB limit of a kernel's parameters.
inline constexpr int kListed = 56;
inline constexpr int64_t kChunk = 16 * kBlock;  // a chunk has this number of elements or a multiple of it

// The work of one block: the elements [begin, end) of a tensor.
template <class Tensor>
struct Chunk {
  const Tensor& tensor;
  int64_t begin, end;
};

// Tensor must have a member `count`, its number of elements.
template <class Tensor>
struct TensorList {
  Tensor tensors[kListed];
  int32_t ends[kListed];  // for each tensor, the number of chunks up to its end; it always rises, because no tensor is empty
  int32_t tensor_count;
  int64_t chunk;  // number of elements in a chunk

  __device__ Chunk<Tensor> ChunkOf(unsigned block) const {
    int low = 0, high = tensor_count - 1;  // the block's tensor is in [low, high]
    while (low < high) {
      const int middle = (low + high) / 2;
      if (block < static_cast<unsigned>(ends[middle])) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const int64_t begin = (block - static_cast<int64_t>(low == 0 ? 0 : ends[low - 1])) * chunk;
    const int64_t rest = tensors[low].count - begin;
    return {tensors[low], begin, begin + (rest < chunk ? rest : chunk)};
  }
};

// Returns the number of elements in a chunk. It is so large that all tensors together have at most `most` chunks, plus one for
// each tensor: the last chunk of a tensor may be incomplete.
template <class Tensors>
int64_t ChunkFor(const Tensors& tensors, int64_t most) {
  int64_t count = 0;
  for (const auto& tensor : tensors) count += tensor.count;
  const int64_t chunks_each = (count + kChunk * most - 1) / (kChunk * most);
  return kChunk * std::max<int64_t>(chunks_each, 1);
}

// Calls launch(list, chunks) with one list after another, until every tensor that is not empty has been in a list.
template <class Tensor, class Tensors, class Launch>
void ForLists(const Tensors& tensors, int64_t chunk, Launch launch) {
  TensorList<Tensor> list{};
  list.chunk = chunk;
  int32_t chunks = 0;
  const auto flush = [&] {
    if (list.tensor_count > 0) launch(list, chunks);
    list.tensor_count = chunks = 0;
  };
  for (const Tensor& tensor : tensors) {
    if (tensor.count == 0) continue;
    chunks += static_cast<int32_t>((tensor.count + chunk - 1) / chunk);
    list.tensors[list.tensor_count] = tensor;
    list.ends[list.tensor_count] = chunks;
    if (++list.tensor_count == kListed) flush();
  }
  flush();
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_TENSOR_LIST_CUH_
