// CpuOps: the ops of layers on the cores of one machine, for elements that are stored as T. Each op has a file in this folder.
// Matrix products use gemm.h and bfloat16_gemm.h. All other ops are loops that the compiler vectorises (simd.h). cpu_backend.h
// says what the ops guarantee.
#ifndef LYNX_WORKER_BACKEND_CPU_CPU_OPS_H_
#define LYNX_WORKER_BACKEND_CPU_CPU_OPS_H_

#include <cstdint>
#include <type_traits>

#include "worker/backend/backend.h"
#include "worker/backend/cpu/bfloat16_gemm.h"
#include "worker/backend/cpu/float_gemm.h"

namespace lynx::worker::cpu {

// The interface that CpuOps<T> implements. CpuBackend is derived from CpuOps<float>, so this class implements Backend.
template <class T>
using InterfaceOf = std::conditional_t<std::is_same_v<T, float>, Backend, LayerBackend<T>>;

template <class T>
class CpuOps : public InterfaceOf<T> {
 public:
  void EmbeddingForward(const int32_t* tokens, const T* tok, int32_t first_row, int64_t n, int64_t h, int64_t v,
                        T* out) override;
  void EmbeddingBackward(const int32_t* tokens, const T* dout, int32_t first_row, int64_t n, int64_t h, int64_t v,
                         float* dtok) override;
  void PositionForward(T* x, const T* pos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) override;
  void PositionBackward(T* dx, float* dpos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) override;
  void LayerNormForward(const T* x, const T* gamma, const T* beta, int64_t n, int64_t h, float epsilon, T* y) override;
  void LayerNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate, T* dx,
                         float* dgamma, float* dbeta) override;
  void LinearForward(const T* x, const T* w, const T* bias, int64_t n, int64_t in, int64_t out, T* y) override;
  void LogitsForward(const T* x, const T* w, int64_t n, int64_t in, int64_t out, float* logits) override;
  void LinearBackward(const T* dy, const T* w, int64_t n, int64_t in, int64_t out, T* dx) override;
  void AddLinearBackward(const T* dy, const T* w, int64_t n, int64_t in, int64_t out, T* dx) override;
  void LinearWeight(const T* x, const T* dy, int64_t n, int64_t in, int64_t out, float* dw, float* dbias) override;
  void RmsNormForward(const T* x, const T* gamma, int64_t n, int64_t h, float epsilon, T* y) override;
  void RmsNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate, T* dx,
                       float* dgamma) override;
  void QkNormForward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                     T* normed) override;
  void QkNormBackward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon, T* dqkv,
                      float* dq_gamma, float* dk_gamma) override;
  void LatentNormForward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* normed) override;
  void LatentNormBackward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* dlatent,
                          float* dgamma) override;
  void LatentHeadsForward(const LatentShape& shape, const T* normed, const T* x, const T* w_query, const T* w_key_value,
                          T* qkv) override;
  void LatentHeadsBackward(const LatentShape& shape, const T* dqkv, const T* w_query, const T* w_key_value, float* workspace,
                           T* dnormed, T* dx) override;
  void LatentHeadsWeight(const LatentShape& shape, const T* normed, const T* x, const T* dqkv, float* dw_query,
                         float* dw_key_value) override;
  void RopeForward(const AttentionShape& shape, const RotaryTable& rotary, T* qkv) override;
  void RopeBackward(const AttentionShape& shape, const RotaryTable& rotary, T* dqkv) override;
  void ProbsForward(const AttentionShape& shape, const T* qkv, float* workspace, T* probs) override;
  void ContextForward(const AttentionShape& shape, const T* probs, const T* qkv, const DropoutKey& key, float* workspace,
                      T* context) override;
  void AttentionBackward(const AttentionShape& shape, const T* probs, const T* qkv, const T* dcontext, const DropoutKey& key,
                         float* workspace, T* dqkv) override;
  void GeluForward(const T* x, int64_t count, T* y) override;
  void GeluBackward(const T* x, int64_t count, T* dy) override;
  void FlashForward(const AttentionShape& shape, const T* qkv, const DropoutKey& key, float* workspace, T* context,
                    float* lse) override;
  void FlashBackward(const AttentionShape& shape, const T* qkv, const T* context, const float* lse, const T* dcontext,
                     const DropoutKey& key, float* workspace, T* dqkv) override;
  void SiluForward(const T* gated, int64_t n, int64_t f, T* silu) override;
  void SiluBackward(const T* gated, int64_t n, int64_t f, T* dgated) override;
  void SwigluForward(const T* gated, const T* silu, int64_t n, int64_t f, T* y) override;
  void SwigluBackward(const T* gated, const T* silu, const T* dy, int64_t n, int64_t f, T* dgated) override;
  void BiasDropoutAddForward(const T* residual, const T* bias, int64_t s, int64_t n, int64_t h, const DropoutKey& key,
                             T* y) override;
  void BiasDropoutAddBackward(const T* dout, int64_t s, int64_t n, int64_t h, const DropoutKey& key, T* dy) override;
  void BiasGradient(const T* dy, int64_t n, int64_t h, float* dbias) override;
  void GatedSwigluForward(const T* gated, const float* gate, int64_t n, int64_t f, T* y) override;
  void GatedSwigluBackward(const T* gated, const float* gate, const T* dy, int64_t n, int64_t f, T* dgated,
                           float* dproduct) override;
  void TokenGateForward(const T* x, const T* w, int64_t n, int64_t h, float* gate) override;
  void TokenGateBackward(const float* dproduct, const T* w, int64_t n, int64_t h, T* dx) override;
  void TokenGateWeight(const T* x, const float* dproduct, int64_t n, int64_t h, float* dw) override;
  void RouterForward(const RouterShape& shape, const T* x, const T* w, const float* bias, float* scores,
                     RouteChoice* route) override;
  void RouterBackward(const RouterShape& shape, const RouterLosses& losses, const float* scores, const RouteChoice* route,
                      const float* dweights, const float* late, const T* w, float* dscores, T* dx) override;
  void RouterWeight(const RouterShape& shape, const T* x, const float* dscores, float* dw) override;
  void TokensToRows(const RouterShape& shape, const RouteChoice* route, const T* x, T* rows, float* weights) override;
  void RowsToTokens(const RouterShape& shape, const RouteChoice* route, const T* rows, bool accumulate, T* x) override;
  void ExpertForward(const ExpertShape& shape, const float* weights, const T* x, const T* w, int64_t in, int64_t out,
                     T* y) override;
  void ExpertBackward(const ExpertShape& shape, const float* weights, const T* dy, const T* w, int64_t in, int64_t out,
                      T* dx) override;
  void ExpertWeight(const ExpertShape& shape, const float* weights, const T* x, const T* dy, int64_t in, int64_t out,
                    float* dw) override;
  void ExpertSwigluForward(const ExpertShape& shape, const float* weights, const T* gated, const T* silu, int64_t f,
                           T* y) override;
  void ExpertSwigluBackward(const ExpertShape& shape, const float* weights, const T* gated, const T* silu, const T* dy,
                            int64_t f, T* dgated, float* dweights) override;
  void LossBackward(const float* stats, const int32_t* targets, int32_t first_row, int64_t t, int64_t n, int64_t v,
                    int64_t valid, double scale, const float* logits, T* dlogits) override;

 private:
  [[no_unique_address]] std::conditional_t<std::is_same_v<T, float>, FloatGemm, Bfloat16Gemm> gemm_;
};

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_CPU_OPS_H_
