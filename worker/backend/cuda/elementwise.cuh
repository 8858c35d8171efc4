// Elementwise ops: each thread applies a function to one element or one pack of elements.
#ifndef LYNX_WORKER_BACKEND_CUDA_ELEMENTWISE_CUH_
#define LYNX_WORKER_BACKEND_CUDA_ELEMENTWISE_CUH_

#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/stream.h"

namespace lynx::worker::cuda {

template <class Function>
__global__ void __launch_bounds__(kBlock) OnEach(int64_t count, Function function) {
  const int64_t at = GlobalThread();
  if (at < count) function(at);
}

// Calls function(i) for i in [0, count) on the device. Function is a value with a __device__ call operator.
template <class Function>
void ForEach(Stream& stream, const char* name, int64_t count, const Function& function) {
  stream.Launch(name, &OnEach<Function>, dim3(BlocksOf(count, kBlock)), dim3(kBlock), count, function);
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_ELEMENTWISE_CUH_
