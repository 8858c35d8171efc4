// LayerOps: one op of the layer graph, in one pass, as calls of the backend. The engine runs the ops that its program
// lists through this; measuring runs them alone. Nothing here decides anything or allocates.
//
// The forward ops are also what recomputation runs: an op is a function of its inputs, the weights and counters
// (seed, step, sample), so running it again gives the same bits.
//
// Not thread-safe; owned by the rank's compute thread, as are the backend and the states it borrows.
#ifndef LYNX_WORKER_ENGINE_LAYER_OPS_H_
#define LYNX_WORKER_ENGINE_LAYER_OPS_H_

#include <array>
#include <cstdint>

#include "planner/layer_graph.h"
#include "planner/stage_context.h"
#include "worker/backend/backend.h"
#include "worker/model/model_state.h"

namespace lynx {

// The addresses of the tensors that an action touches; null for the others.
struct TensorTable {
  std::array<float*, kTensorCount> at{};
  // kX of the layer above: what fc2 and add2 write, and embed and position. at[kX] is the layer's own input.
  float* next_x = nullptr;

  float* operator[](Tensor tensor) const { return at[static_cast<size_t>(tensor)]; }
};

// One microbatch's tokens, (micro_batch, seq) each, and where they stand in the step's global batch.
struct MicrobatchInput {
  const int32_t* inputs = nullptr;
  const int32_t* targets = nullptr;
  int64_t first_sample = 0;
};

class LayerOps {
 public:
  // `loss_scale`: factor of every token's loss in the step's mean, 1 / (global batch * seq). `backend` and `state`
  // outlive this.
  LayerOps(const StageContext& context, int32_t tp_rank, uint64_t seed, double loss_scale, Backend& backend,
           ModelState& state);

  // Dropout draws for this step from now on; the loss sum starts at 0.
  void BeginStep(int64_t step);
  // Nothing is dropped from now on, until a step begins; the loss sum starts at 0.
  void BeginEvaluation();
  // Sum over the tokens seen in this step of the cross-entropy, unscaled.
  double loss_sum() const { return loss_sum_; }

  // `layer`: as in an action; the op must belong to its type.
  void Forward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& t);
  // The input gradient; norms, positions and token embeddings add to their weights' gradients here too.
  void Backward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& t);
  // The weight gradient of an op that has a weight pass.
  void Weight(Op op, int32_t layer, const TensorTable& t);

 private:
  // LayerNorm or, of a family without biases, RMSNorm, on the rank's share of the tokens.
  void NormForward(int32_t layer, const float* x, Parameter weight, Parameter bias, float* y);
  // dy: of all tokens. dx += or = (`accumulate`).
  void NormBackward(int32_t layer, const float* x, Parameter weight, Parameter bias, const float* dy, bool accumulate,
                    float* dx);
  // Null where the family has no biases.
  const float* BiasOf(int32_t layer, Parameter bias) { return biases_ ? state_.Weight(layer, bias) : nullptr; }
  float* BiasGradientOf(int32_t layer, Parameter bias) { return biases_ ? state_.Gradient(layer, bias) : nullptr; }
  DropoutKey KeyOf(Op op, int32_t layer, const MicrobatchInput& input) const;
  // Backward of add1 and add2: the gradient of their input, at the rank's share of `out`.
  void BiasDropoutAdd(Op op, int32_t layer, const MicrobatchInput& input, const float* grad, Parameter bias, float* out);

  const LayerShape shape_;
  const bool biases_;  // and LayerNorm
  const double dropout_rate_;
  const int32_t tp_rank_;
  const uint64_t seed_;
  const double loss_scale_;
  Backend& backend_;
  ModelState& state_;
  int64_t step_ = 0;
  bool drops_ = true;
  double loss_sum_ = 0;

  // Sizes, as in the backend's comments.
  const int64_t b_, s_, n_, h_;
  // With sequence parallelism norms, residuals and dropout work on a rank's share of the tokens; else on all.
  const bool sharded_;
  const int64_t share_n_;      // tokens of the share
  const int64_t first_token_;  // of it
  const int64_t share_at_;     // elements before it in a tensor (n, h)
  const int64_t h_shard_;  // h / t
  const int64_t f_shard_;  // f / t
  const int64_t qkv_width_;
  const int64_t fc1_width_;
  const AttentionShape attention_;
  const int64_t v_shard_;  // rows of the vocabulary held, padding included
  const int64_t v_valid_;  // of which exist
  const int32_t v_first_;  // the first of them
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_LAYER_OPS_H_
