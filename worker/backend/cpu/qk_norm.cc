// Root mean square normalisation of each head of queries and keys (Henry et al. 2020), token by token and head by
// head. See rms_norm_row.h.
#include <algorithm>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/rms_norm_row.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

template <class T>
LYNX_SIMD void Forward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                       T* normed) {
  const int64_t values = shape.k * shape.d;
  for (int64_t token = 0; token < shape.b * shape.s; ++token) {
    for (int64_t head = 0; head < shape.a + shape.k; ++head, qkv += shape.d, normed += shape.d) {
      NormRow(qkv, head < shape.a ? q_gamma : k_gamma, shape.d, epsilon, normed);
    }
    std::copy(qkv, qkv + values, normed);
    qkv += values;
    normed += values;
  }
}

template <class T>
LYNX_SIMD void Backward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon, T* dqkv,
                        float* dq_gamma, float* dk_gamma) {
  const int64_t values = shape.k * shape.d;
  for (int64_t token = 0; token < shape.b * shape.s; ++token, qkv += values, dqkv += values) {
    for (int64_t head = 0; head < shape.a + shape.k; ++head, qkv += shape.d, dqkv += shape.d) {
      const bool query = head < shape.a;
      NormRowBackward(qkv, query ? q_gamma : k_gamma, dqkv, shape.d, epsilon, /*accumulate=*/false, dqkv,
                      query ? dq_gamma : dk_gamma);
    }
  }
}

}  // namespace

template <class T>
void CpuOps<T>::QkNormForward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                              T* normed) {
  Forward(shape, qkv, q_gamma, k_gamma, epsilon, normed);
}

template <class T>
void CpuOps<T>::QkNormBackward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                               T* dqkv, float* dq_gamma, float* dk_gamma) {
  Backward(shape, qkv, q_gamma, k_gamma, epsilon, dqkv, dq_gamma, dk_gamma);
}

#define LYNX_INSTANTIATE(T)                                                                               \
  template void CpuOps<T>::QkNormForward(const AttentionShape&, const T*, const T*, const T*, float, T*); \
  template void CpuOps<T>::QkNormBackward(const AttentionShape&, const T*, const T*, const T*, float, T*, float*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
