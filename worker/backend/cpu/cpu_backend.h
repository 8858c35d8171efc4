// CpuBackend: the Backend on one machine's cores. Matrix products are OpenBLAS's; everything else is loops that the
// compiler vectorises (simd.h). Each op is a file of this folder.
//
// The order of every sum depends on shapes and on the machine's instruction set alone, never on addresses: one
// machine repeats its bits, machines of different kinds agree to rounding. One thread at a time per object; the
// object owns the memory it allocated. The number of BLAS threads is one setting of the process: the last backend
// made decides.
#ifndef LYNX_WORKER_BACKEND_CPU_CPU_BACKEND_H_
#define LYNX_WORKER_BACKEND_CPU_CPU_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/backend/backend.h"

namespace lynx::cpu {

class CpuBackend : public Backend {
 public:
  CpuBackend() = default;
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;
  ~CpuBackend() override;

  void EmbeddingForward(const int32_t* tokens, const float* tok, int32_t first_row, int64_t n, int64_t h, int64_t v,
                        float* out) override;
  void EmbeddingBackward(const int32_t* tokens, const float* dout, int32_t first_row, int64_t n, int64_t h, int64_t v,
                         float* dtok) override;
  void PositionForward(float* x, const float* pos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) override;
  void PositionBackward(float* dx, float* dpos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) override;
  void LayerNormForward(const float* x, const float* gamma, const float* beta, int64_t n, int64_t h,
                        float* y) override;
  void LayerNormBackward(const float* x, const float* gamma, const float* dy, int64_t n, int64_t h, bool accumulate,
                         float* dx, float* dgamma, float* dbeta) override;
  void LinearForward(const float* x, const float* w, const float* bias, int64_t n, int64_t in, int64_t out,
                     float* y) override;
  void LinearBackward(const float* dy, const float* w, int64_t n, int64_t in, int64_t out, float* dx) override;
  void LinearWeight(const float* x, const float* dy, int64_t n, int64_t in, int64_t out, float* dw,
                    float* dbias) override;
  void RmsNormForward(const float* x, const float* gamma, int64_t n, int64_t h, float* y) override;
  void RmsNormBackward(const float* x, const float* gamma, const float* dy, int64_t n, int64_t h, bool accumulate,
                       float* dx, float* dgamma) override;
  void RopeForward(const AttentionShape& shape, float* qkv) override;
  void RopeBackward(const AttentionShape& shape, float* dqkv) override;
  void ProbsForward(const AttentionShape& shape, const float* qkv, float* probs) override;
  void ContextForward(const AttentionShape& shape, const float* probs, const float* qkv, const DropoutKey& key,
                      float* workspace, float* context) override;
  void AttentionBackward(const AttentionShape& shape, const float* probs, const float* qkv, const float* dcontext,
                         const DropoutKey& key, float* workspace, float* dqkv) override;
  void FlashForward(const AttentionShape& shape, const float* qkv, const DropoutKey& key, float* context,
                    float* lse) override;
  void FlashBackward(const AttentionShape& shape, const float* qkv, const float* context, const float* lse,
                     const float* dcontext, const DropoutKey& key, float* workspace, float* dqkv) override;
  void GeluForward(const float* x, int64_t count, float* y) override;
  void GeluBackward(const float* x, int64_t count, float* dy) override;
  void SiluForward(const float* gated, int64_t n, int64_t f, float* silu) override;
  void SiluBackward(const float* gated, int64_t n, int64_t f, float* dgated) override;
  void SwigluForward(const float* gated, const float* silu, int64_t n, int64_t f, float* y) override;
  void SwigluBackward(const float* gated, const float* silu, const float* dy, int64_t n, int64_t f,
                      float* dgated) override;
  void BiasDropoutAddForward(const float* residual, const float* bias, int64_t s, int64_t n, int64_t h,
                             const DropoutKey& key, float* y) override;
  void BiasDropoutAddBackward(const float* dout, int64_t s, int64_t n, int64_t h, const DropoutKey& key,
                              float* dy) override;
  void BiasGradient(const float* dy, int64_t n, int64_t h, float* dbias) override;
  void LossStats(const float* logits, const int32_t* targets, int32_t first_row, int64_t n, int64_t v, int64_t valid,
                 float* stats) override;
  double LossForward(const float* stats, int64_t t, int64_t n) override;
  void LossBackward(const float* stats, const int32_t* targets, int32_t first_row, int64_t t, int64_t n, int64_t v,
                    int64_t valid, double scale, float* logits) override;
  double SumOfSquares(const float* x, int64_t count) override;
  void AdamW(const AdamWArgs& args, int64_t count, const float* gradient, float* w, float* m, float* v) override;
  void Fill(float* x, int64_t count, float value) override;
  void Copy(const float* from, int64_t count, float* to) override;
  absl::StatusOr<std::span<float>> Allocate(Bytes bytes, const std::string& what) override;
  std::string Name() const override;

 private:
  struct Mapping {
    void* address;
    size_t bytes;
  };
  std::vector<Mapping> mappings_;
};

}  // namespace lynx::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_CPU_BACKEND_H_
