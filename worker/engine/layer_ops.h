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
#include <memory>

#include "planner/problem/layer_graph.h"
#include "planner/problem/stage_context.h"
#include "worker/backend/backend.h"
#include "worker/model/model_state.h"
#include "worker/model/rotary_table.h"

namespace lynx {

// The addresses of the tensors that an action touches; null for the others. Elements are of the model's data type, or
// fp32 where the layer graph says so.
struct TensorTable {
  std::array<void*, kTensorCount> at{};
  // kX of the layer above: what fc2 and add2 write, and embed and position. at[kX] is the layer's own input.
  void* next_x = nullptr;
};

// One microbatch's tokens, (micro_batch, seq) each, and where they stand in the step's global batch.
struct MicrobatchInput {
  const int32_t* inputs = nullptr;
  const int32_t* targets = nullptr;
  int64_t first_sample = 0;
};

class LayerOps {
 public:
  // For a model of the context's data type. `loss_scale`: factor of every token's loss in the step's mean,
  // 1 / (global batch * seq). The cross-entropy of the tokens that are seen is added to *loss_sum, unscaled, in memory
  // of the device. `backend` and `state` outlive this.
  static std::unique_ptr<LayerOps> Make(const StageContext& context, int32_t tp_rank, uint64_t seed, double loss_scale,
                                        double* loss_sum, Backend& backend, ModelState& state);
  virtual ~LayerOps() = default;

  // Dropout draws for this step from now on.
  void BeginStep(int64_t step);
  // Nothing is dropped from now on, until a step begins.
  void BeginEvaluation();

  // `layer`: as in an action; the op must belong to its type.
  virtual void Forward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& table) = 0;
  // The input gradient; norms, positions and token embeddings add to their weights' gradients here too.
  virtual void Backward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& table) = 0;
  // The weight gradient of an op that has a weight pass.
  virtual void Weight(Op op, int32_t layer, const TensorTable& table) = 0;

 protected:
  LayerOps(const StageContext& context, int32_t tp_rank, uint64_t seed, double loss_scale, double* loss_sum, Backend& backend,
           ModelState& state);

  DropoutKey KeyOf(Op op, int32_t layer, const MicrobatchInput& input) const;

  const LayerShape shape_;
  const bool biases_;    // and LayerNorm
  const bool qkv_bias_;  // of the query, key and value projections
  const float epsilon_;  // of norms
  const RotaryTable rotary_;
  const Tensor heads_;  // what attention reads: kQkv, or kQkNormed
  const double dropout_rate_;
  const int32_t tp_rank_;
  const uint64_t seed_;
  const double loss_scale_;
  double* const loss_sum_;
  Backend& backend_;
  ModelState& state_;
  int64_t step_ = 0;
  bool drops_ = true;

  // Sizes, as in the backend's comments.
  const int64_t b_, s_, n_, h_;
  // With sequence parallelism norms, residuals and dropout work on a rank's share of the tokens; else on all.
  const bool sharded_;
  const int64_t share_n_;        // tokens of the share
  const int64_t first_token_;    // of it
  const int64_t share_at_;       // elements before it in a tensor (n, h)
  const int64_t context_width_;  // a / t * d
  const int64_t f_shard_;        // f / t
  const int64_t qkv_width_;
  const int64_t fc1_width_;
  const AttentionShape attention_;
  const int64_t v_shard_;  // rows of the vocabulary held, padding included
  const int64_t v_valid_;  // of which exist
  const int32_t v_first_;  // the first of them
};

// The ops on elements of type T.
template <class T>
class TypedLayerOps final : public LayerOps {
 public:
  TypedLayerOps(const StageContext& context, int32_t tp_rank, uint64_t seed, double loss_scale, double* loss_sum,
                Backend& backend, LayerBackend<T>& ops, ModelState& state)
      : LayerOps(context, tp_rank, seed, loss_scale, loss_sum, backend, state), ops_(ops) {}

  void Forward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& table) override;
  void Backward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& table) override;
  void Weight(Op op, int32_t layer, const TensorTable& table) override;

 private:
  // A table's addresses as what they are.
  struct Tensors {
    const TensorTable& table;

    T* operator[](Tensor tensor) const { return static_cast<T*>(table.at[static_cast<size_t>(tensor)]); }
    float* Wide(Tensor tensor) const { return static_cast<float*>(table.at[static_cast<size_t>(tensor)]); }
    T* next_x() const { return static_cast<T*>(table.next_x); }
  };

  // LayerNorm or, of a family without biases, RMSNorm, on the rank's share of the tokens.
  void NormForward(int32_t layer, const T* x, Parameter weight, Parameter bias, T* y);
  // dy: of all tokens. dx += or = (`accumulate`).
  void NormBackward(int32_t layer, const T* x, Parameter weight, Parameter bias, const T* dy, bool accumulate, T* dx);
  const T* WeightOf(int32_t layer, Parameter weight) const { return state_.WeightOfOps<T>(layer, weight); }
  const T* QkvBiasOf(int32_t layer) const { return qkv_bias_ ? WeightOf(layer, Parameter::kQkvBias) : nullptr; }
  float* QkvBiasGradientOf(int32_t layer) { return qkv_bias_ ? state_.Gradient(layer, Parameter::kQkvBias) : nullptr; }
  // Null where the family has no biases.
  const T* BiasOf(int32_t layer, Parameter bias) const { return biases_ ? WeightOf(layer, bias) : nullptr; }
  float* BiasGradientOf(int32_t layer, Parameter bias) { return biases_ ? state_.Gradient(layer, bias) : nullptr; }
  // Backward of add1 and add2: the gradient of their input, at the rank's share of `out`.
  void BiasDropoutAdd(Op op, int32_t layer, const MicrobatchInput& input, const T* grad, Parameter bias, T* out);

  LayerBackend<T>& ops_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_LAYER_OPS_H_
