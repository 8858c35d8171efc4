// Backend is the arithmetic of one device. worker/backend/cpu implements it for CPUs, worker/backend/cuda for NVIDIA GPUs. In
// both folders each op has a file of its own.
//
// Tensors are row-major and contiguous. The comment of each op gives their shapes. b: samples of the microbatch, s: sequence
// length, n = b*s: tokens, h: hidden size, a: heads on this rank, d: head size, f: ffn columns on this rank, v: vocabulary rows
// on this rank. "=" overwrites, "+=" adds. The gradients of parameters are always added, so they accumulate over microbatches.
//
// Weights, activations and their gradients are stored as T, which is float or Bfloat16. Always fp32 are: the gradients of
// parameters, the logits, the values that the loss and fused attention keep for each row, and workspaces. The arithmetic is
// fp32, in a few places double. A sum of products is rounded only once, when it is stored.
//
// Every op is deterministic: the same inputs give the same bits, whatever ran before and whatever else the machine does. So
// recomputation changes nothing. Ops run in the order of the calls. On the CPU an op is done when its call returns. On a GPU it
// is done later, and Finish waits for it. An implementation may have scratch memory of its own, which has a fixed size and is
// allocated at construction. Only one thread at a time may use an object.
//
// The host waits for a GPU only in Finish, in WordsUnlike, in BeginMarks, and in a Copy from or to host memory that is not
// pinned.
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
#include "common/limits.h"
#include "common/moment.h"
#include "common/units.h"
#include "worker/backend/device_queue.h"

namespace lynx::worker {

// Names one stream of dropout decisions. The mask depends only on these fields and on the element's place in the *global*
// tensor. It does not depend on the layout. So recomputation and every parallel layout draw the same mask.
struct DropoutKey {
  double rate = 0;  // 0: the op keeps all elements and draws nothing; otherwise kept elements are multiplied by 1/(1-rate)
  uint64_t seed = 0;
  int64_t step = 0;
  int32_t layer = 0;         // kEmbeddingLayer for the embedding
  int32_t op = 0;            // static_cast<int>(Op)
  int64_t first_sample = 0;  // the microbatch's first sample, counted within the global batch of this step
  int64_t first_token = 0;   // index, among the b*s tokens of the microbatch, of the first token that this rank computes;
                             // above 0 if sequence parallelism gives this rank a later part of the sequence
};

// The target of a token that counts in no loss and in no gradient.
inline constexpr int32_t kNoTarget = -1;

// On the CPU, attention computes this number of rows of scores at a time. The planner uses it for the size of the workspaces.
inline constexpr int64_t kAttentionRows = 64;

// Causal attention of `a` query heads of size d over `k` key and value heads. Query head i uses key head i / (a / k) (grouped
// queries, Ainslie et al. 2023). qkv is (b, s, a + 2k, d): first the queries, then the keys, then the values. With fused
// attention, a head of values may have another size, e: then each token has a d + k d + k e elements, and context is (b, s, a,
// e).
struct AttentionShape {
  int64_t b = 0, s = 0, a = 0;
  int64_t k = 0;  // a divisor of a
  int64_t d = 0;
  int64_t first_head = 0;  // the first query head of this rank, counted over all ranks; only used to number dropout decisions
  int64_t e = 0;           // 0: d. Only fused attention has another size than d
  float factor = 1;        // of the scores, beside 1 / sqrt(d). Only fused attention has another factor than 1

  constexpr int64_t value_size() const { return e == 0 ? d : e; }
  constexpr int64_t widest() const { return std::max(d, value_size()); }
  constexpr int64_t width() const { return (a + k) * d + k * value_size(); }  // the length of a row of qkv
};

// Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1). Each of n tokens has z latents: p for its queries, then r for
// its keys and values, then t: the rotated part of its keys, which is the same for all heads. If p is 0, the queries are made
// from the layer's input x (n, h). qkv is as in AttentionShape, with a heads of d and e elements; the first t elements of each
// head of queries and keys are rotated.
struct LatentShape {
  int64_t n = 0, h = 0;
  int64_t p = 0, r = 0, t = 0;  // t is at most 2 * RotaryTable::kMaxPairs
  int64_t a = 0, d = 0, e = 0;

  constexpr int64_t z() const { return p + r + t; }
  constexpr int64_t query_inputs() const { return p == 0 ? h : p; }
  constexpr int64_t width() const { return a * (2 * d + e); }  // the length of a row of qkv
};

// Returns the size, in floats, of the fp32 copies that attention on Bfloat16 makes in its workspace. It copies parts of one
// head: `whole` matrices (s, w) and `rows` matrices (r, w), where r = min(s, kAttentionRows) and w is the larger one of d and
// e. Returns 0 for fp32.
template <class T>
constexpr int64_t WideHeadFloats(const AttentionShape& shape, int64_t whole, int64_t rows) {
  if (std::is_same_v<T, float>) return 0;
  return (whole * shape.s + rows * std::min(shape.s, kAttentionRows)) * shape.widest();
}

// Says how far each pair of a head's elements is rotated (worker/model/rotary_table.h computes it). Pair i is the elements i
// and i + pairs of a head. At position p it is rotated by the angle p * slopes[i] and multiplied by `scale`. Elements from 2 *
// pairs on do not change.
struct RotaryTable {
  static constexpr int64_t kMaxPairs = 256;  // there is a limit because a kernel takes the table by value
  int64_t pairs = 0;
  double scale = 1;
  std::array<double, kMaxPairs> slopes{};
};

struct AdamWArgs {
  double lr, beta1, beta2, eps;
  double weight_decay;    // applies only to tensors that decay
  int64_t step;           // counted from 1, for bias correction
  double gradient_scale;  // the factor for clipping; each gradient is multiplied by it when it is read
};

// A tensor that the optimizer updates. The optimizer changes w, m and v in place.
struct AdamWTensor {
  int64_t count = 0;
  const float* gradient = nullptr;
  float *w = nullptr, *m = nullptr, *v = nullptr;
  Bfloat16* rounded = nullptr;  // set to w, rounded to the nearest; nullptr: no bfloat16 copy is needed
  bool decays = false;
};

// Experts (planner/problem/layer_graph.h): a router chooses `top_k` of E experts for each of the n tokens of a rank. A token is
// then a row once for each of its experts. The rank has a room of `room` rows for each expert, and fills it from its beginning,
// in the order of tokens and, for one token, of its choices. A choice whose room is full has no room: its row is dropped, or
// goes through a round (planner/problem/expert_rounds.h).
struct RouterShape {
  int64_t n = 0, h = 0;
  int64_t experts = 0;     // E, 1..kMaxExperts
  int64_t top_k = 0;       // 1..E
  int64_t room = 0;        // E * room is below 2^31
  bool normalized = true;  // the weights of a token's experts are divided by their sum
  bool sigmoid = false;    // P is the sigmoid of each product, not their softmax
  float scale = 1;         // factor of the weights; above 0

  constexpr int64_t rows() const { return experts * room; }
};

// A choice of a token. The route of a rank is (n, top_k) of them; the choices of a token are in the descending order by which
// they are chosen.
struct RouteChoice {
  int32_t expert = 0;
  float weight = 0;
  // Where the row is among the rows (E, room) that the rank sends: row i of an expert's room has the place expert * room + i.
  // Below 0 the row has no room: the first such row of its expert has -1, the second -2. So a round finds its rows.
  int32_t place = -1;
};
static_assert(sizeof(RouteChoice) == 12);

// The losses of a router, which are added to the loss of the microbatch with the factor `scale`. P: the softmax of the scores
// over the experts; with RouterShape::sigmoid, the sigmoids divided by their sum, as in DeepSeek-V3 (arXiv 2412.19437, eq. 18).
// f_e: the share of the n * top_k choices that chose expert e, dropped choices included.
struct RouterLosses {
  double aux = 0;  // aux * E * sum over e of f_e * mean over tokens of P_e (Fedus et al. 2022, eq. 4); f has no gradient
  double z = 0;    // z * mean over tokens of the square of the log-sum-exp of the scores (Zoph et al. 2022, eq. 5)
  double scale = 1;
};

// Rows of experts: `blocks` blocks of `room` rows each. Block b belongs to expert b % experts of the rank. fp32 weights
// (blocks, room) say which rows have a token: those of the others are kNoRow. The rows with a token are the first ones of each
// block. All elements of a row without a token are 0 in every tensor: ops write these zeros, and rely on them in their inputs.
struct ExpertShape {
  int64_t blocks = 0, room = 0, experts = 0;

  constexpr int64_t rows() const { return blocks * room; }
};
inline constexpr float kNoRow = -1;

// The ops of a model's layers, for elements of type T.
template <class T>
class LayerBackend {
 public:
  virtual ~LayerBackend() = default;

  // out (n, h) = tok[token - first_row] for tokens in [first_row, first_row + v), else 0.   tok (v, h), tokens (n)
  virtual void EmbeddingForward(const int32_t* tokens, const T* tok, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                T* out) = 0;
  // dtok += the rows of dout, each at the row of its token, always in the same order.
  virtual void EmbeddingBackward(const int32_t* tokens, const T* dout, int32_t first_row, int64_t n, int64_t h, int64_t v,
                                 float* dtok) = 0;
  // x (n, h) = dropout(x + pos); row i is token key.first_token + i of the microbatch   pos (s, h)
  virtual void PositionForward(T* x, const T* pos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) = 0;
  // dx = dropout'(dx), in place; dpos += dx, summed over samples
  virtual void PositionBackward(T* dx, float* dpos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) = 0;

  // y = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(variance + epsilon)   x, y (n, h)
  virtual void LayerNormForward(const T* x, const T* gamma, const T* beta, int64_t n, int64_t h, float epsilon, T* y) = 0;
  // Adds the input gradient to dx if `accumulate` is true, otherwise overwrites dx with it. Adds to dgamma and dbeta. Computes
  // mean and rstd again from x.
  virtual void LayerNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate,
                                 T* dx, float* dgamma, float* dbeta) = 0;

  // y (n, out) = x (n, in) w^T + bias   w (out, in); bias (out) or nullptr
  virtual void LinearForward(const T* x, const T* w, const T* bias, int64_t n, int64_t in, int64_t out, T* y) = 0;
  // LinearForward without a bias, for the output projection: logits (n, out) = x w^T.
  virtual void LogitsForward(const T* x, const T* w, int64_t n, int64_t in, int64_t out, float* logits) = 0;
  // dx (n, in) = dy (n, out) w
  virtual void LinearBackward(const T* dy, const T* w, int64_t n, int64_t in, int64_t out, T* dx) = 0;
  // dx += dy w
  virtual void AddLinearBackward(const T* dy, const T* w, int64_t n, int64_t in, int64_t out, T* dx) = 0;
  // dw (out, in) += dy^T x; dbias += column sums of dy (nullptr: the layer has no bias)
  virtual void LinearWeight(const T* x, const T* dy, int64_t n, int64_t in, int64_t out, float* dw, float* dbias) = 0;

  // y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + epsilon) (Zhang and Sennrich 2019)   x, y (n, h)
  virtual void RmsNormForward(const T* x, const T* gamma, int64_t n, int64_t h, float epsilon, T* y) = 0;
  // Adds the input gradient to dx if `accumulate` is true, otherwise overwrites dx with it. Adds to dgamma. Computes rstd again
  // from x.
  virtual void RmsNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate,
                               T* dx, float* dgamma) = 0;

  // RMS norms of each head of queries and keys (Qwen3; Henry et al. 2020). In `normed` the queries' heads are normalised and
  // scaled by q_gamma (d), the keys' heads by k_gamma (d), and the values are those of qkv.   qkv, normed: as in AttentionShape
  virtual void QkNormForward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                             T* normed) = 0;
  // On entry dqkv holds the gradient of normed; on return it holds the gradient of qkv. Adds to dq_gamma and dk_gamma. Computes
  // rstd again from qkv.
  virtual void QkNormBackward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                              T* dqkv, float* dq_gamma, float* dk_gamma) = 0;

  // The norms of latents: normed (n, z) has the RMS norms of the p and of the r latents of each token, and a copy of the
  // others.   latent (n, z), gamma (p + r)
  virtual void LatentNormForward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* normed) = 0;
  // On entry dlatent holds the gradient of normed; on return it holds the gradient of latent. Adds to dgamma. Computes the
  // factors of the norms again from latent.
  virtual void LatentNormBackward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* dlatent,
                                  float* dgamma) = 0;
  // qkv (n, width), not yet rotated: queries from the p latents or from x, keys and values from the r latents; every head of
  // keys begins with the t latents. normed (n, z); x (n, h) is read only if p is 0; w_query (a d, p or h), w_key_value (a (d -
  // t) + a e, r): the rows of all heads of keys, then those of values
  virtual void LatentHeadsForward(const LatentShape& shape, const T* normed, const T* x, const T* w_query, const T* w_key_value,
                                  T* qkv) = 0;
  // dnormed (n, z) and, only if p is 0, dx (n, h) = the gradients.
  // workspace: (n, r), unused on fp32
  virtual void LatentHeadsBackward(const LatentShape& shape, const T* dqkv, const T* w_query, const T* w_key_value,
                                   float* workspace, T* dnormed, T* dx) = 0;
  // dw_query and dw_key_value += the gradients of the weights
  virtual void LatentHeadsWeight(const LatentShape& shape, const T* normed, const T* x, const T* dqkv, float* dw_query,
                                 float* dw_key_value) = 0;

  // Rotary position embedding (Su et al. 2021), in place. Rotates the queries and keys of qkv; they may be normalised.
  virtual void RopeForward(const AttentionShape& shape, const RotaryTable& rotary, T* qkv) = 0;
  // Rotates the gradient by the opposite angle, in place.
  virtual void RopeBackward(const AttentionShape& shape, const RotaryTable& rotary, T* dqkv) = 0;

  // The comment of each attention op below says what the op's workspace holds, with r = min(s, kAttentionRows).
  //
  // probs (b, a, s, s) = softmax(causal(q k^T / sqrt(d))).
  // workspace: (r, s), unused on fp32, then WideHeadFloats<T>(shape, 1, 1)
  virtual void ProbsForward(const AttentionShape& shape, const T* qkv, float* workspace, T* probs) = 0;
  // context (b, s, a, d) = dropout(probs) v.
  // workspace: (r, s), unused on fp32 at rate 0, then WideHeadFloats<T>(shape, 1, 1)
  virtual void ContextForward(const AttentionShape& shape, const T* probs, const T* qkv, const DropoutKey& key,
                              float* workspace, T* context) = 0;
  // The backward pass of ContextForward and ProbsForward together. Overwrites dqkv.
  // workspace: 2 * (r, s), then WideHeadFloats<T>(shape, 4, 3)
  virtual void AttentionBackward(const AttentionShape& shape, const T* probs, const T* qkv, const T* dcontext,
                                 const DropoutKey& key, float* workspace, T* dqkv) = 0;

  // y = gelu(x), the tanh approximation (Hendrycks and Gimpel 2016)   count elements
  virtual void GeluForward(const T* x, int64_t count, T* y) = 0;
  // dy = dy * gelu'(x), in place
  virtual void GeluBackward(const T* x, int64_t count, T* dy) = 0;

  // Fused attention (Dao et al. 2022): context = dropout(softmax(causal(factor q k^T / sqrt(d)))) v. It does not store the
  // scores. lse (b, a, s) = log-sum-exp of each row of scores. It draws the same dropout decisions as ContextForward.
  // workspace: WideHeadFloats<T>(shape, 2, 2)
  virtual void FlashForward(const AttentionShape& shape, const T* qkv, const DropoutKey& key, float* workspace, T* context,
                            float* lse) = 0;
  // The backward pass of FlashForward. Overwrites dqkv.
  // workspace: (b, a, s), then WideHeadFloats<T>(shape, 4, 3)
  virtual void FlashBackward(const AttentionShape& shape, const T* qkv, const T* context, const float* lse, const T* dcontext,
                             const DropoutKey& key, float* workspace, T* dqkv) = 0;

  // SwiGLU (Shazeer 2020) in two ops. gated (n, 2, f): first the f columns of the gate, then the f columns that the gate
  // multiplies. silu (n, f) = gate * sigmoid(gate)
  virtual void SiluForward(const T* gated, int64_t n, int64_t f, T* silu) = 0;
  // Multiplies the gate's half of dgated by silu'(gate). Does not change the other half.
  virtual void SiluBackward(const T* gated, int64_t n, int64_t f, T* dgated) = 0;
  // y (n, f) = silu * (the second half of gated)
  virtual void SwigluForward(const T* gated, const T* silu, int64_t n, int64_t f, T* y) = 0;
  // dgated = (gradient of silu, gradient of the second half)
  virtual void SwigluBackward(const T* gated, const T* silu, const T* dy, int64_t n, int64_t f, T* dgated) = 0;

  // y = residual + dropout(y + bias), in place   y, residual (n, h), bias (h) or nullptr
  virtual void BiasDropoutAddForward(const T* residual, const T* bias, int64_t s, int64_t n, int64_t h, const DropoutKey& key,
                                     T* y) = 0;
  // dy = dropout'(dout)
  virtual void BiasDropoutAddBackward(const T* dout, int64_t s, int64_t n, int64_t h, const DropoutKey& key, T* dy) = 0;
  // dbias += column sums of dy   dy (n, h)
  virtual void BiasGradient(const T* dy, int64_t n, int64_t h, float* dbias) = 0;

  // SwiGLU in one op, for a block whose silu is not kept: y = silu(the first half of gated) * the second half * gate of the
  // row. gated (n, 2, f), y (n, f); gate (n) in fp32, or nullptr: 1
  virtual void GatedSwigluForward(const T* gated, const float* gate, int64_t n, int64_t f, T* y) = 0;
  // dgated = the gradient of both halves. dproduct (n), if there is a gate: the gradient of the product whose sigmoid the gate
  // is.
  virtual void GatedSwigluBackward(const T* gated, const float* gate, const T* dy, int64_t n, int64_t f, T* dgated,
                                   float* dproduct) = 0;
  // gate (n) = the sigmoid of x w   x (n, h), w (h)
  virtual void TokenGateForward(const T* x, const T* w, int64_t n, int64_t h, float* gate) = 0;
  // dx (n, h) += dproduct (n) w
  virtual void TokenGateBackward(const float* dproduct, const T* w, int64_t n, int64_t h, T* dx) = 0;
  // dw (h) += dproduct x
  virtual void TokenGateWeight(const T* x, const float* dproduct, int64_t n, int64_t h, float* dw) = 0;

  // scores (n, E) = x w^T. P (n, E) is their softmax over all experts, or with `sigmoid` the sigmoid of each. route (n, top_k)
  // = the experts with the highest scores, or with `sigmoid` the highest P + bias. Of equal ones the lower number of an expert
  // wins. The weight is `scale` times P, or times the part of P in the sum over the token's choices if `normalized` is true.
  // x (n, h), w (E, h), bias (E) in fp32, or nullptr; only with `sigmoid`
  virtual void RouterForward(const RouterShape& shape, const T* x, const T* w, const float* bias, float* scores,
                             RouteChoice* route) = 0;
  // dscores (n, E) = the gradient of the scores: of the weights of rows and of the losses. dx += dscores w.
  // dweights (E, room): the gradients of the rows' weights. late (n, top_k): the gradients of the weights of choices without
  // room; other elements are not read; nullptr: the rows without room were dropped, and their weights have no gradient
  virtual void RouterBackward(const RouterShape& shape, const RouterLosses& losses, const float* scores,
                              const RouteChoice* route, const float* dweights, const float* late, const T* w, float* dscores,
                              T* dx) = 0;
  // dw (E, h) += dscores^T x
  virtual void RouterWeight(const RouterShape& shape, const T* x, const float* dscores, float* dw) = 0;

  // rows (E, room, h): the x of its token at the place of each choice, else 0. weights (E, room): the weight of the choice,
  // else kNoRow; nullptr: they are not needed. The forward pass of permute, and the backward pass of unpermute.   x (n, h)
  virtual void TokensToRows(const RouterShape& shape, const RouteChoice* route, const T* x, T* rows, float* weights) = 0;
  // x (n, h) = the sum of the rows of each token's choices, in the order of choices, without those that have no room. The
  // forward pass of unpermute, and the backward pass of permute. `accumulate`: the sum begins with x.   rows (E, room, h)
  virtual void RowsToTokens(const RouterShape& shape, const RouteChoice* route, const T* rows, bool accumulate, T* x) = 0;

  // y (blocks, room, out) = x (blocks, room, in) w^T, each block with the matrix of its expert.
  // w (experts, out, in), weights (blocks, room)
  virtual void ExpertForward(const ExpertShape& shape, const float* weights, const T* x, const T* w, int64_t in, int64_t out,
                             T* y) = 0;
  // dx (blocks, room, in) = dy (blocks, room, out) w
  virtual void ExpertBackward(const ExpertShape& shape, const float* weights, const T* dy, const T* w, int64_t in, int64_t out,
                              T* dx) = 0;
  // dw (experts, out, in) += dy^T x of each expert's blocks, in the order of the blocks
  virtual void ExpertWeight(const ExpertShape& shape, const float* weights, const T* x, const T* dy, int64_t in, int64_t out,
                            float* dw) = 0;
  // y (rows, f) = silu * (the second half of gated) * the weight of the row. With SiluForward before it, this is the SwiGLU of
  // experts.   gated (rows, 2, f), silu (rows, f)
  virtual void ExpertSwigluForward(const ExpertShape& shape, const float* weights, const T* gated, const T* silu, int64_t f,
                                   T* y) = 0;
  // dgated = (gradient of silu, gradient of the second half); dweights (rows) = the gradients of the weights
  virtual void ExpertSwigluBackward(const ExpertShape& shape, const float* weights, const T* gated, const T* silu, const T* dy,
                                    int64_t f, T* dgated, float* dweights) = 0;

  // dlogits (n, v) = scale * (softmax - onehot(target)), or 0 where the target is kNoTarget. stats (t, n, 3): those of all t
  // vocabulary shards (LossStats). Columns from `valid` on become 0. dlogits may begin at the same address as logits.
  virtual void LossBackward(const float* stats, const int32_t* targets, int32_t first_row, int64_t t, int64_t n, int64_t v,
                            int64_t valid, double scale, const float* logits, T* dlogits) = 0;
};

// One device: the ops on fp32, the ops on bfloat16, and the ops that are always fp32.
class Backend : public LayerBackend<float> {
 public:
  virtual LayerBackend<Bfloat16>& bfloat16() = 0;

  // The part of the loss that one vocabulary shard computes. logits (n, v), of which the first `valid` columns exist. stats (n,
  // 3) = max, sum exp(logit - max), and the target's logit, or 0 if the target is not in [first_row, first_row + valid). The
  // sum is 0 where the target is kNoTarget.
  virtual void LossStats(const float* logits, const int32_t* targets, int32_t first_row, int64_t n, int64_t v, int64_t valid,
                         float* stats) = 0;
  // *sum += the cross-entropy, summed over all tokens that have a target, from the stats (t, n, 3) of all shards. `sum` points
  // to device memory.
  virtual void LossForward(const float* stats, int64_t t, int64_t n, double* sum) = 0;

  // Counts the rows that have a token: by_expert (experts) += those of each expert's blocks, *total += those of all blocks.
  // `by_expert` and `total` point to device memory; nullptr for `by_expert`: only the total is needed. At most kMaxExperts
  // blocks.   weights (blocks, room)
  virtual void CountRows(const ExpertShape& shape, const float* weights, int64_t* by_expert, int64_t* total) = 0;

  // loads (E) += the number of choices of each expert, those without room included. The numbers are exact below 2^24, so the
  // order of the sums does not matter.   route (choices)
  virtual void CountChoices(const RouteChoice* route, int64_t choices, int64_t experts, float* loads) = 0;
  // bias (E) += rate where the load is below `even`, -= rate where it is above.   loads (E)
  virtual void MoveRouterBias(const float* loads, int64_t experts, double even, float rate, float* bias) = 0;

  // The ops of rounds (planner/problem/expert_rounds.h) on the routes of `choices` choices.
  // *most = the largest number of rows of one expert that have no room. `most` points to device memory.
  virtual void MostWithoutRoom(const RouteChoice* route, int64_t choices, int32_t* most) = 0;
  // of_round (choices) = route with the places of a round, which has `room` rows for each expert: those without room with the
  // numbers round * room to (round + 1) * room - 1. The other choices have no room in it, and their numbers mean nothing.
  virtual void RouteOfRound(const RouteChoice* route, int64_t choices, int64_t room, int64_t round, RouteChoice* of_round) = 0;
  // late (choices): for each choice that has a place, = the gradient of the row's weight. Does not change the others.
  // dweights (E, room)
  virtual void WeightGradientsOfChoices(const RouteChoice* route, int64_t choices, const float* dweights, float* late) = 0;

  // *sum += the sum of the squares of all tensors, in double. The order of the additions depends only on the tensors' sizes.
  virtual void SumOfSquares(std::span<const std::span<const float>> tensors, double* sum) = 0;
  // AdamW (Loshchilov and Hutter 2019) with decoupled weight decay. The tensors must not overlap. The result for an element
  // does not depend on the other tensors in the list.
  virtual void AdamW(const AdamWArgs& args, std::span<const AdamWTensor> tensors) = 0;

  // to (count) = from, rounded to the nearest bfloat16.
  virtual void Round(const float* from, int64_t count, Bfloat16* to) = 0;

  // x (count) = value.
  virtual void Fill(float* x, int64_t count, float value) = 0;
  // Returns the number of words of x up to the last word whose bits differ from `mark`, including this word. Waits for the
  // device.
  virtual int64_t WordsUnlike(float mark, const float* x, int64_t count) = 0;
  // Copies between device memory and device or host memory. `from` and `to` must not overlap. If `from` is host memory, it is
  // read before the call returns. If `to` is host memory, it has its content when Finish returns.
  virtual void Copy(const void* from, Bytes bytes, void* to) = 0;
  // Allocates zeroed device memory, which lasts until the backend is destroyed. The arena is one allocation, and so are the
  // model states.
  virtual absl::StatusOr<std::span<float>> Allocate(Bytes bytes, const std::string& what) = 0;
  // Frees memory. `memory` must be all that one call of Allocate returned. Waits until the device has done all ops that were
  // called before. Transfers of a queue must not use the memory any more.
  virtual void Release(std::span<float> memory) = 0;
  // Returns the memory of the device that is free now. Memory that other processes hold is not free. Unimplemented on the CPU.
  virtual absl::StatusOr<Bytes> FreeMemory() const = 0;
  // Allocates pinned host memory, for copies that run while ops run (DeviceQueue::Copy). It lasts until the backend is
  // destroyed.
  virtual absl::StatusOr<std::span<float>> AllocatePinned(Bytes bytes, const std::string& what) = 0;
  // True if this process can read and write the memory that Allocate returned. If false, it must use Copy (host_view.h).
  virtual bool host_addressable() const = 0;
  // Returns when all earlier work is done. If an op has failed, the work after it was not done. The error has the message of
  // the device's library. Its code is ResourceExhausted (memory), Aborted (the device has failed), Internal or Unimplemented.
  // Never fails on the CPU.
  virtual absl::Status Finish() = 0;

  // Returns the moment when all work that was called before is done. On the CPU it is the present time; on a GPU it is a mark
  // in the order of its ops.
  virtual Moment Mark() = 0;
  // Work that is called from now on runs after `moment`, a mark of this backend or of one of its queues. If `moment` is a time,
  // the call has no effect.
  virtual void Follow(Moment moment) = 0;
  // Waits until the device has no work left, and returns that time. Forgets all earlier marks, so that they can be used again.
  virtual Nanos BeginMarks() = 0;
  // Returns the point in time, on the monotonic clock, at which the device reached the mark. The mark must be newer than the
  // last BeginMarks. On a GPU, Finish must have waited for it. Returns 0 if the device has failed.
  virtual Nanos TimeOf(Moment moment) = 0;
  // Profilers of the device show the work that is called between these two calls under this name. Ranges may be nested. No
  // effect on the CPU. `name` is read before the call returns.
  virtual void BeginRange(const char* /*name*/) {}
  virtual void EndRange() {}
  // Makes a queue for work that runs while the ops run. The backend must live longer than the queue. Unimplemented on the CPU.
  virtual absl::StatusOr<std::unique_ptr<DeviceQueue>> MakeQueue() = 0;

  virtual std::string Name() const = 0;  // "cpu: OpenBLAS 0.3.21 Zen"
};

// Returns the CPU backend. `threads`: the number of BLAS threads of the process, >= 1. From now on the calling thread rounds
// denormal numbers to zero.
std::unique_ptr<Backend> MakeCpuBackend(int threads);
// Returns the backend of the CUDA device with number `device`. From now on the calling thread uses this device. NotFound: there
// is no such device. Unimplemented: this build has no CUDA.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_BACKEND_BACKEND_H_
