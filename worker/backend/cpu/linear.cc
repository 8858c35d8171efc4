// Linear layers: matrix products by OpenBLAS.
#include <cstring>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/gemm.h"

namespace lynx::cpu {

void CpuBackend::LinearForward(const float* x, const float* w, const float* bias, int64_t n, int64_t in, int64_t out,
                               float* y) {
  // The product is added to the rows of y, which costs nothing: OpenBLAS would else first fill them with zeros.
  if (bias != nullptr) {
    for (int64_t row = 0; row < n; ++row) std::memcpy(y + row * out, bias, static_cast<size_t>(out) * sizeof(float));
  }
  Gemm(Transpose::kNo, Transpose::kYes, n, out, in, 1.0f, {x, in}, {w, in}, bias != nullptr ? 1.0f : 0.0f, {y, out});
}

void CpuBackend::LinearBackward(const float* dy, const float* w, int64_t n, int64_t in, int64_t out, float* dx) {
  Gemm(Transpose::kNo, Transpose::kNo, n, in, out, 1.0f, {dy, out}, {w, in}, 0.0f, {dx, in});
}

void CpuBackend::LinearWeight(const float* x, const float* dy, int64_t n, int64_t in, int64_t out, float* dw,
                              float* dbias) {
  Gemm(Transpose::kYes, Transpose::kNo, out, in, n, 1.0f, {dy, out}, {x, in}, 1.0f, {dw, in});
  if (dbias != nullptr) BiasGradient(dy, n, out, dbias);
}

}  // namespace lynx::cpu
