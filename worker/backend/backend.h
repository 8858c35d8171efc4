// Backend: the arithmetic of one device. One interface; the CPU implementation is worker/backend/cpu, one op a file.
//
// All tensors are fp32, row-major and contiguous; shapes stand beside each argument. b microbatch samples, s sequence,
// n = b*s tokens, h hidden, a heads on this rank, d head size, f ffn columns on this rank, v vocabulary rows on this rank.
// "=" overwrites, "+=" accumulates (parameter gradients always accumulate over microbatches).
//
// Every op is deterministic: the same inputs give the same bits, whatever ran before and whatever else the machine
// does, so that recomputation loses nothing. Ops run on the calling thread and return when done. An implementation may
// keep scratch of its own of fixed size, allocated at construction. One thread at a time per object.
#ifndef LYNX_WORKER_BACKEND_BACKEND_H_
#define LYNX_WORKER_BACKEND_BACKEND_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

// Names one stream of dropout decisions. The mask is a pure function of these and of the element's place in the
// *global* tensor, never of the layout, so recomputation and every parallel layout draw the same.
struct DropoutKey {
  double rate = 0;           // 0: the op is the identity and draws nothing. Kept elements are scaled by 1/(1-rate)
  uint64_t seed = 0;
  int64_t step = 0;
  int32_t layer = 0;         // kEmbeddingLayer for the embedding
  int32_t op = 0;            // static_cast<int>(Op)
  int64_t first_sample = 0;  // index within the global batch of this step of the microbatch's first sample
  int64_t first_token = 0;   // where the rows begin among the microbatch's b*s tokens: not 0 for a share of the sequence
};

// Rows of scores that unfused attention works on at once; the planner counts its workspace by them.
inline constexpr int64_t kAttentionRows = 64;

// Causal attention of `a` query heads of size d over `k` key and value heads: head i of the queries looks at head
// i / (a / k) (grouped queries, Ainslie et al. 2023). qkv is (b, s, a + 2k, d): queries, then keys, then values.
struct AttentionShape {
  int64_t b = 0, s = 0, a = 0;
  int64_t k = 0;  // a divisor of a
  int64_t d = 0;
  int64_t first_head = 0;  // global index of this rank's first query head: it numbers dropout decisions only

  constexpr int64_t width() const { return (a + 2 * k) * d; }  // of a row of qkv
};

struct AdamWArgs {
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;          // 1-based, for bias correction
  double gradient_scale; // clipping factor, multiplies gradients as they are read
};

class Backend {
 public:
  virtual ~Backend() = default;

  // out (n, h) = tok[token - first_row] for tokens in [first_row, first_row + v), else 0.   tok (v, h), tokens (n)
  virtual void EmbeddingForward(const int32_t* tokens, const float* tok, int32_t first_row, int64_t n, int64_t h,
                                int64_t v, float* out) = 0;
  // dtok += scatter of dout. Deterministic order.
  virtual void EmbeddingBackward(const int32_t* tokens, const float* dout, int32_t first_row, int64_t n, int64_t h,
                                 int64_t v, float* dtok) = 0;
  // x (n, h) = dropout(x + pos); row i is token key.first_token + i of the microbatch   pos (s, h)
  virtual void PositionForward(float* x, const float* pos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) = 0;
  // dx = dropout'(dx) in place; dpos += dx, summed over samples
  virtual void PositionBackward(float* dx, float* dpos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) = 0;

  // y = (x - mean) * rstd * gamma + beta, epsilon 1e-5   x, y (n, h)
  virtual void LayerNormForward(const float* x, const float* gamma, const float* beta, int64_t n, int64_t h,
                                float* y) = 0;
  // dx += or = input gradient (`accumulate`); dgamma, dbeta += . Recomputes mean and rstd from x.
  virtual void LayerNormBackward(const float* x, const float* gamma, const float* dy, int64_t n, int64_t h,
                                 bool accumulate, float* dx, float* dgamma, float* dbeta) = 0;

  // y (n, out) = x (n, in) w^T + bias   w (out, in); bias (out) or nullptr
  virtual void LinearForward(const float* x, const float* w, const float* bias, int64_t n, int64_t in, int64_t out,
                             float* y) = 0;
  // dx (n, in) = dy (n, out) w
  virtual void LinearBackward(const float* dy, const float* w, int64_t n, int64_t in, int64_t out, float* dx) = 0;
  // dw (out, in) += dy^T x; dbias += column sums of dy (nullptr: none)
  virtual void LinearWeight(const float* x, const float* dy, int64_t n, int64_t in, int64_t out, float* dw,
                            float* dbias) = 0;

  // y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + 1e-5) (Zhang and Sennrich 2019)   x, y (n, h)
  virtual void RmsNormForward(const float* x, const float* gamma, int64_t n, int64_t h, float* y) = 0;
  // dx += or = input gradient (`accumulate`); dgamma += . Recomputes rstd from x.
  virtual void RmsNormBackward(const float* x, const float* gamma, const float* dy, int64_t n, int64_t h,
                               bool accumulate, float* dx, float* dgamma) = 0;

  // Rotary positions (Su et al. 2021), in place on the queries and keys of qkv: elements i and i + d/2 of a head at
  // position p turn by the angle p * 10000^(-2i/d). d is even.
  virtual void RopeForward(const AttentionShape& shape, float* qkv) = 0;
  // The same by the opposite angle, on the gradient.
  virtual void RopeBackward(const AttentionShape& shape, float* dqkv) = 0;

  // probs (b, a, s, s) = softmax(causal(q k^T / sqrt(d)))
  virtual void ProbsForward(const AttentionShape& shape, const float* qkv, float* probs) = 0;
  // context (b, s, a, d) = dropout(probs) v. workspace (r, s), unused at rate 0, where r is s, but at most
  // kAttentionRows.
  virtual void ContextForward(const AttentionShape& shape, const float* probs, const float* qkv, const DropoutKey& key,
                              float* workspace, float* context) = 0;
  // Backward of context and probs together: dqkv = . workspace 2 * (r, s)
  virtual void AttentionBackward(const AttentionShape& shape, const float* probs, const float* qkv,
                                 const float* dcontext, const DropoutKey& key, float* workspace, float* dqkv) = 0;

  // y = gelu(x), the tanh approximation (Hendrycks and Gimpel 2016)   count elements
  virtual void GeluForward(const float* x, int64_t count, float* y) = 0;
  // dy = dy * gelu'(x), in place
  virtual void GeluBackward(const float* x, int64_t count, float* dy) = 0;

  // Fused attention (Dao et al. 2022): context = dropout(softmax(causal(q k^T / sqrt(d)))) v, without the scores ever
  // being in memory. lse (b, a, s) = log-sum-exp of the rows of scores. It draws the dropout of ContextForward.
  virtual void FlashForward(const AttentionShape& shape, const float* qkv, const DropoutKey& key, float* context,
                            float* lse) = 0;
  // dqkv = . workspace (b, a, s)
  virtual void FlashBackward(const AttentionShape& shape, const float* qkv, const float* context, const float* lse,
                             const float* dcontext, const DropoutKey& key, float* workspace, float* dqkv) = 0;

  // SwiGLU (Shazeer 2020) in two ops. gated (n, 2, f): the gate's f columns, then those of what it opens to.
  // silu (n, f) = gate * sigmoid(gate)
  virtual void SiluForward(const float* gated, int64_t n, int64_t f, float* silu) = 0;
  // The gate's half of dgated = that half * silu'(gate), in place; the other half is left alone.
  virtual void SiluBackward(const float* gated, int64_t n, int64_t f, float* dgated) = 0;
  // y (n, f) = silu * (the second half of gated)
  virtual void SwigluForward(const float* gated, const float* silu, int64_t n, int64_t f, float* y) = 0;
  // dgated = (dsilu, d of the second half)
  virtual void SwigluBackward(const float* gated, const float* silu, const float* dy, int64_t n, int64_t f,
                              float* dgated) = 0;

  // y = residual + dropout(y + bias), in place   y, residual (n, h), bias (h) or nullptr
  virtual void BiasDropoutAddForward(const float* residual, const float* bias, int64_t s, int64_t n, int64_t h,
                                     const DropoutKey& key, float* y) = 0;
  // dy = dropout'(dout)
  virtual void BiasDropoutAddBackward(const float* dout, int64_t s, int64_t n, int64_t h, const DropoutKey& key,
                                      float* dy) = 0;
  // dbias += column sums of dy   dy (n, h)
  virtual void BiasGradient(const float* dy, int64_t n, int64_t h, float* dbias) = 0;

  // One vocabulary shard's part of the loss. logits (n, v), of which the first `valid` columns exist; stats (n, 3) =
  // max, sum exp(logit - max), logit of the target or 0 if the target is not in [first_row, first_row + valid).
  virtual void LossStats(const float* logits, const int32_t* targets, int32_t first_row, int64_t n, int64_t v,
                         int64_t valid, float* stats) = 0;
  // Sum over tokens of the cross-entropy, from the stats (t, n, 3) of all shards.
  virtual double LossForward(const float* stats, int64_t t, int64_t n) = 0;
  // logits = scale * (softmax - onehot(target)) in place; columns beyond `valid` become 0.
  virtual void LossBackward(const float* stats, const int32_t* targets, int32_t first_row, int64_t t, int64_t n,
                            int64_t v, int64_t valid, double scale, float* logits) = 0;

  // Sum of squares in double, fixed order.
  virtual double SumOfSquares(const float* x, int64_t count) = 0;
  // AdamW (Loshchilov and Hutter 2019), decoupled decay. w, m, v updated in place.
  virtual void AdamW(const AdamWArgs& args, int64_t count, const float* gradient, float* w, float* m, float* v) = 0;

  // x (count) = value.
  virtual void Fill(float* x, int64_t count, float value) = 0;
  // to (count) = from; they do not overlap.
  virtual void Copy(const float* from, int64_t count, float* to) = 0;
  // Device memory, zeroed. The arena and the model states are one allocation each.
  virtual absl::StatusOr<std::span<float>> Allocate(Bytes bytes, const std::string& what) = 0;
  virtual std::string Name() const = 0;  // "cpu: OpenBLAS 0.3.21 Zen"
};

// `threads`: of the BLAS, >= 1. Denormals are flushed to zero on the calling thread.
std::unique_ptr<Backend> MakeCpuBackend(int threads);

}  // namespace lynx

#endif  // LYNX_WORKER_BACKEND_BACKEND_H_
