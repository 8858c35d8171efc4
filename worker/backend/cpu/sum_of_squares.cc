// Computes the sum of squares for the gradient norm.
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

LYNX_SIMD double Sum(const float* x, size_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace

void CpuBackend::SumOfSquares(std::span<const std::span<const float>> tensors, double* sum) {
  for (const std::span<const float> tensor : tensors) *sum += Sum(tensor.data(), tensor.size());
}

}  // namespace lynx::worker::cpu
