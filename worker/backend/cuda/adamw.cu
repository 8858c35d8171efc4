// AdamW applies adamw_update.h to every element of a list of tensors.
#include <cmath>

#include "worker/backend/adamw_update.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/tensor_list.cuh"

namespace lynx::worker::cuda {
namespace {

constexpr int64_t kMaxChunks = int64_t{1} << 30;  // the largest number of chunks, plus one for each tensor (ChunkFor)

__global__ void __launch_bounds__(kBlock) UpdateList(TensorList<AdamWTensor> list, AdamWUpdate update) {
  const Chunk<AdamWTensor> chunk = list.ChunkOf(blockIdx.x);
  const AdamWTensor& tensor = chunk.tensor;
  const float keep = update.Keep(tensor.decays);
#pragma unroll 4
  for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += kBlock) {
    const float g = tensor.gradient[i] * update.gradient_scale;
    const float m = update.FirstMoment(tensor.m[i], g);
    const float v = update.SecondMoment(tensor.v[i], g);
    const float w = update.Weight(tensor.w[i], m, sqrtf(v), keep);
    tensor.m[i] = m;
    tensor.v[i] = v;
    tensor.w[i] = w;
    if (tensor.rounded != nullptr) tensor.rounded[i] = w;
  }
}

}  // namespace

void CudaBackend::AdamW(const AdamWArgs& args, std::span<const AdamWTensor> tensors) {
  const AdamWUpdate update = AdamWUpdate::Of(args);
  ForLists<AdamWTensor>(tensors, ChunkFor(tensors, kMaxChunks), [&](const TensorList<AdamWTensor>& list, int32_t chunks) {
    stream_.Launch("AdamW", &UpdateList, dim3(static_cast<unsigned>(chunks)), dim3(kBlock), list, update);
  });
}

}  // namespace lynx::worker::cuda
