// Ops that fill and round memory.
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

struct RoundEach {
  const float* from;
  Bfloat16* to;

  __device__ void operator()(int64_t i) const { to[i] = from[i]; }
};

struct FillEach {
  float* x;
  float value;

  __device__ void operator()(int64_t i) const { x[i] = value; }
};

}  // namespace

void CudaBackend::Round(const float* from, int64_t count, Bfloat16* to) {
  ForEach(stream_, "rounding to bfloat16", count, RoundEach{from, to});
}

void CudaBackend::Fill(float* x, int64_t count, float value) { ForEach(stream_, "fill", count, FillEach{x, value}); }

}  // namespace lynx::worker::cuda
