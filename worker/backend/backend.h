// Backend: the arithmetic of one device. One interface; the CPU implementation is worker/backend/cpu, one op a file.
//
// Tensors are row-major and contiguous; shapes stand beside each argument. b microbatch samples, s sequence, n = b*s
// tokens, h hidden, a heads on this rank, d head size, f ffn columns on this rank, v vocabulary rows on this rank.
// "=" overwrites, "+=" accumulates (parameter gradients always accumulate over microbatches).
//
// Elements are stored as T, float or Bfloat16: weights, activations and their gradients. Gradients of parameters,
// logits, what the loss and fused attention keep of a row, and workspaces are fp32 either way, as is all arithmetic:
// sums of products too, which are rounded once, where they are stored.
//
// Every op is deterministic: the same inputs give the same bits, whatever ran before and whatever else the machine
// does, so that recomputation loses nothing. Ops are carried out in the order in which they are called; on the CPU
// they are done when they return, on a GPU later: Finish waits for them. An implementation may keep scratch of its
// own of fixed size, allocated at construction. One thread at a time per object.
//
// The host waits for a GPU in Finish, WordsUnlike and BeginMarks, and in a Copy from or to memory of the host that is not
// pinned; in nothing else.
#ifndef LYNX_WORKER_BACKEND_BACKEND_H_
#define LYNX_WORKER_BACKEND_BACKEND_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"
#include "common/bfloat16.h"
#include "common/moment.h"
#include "common/units.h"
#include "worker/backend/device_queue.h"

namespace lynx {

// Names one stream of dropout decisions. The mask is a pure function of these and of the element's place in the
// *global* tensor, never of the layout, so recomputation and every parallel layout draw the same.
struct DropoutKey {
  double rate = 0;  // 0: the op is the identity and draws nothing. Kept elements are scaled by 1/(1-rate)
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

// Attention on Bfloat16 works on copies in fp32 of parts of one head, in its workspace: of `whole` matrices (s, d)
// and of `rows` matrices (r, d), where r is s, but at most kAttentionRows. On fp32 it works in place. In floats.
template <class T>
constexpr int64_t WideHeadFloats(const AttentionShape& shape, int64_t whole, int64_t rows) {
  if (std::is_same_v<T, float>) return 0;
  return (whole * shape.s + rows * std::min(shape.s, kAttentionRows)) * shape.d;
}

// How far the pairs of a head turn (worker/model/rotary_table.h makes it). Elements i and i + pairs of a head are pair i; at
// position p it turns by the angle p * slopes[i] and is stretched by `scale`. What is behind 2 * pairs elements stays.
struct RotaryTable {
  static constexpr int64_t kMaxPairs = 256;  // a kernel takes the table by value
  int64_t pairs = 0;
  double scale = 1;
  std::array<double, kMaxPairs> slopes{};
};

struct AdamWArgs {
  double lr, beta1, beta2, eps;
  double weight_decay;    // of the tensors that decay
  int64_t step;           // 1-based, for bias correction
  double gradient_scale;  // clipping factor, multiplies gradients as they are read
};

// A tensor that the optimizer updates, w, m and v in place.
struct AdamWTensor {
  int64_t count = 0;
  const float* gradient = nullptr;
  float *w = nullptr, *m = nullptr, *v = nullptr;
  Bfloat16* rounded = nullptr;  // = w, rounded to the nearest; nullptr: nobody reads it so
  bool decays = false;
};

// The ops of a model's layers.
template <class T>
class LayerBackend {
 public:
  virtual ~LayerBackend() = default;

  // out (n, h) = tok[token - first_row] for tokens in [first_row, first_row + v), else 0.   tok (v, h), tokens (n)
  virtual void EmbeddingForward(const int32_t* tokens, const T* tok, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                T* out) = 0;
  // dtok += scatter of dout. Deterministic order.
  virtual void EmbeddingBackward(const int32_t* tokens, const T* dout, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                 float* dtok) = 0;
  // x (n, h) = dropout(x + pos); row i is token key.first_token + i of the microbatch   pos (s, h)
  virtual void PositionForward(T* x, const T* pos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) = 0;
  // dx = dropout'(dx) in place; dpos += dx, summed over samples
  virtual void PositionBackward(T* dx, float* dpos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) = 0;

  // y = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(variance + epsilon)   x, y (n, h)
  virtual void LayerNormForward(const T* x, const T* gamma, const T* beta, int64_t n, int64_t h, float epsilon, T* y) = 0;
  // dx += or = input gradient (`accumulate`); dgamma, dbeta += . Recomputes mean and rstd from x.
  virtual void LayerNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate,
                                 T* dx, float* dgamma, float* dbeta) = 0;

  // y (n, out) = x (n, in) w^T + bias   w (out, in); bias (out) or nullptr
  virtual void LinearForward(const T* x, const T* w, const T* bias, int64_t n, int64_t in, int64_t out, T* y) = 0;
  // The same without a bias, for the output projection: logits (n, out) = x w^T.
  virtual void LogitsForward(const T* x, const T* w, int64_t n, int64_t in, int64_t out, float* logits) = 0;
  // dx (n, in) = dy (n, out) w
  virtual void LinearBackward(const T* dy, const T* w, int64_t n, int64_t in, int64_t out, T* dx) = 0;
  // dw (out, in) += dy^T x; dbias += column sums of dy (nullptr: none)
  virtual void LinearWeight(const T* x, const T* dy, int64_t n, int64_t in, int64_t out, float* dw, float* dbias) = 0;

  // y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + epsilon) (Zhang and Sennrich 2019)   x, y (n, h)
  virtual void RmsNormForward(const T* x, const T* gamma, int64_t n, int64_t h, float epsilon, T* y) = 0;
  // dx += or = input gradient (`accumulate`); dgamma += . Recomputes rstd from x.
  virtual void RmsNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate,
                               T* dx, float* dgamma) = 0;

  // RMS norms of each head of queries and keys (Qwen3; Henry et al. 2020): normed is qkv with the queries' heads normed and
  // scaled by q_gamma (d), the keys' by k_gamma (d), and the values as they were.   qkv, normed as attention's
  virtual void QkNormForward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                             T* normed) = 0;
  // dqkv, the gradient of normed, becomes that of qkv, in place; dq_gamma, dk_gamma += . Recomputes rstd from qkv.
  virtual void QkNormBackward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                              T* dqkv, float* dq_gamma, float* dk_gamma) = 0;

  // Rotary positions (Su et al. 2021), in place on the queries and keys of qkv, or of what their norms made.
  virtual void RopeForward(const AttentionShape& shape, const RotaryTable& rotary, T* qkv) = 0;
  // The same by the opposite angle, on the gradient.
  virtual void RopeBackward(const AttentionShape& shape, const RotaryTable& rotary, T* dqkv) = 0;

  // The workspaces of attention: what is said there, r being s, but at most kAttentionRows; and then
  // WideHeadFloats<T>(shape, ...) of the numbers given.
  //
  // probs (b, a, s, s) = softmax(causal(q k^T / sqrt(d))). workspace (r, s), unused on fp32; 1 whole, 1 rows
  virtual void ProbsForward(const AttentionShape& shape, const T* qkv, float* workspace, T* probs) = 0;
  // context (b, s, a, d) = dropout(probs) v. workspace (r, s), unused on fp32 at rate 0; 1 whole, 1 rows
  virtual void ContextForward(const AttentionShape& shape, const T* probs, const T* qkv, const DropoutKey& key,
                              float* workspace, T* context) = 0;
  // Backward of context and probs together: dqkv = . workspace 2 * (r, s); 4 whole, 3 rows
  virtual void AttentionBackward(const AttentionShape& shape, const T* probs, const T* qkv, const T* dcontext,
                                 const DropoutKey& key, float* workspace, T* dqkv) = 0;

  // y = gelu(x), the tanh approximation (Hendrycks and Gimpel 2016)   count elements
  virtual void GeluForward(const T* x, int64_t count, T* y) = 0;
  // dy = dy * gelu'(x), in place
  virtual void GeluBackward(const T* x, int64_t count, T* dy) = 0;

  // Fused attention (Dao et al. 2022): context = dropout(softmax(causal(q k^T / sqrt(d)))) v, without the scores ever
  // being in memory. lse (b, a, s) = log-sum-exp of the rows of scores. It draws the dropout of ContextForward.
  // workspace: 2 whole, 2 rows
  virtual void FlashForward(const AttentionShape& shape, const T* qkv, const DropoutKey& key, float* workspace, T* context,
                            float* lse) = 0;
  // dqkv = . workspace (b, a, s); 4 whole, 3 rows
  virtual void FlashBackward(const AttentionShape& shape, const T* qkv, const T* context, const float* lse, const T* dcontext,
                             const DropoutKey& key, float* workspace, T* dqkv) = 0;

  // SwiGLU (Shazeer 2020) in two ops. gated (n, 2, f): the gate's f columns, then those of what it opens to.
  // silu (n, f) = gate * sigmoid(gate)
  virtual void SiluForward(const T* gated, int64_t n, int64_t f, T* silu) = 0;
  // The gate's half of dgated = that half * silu'(gate), in place; the other half is left alone.
  virtual void SiluBackward(const T* gated, int64_t n, int64_t f, T* dgated) = 0;
  // y (n, f) = silu * (the second half of gated)
  virtual void SwigluForward(const T* gated, const T* silu, int64_t n, int64_t f, T* y) = 0;
  // dgated = (dsilu, d of the second half)
  virtual void SwigluBackward(const T* gated, const T* silu, const T* dy, int64_t n, int64_t f, T* dgated) = 0;

  // y = residual + dropout(y + bias), in place   y, residual (n, h), bias (h) or nullptr
  virtual void BiasDropoutAddForward(const T* residual, const T* bias, int64_t s, int64_t n, int64_t h, const DropoutKey& key,
                                     T* y) = 0;
  // dy = dropout'(dout)
  virtual void BiasDropoutAddBackward(const T* dout, int64_t s, int64_t n, int64_t h, const DropoutKey& key, T* dy) = 0;
  // dbias += column sums of dy   dy (n, h)
  virtual void BiasGradient(const T* dy, int64_t n, int64_t h, float* dbias) = 0;

  // dlogits (n, v) = scale * (softmax - onehot(target)); columns beyond `valid` become 0. It may begin where logits
  // does.
  virtual void LossBackward(const float* stats, const int32_t* targets, int32_t first_row, int64_t t, int64_t n, int64_t v,
                            int64_t valid, double scale, const float* logits, T* dlogits) = 0;
};

// One device: the ops on fp32, those on bfloat16, and what is fp32 always.
class Backend : public LayerBackend<float> {
 public:
  virtual LayerBackend<Bfloat16>& bfloat16() = 0;

  // One vocabulary shard's part of the loss. logits (n, v), of which the first `valid` columns exist; stats (n, 3) =
  // max, sum exp(logit - max), logit of the target or 0 if the target is not in [first_row, first_row + valid).
  virtual void LossStats(const float* logits, const int32_t* targets, int32_t first_row, int64_t n, int64_t v, int64_t valid,
                         float* stats) = 0;
  // *sum += the sum over tokens of the cross-entropy, from the stats (t, n, 3) of all shards. Sums are in memory of
  // the device.
  virtual void LossForward(const float* stats, int64_t t, int64_t n, double* sum) = 0;

  // *sum += the sum of the squares of all tensors, in double, in an order that the tensors' sizes alone decide.
  virtual void SumOfSquares(std::span<const std::span<const float>> tensors, double* sum) = 0;
  // AdamW (Loshchilov and Hutter 2019), decoupled decay, of tensors that do not overlap. An element's bits do not depend on
  // what else is in the list.
  virtual void AdamW(const AdamWArgs& args, std::span<const AdamWTensor> tensors) = 0;

  // to (count) = from, rounded to the nearest.
  virtual void Round(const float* from, int64_t count, Bfloat16* to) = 0;

  // x (count) = value.
  virtual void Fill(float* x, int64_t count, float value) = 0;
  // The number of words up to and with the last one of x that is not `mark`, bit by bit. It waits for the device.
  virtual int64_t WordsUnlike(float mark, const float* x, int64_t count) = 0;
  // They do not overlap. Either may be of the host, whose memory is read before it returns, and written when Finish
  // does.
  virtual void Copy(const void* from, Bytes bytes, void* to) = 0;
  // Device memory, zeroed, until the backend ends. The arena and the model states are one allocation each.
  virtual absl::StatusOr<std::span<float>> Allocate(Bytes bytes, const std::string& what) = 0;
  // Gives back what Allocate gave, all of it: nothing that was called uses it any more. It waits for the device.
  virtual void Release(std::span<float> memory) = 0;
  // Of the device now, whoever holds the rest. Unimplemented on the CPU.
  virtual absl::StatusOr<Bytes> FreeMemory() const = 0;
  // The host's, for copies beside ops (DeviceQueue::Copy), until the backend ends.
  virtual absl::StatusOr<std::span<float>> AllocatePinned(Bytes bytes, const std::string& what) = 0;
  // Whether this process reads and writes what Allocate gave; else through Copy alone (host_view.h).
  virtual bool host_addressable() const = 0;
  // Returns when all that was called before is done. ResourceExhausted (memory), Aborted (the device has failed), Internal or
  // Unimplemented, with what the device's library says, where any of it failed: nothing that was called after that was carried
  // out. Never on the CPU.
  virtual absl::Status Finish() = 0;

  // When all that was called before is done: on the CPU now, on a device a mark in the order of its ops.
  virtual Moment Mark() = 0;
  // What is called from now on comes after the mark, one of this backend's or of its queues'. Of a time: nothing.
  virtual void Follow(Moment moment) = 0;
  // Now, which is when the device has nothing left to do: all marks so far are forgotten, and used again.
  virtual Nanos BeginMarks() = 0;
  // On the monotonic clock, of a mark since then. On a device: of one that Finish has waited for; the epoch where it
  // has failed.
  virtual Nanos TimeOf(Moment moment) = 0;
  // For work beside the ops; the backend outlives it. Unimplemented on the CPU.
  virtual absl::StatusOr<std::unique_ptr<DeviceQueue>> MakeQueue() = 0;

  virtual std::string Name() const = 0;  // "cpu: OpenBLAS 0.3.21 Zen"
};

// `threads`: of the BLAS, >= 1. Denormals are flushed to zero on the calling thread.
std::unique_ptr<Backend> MakeCpuBackend(int threads);
// On the machine's CUDA device of that number, which the calling thread uses from now on. NotFound: there is none;
// Unimplemented: this build has no CUDA.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device);

}  // namespace lynx

#endif  // LYNX_WORKER_BACKEND_BACKEND_H_
