// LayerOps runs one pass of one op of the layer graph, by calls of the backend. The engine uses it for the ops of its program.
// Measuring uses it for single ops. It decides nothing and allocates no memory.
//
// Recomputation runs the same forward ops again. The result of an op depends only on its inputs, the weights and counters
// (seed, step, sample), so it has the same bits again.
//
// Not thread-safe. The rank's compute thread owns it, and also the backend and the states that it borrows.
#ifndef LYNX_WORKER_ENGINE_LAYER_OPS_H_
#define LYNX_WORKER_ENGINE_LAYER_OPS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "planner/problem/layer_graph.h"
#include "planner/problem/layer_kinds.h"
#include "planner/problem/stage_context.h"
#include "worker/backend/backend.h"
#include "worker/model/model_state.h"
#include "worker/model/rotary_table.h"

namespace lynx::worker {

// The addresses of the tensors that an action uses; all other entries are null. Elements have the model's data type, or fp32
// for tensors that the layer graph marks as fp32.
struct TensorTable {
  std::array<void*, kTensorCount> at{};
  // The tensor kX of the next layer. The ops fc2 (with experts unpermute), add2, embed and position write it. at[kX] is the
  // input of this layer.
  void* next_x = nullptr;
};

// The tokens of one microbatch, with inputs and targets of shape (micro_batch, seq), and the number of its first sample in the
// step's global batch.
struct MicrobatchInput {
  const int32_t* inputs = nullptr;
  const int32_t* targets = nullptr;
  int64_t first_sample = 0;
};

class LayerOps {
 public:
  // Makes the ops for the data type of the context's model. `loss_scale`: the factor of each token's loss in the step's mean, 1
  // / (global batch * seq). The forward pass of the loss adds the unscaled cross-entropy of all tokens to *loss_sum, in device
  // memory. `backend` and `state` must live longer than the result.
  static std::unique_ptr<LayerOps> Make(const StageContext& context, int32_t tp_rank, uint64_t seed, double loss_scale,
                                        double* loss_sum, Backend& backend, ModelState& state);
  virtual ~LayerOps() = default;

  // Sets the step. Dropout draws its decisions for this step.
  void BeginStep(int64_t step);
  // Switches dropout off until the next BeginStep.
  void BeginEvaluation();

  // Runs the forward pass. `layer`: as in an action. The op must belong to this type of layer.
  virtual void Forward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& table) = 0;
  // Computes the input gradient. Norms, positions and token embeddings also add to the gradients of their weights here.
  virtual void Backward(Op op, int32_t layer, const MicrobatchInput& input, const TensorTable& table) = 0;
  // Computes the weight gradient of an op that has a weight pass.
  virtual void Weight(Op op, int32_t layer, const TensorTable& table) = 0;

 protected:
  LayerOps(const StageContext& context, int32_t tp_rank, uint64_t seed, double loss_scale, double* loss_sum, Backend& backend,
           ModelState& state);

  DropoutKey KeyOf(Op op, int32_t layer, const MicrobatchInput& input) const;

  const LayerShape shape_;
  const bool biases_;    // true: linear layers have biases and norms are LayerNorm; false: norms are RMSNorm
  const bool qkv_bias_;  // true if the query, key and value projections have biases
  const float epsilon_;  // the epsilon of norms
  const RotaryTable rotary_;
  const Tensor heads_;  // the tensor that attention reads: kQkv or kQkNormed
  const double dropout_rate_;
  const int32_t tp_rank_;
  const uint64_t seed_;
  const double loss_scale_;
  double* const loss_sum_;
  Backend& backend_;
  ModelState& state_;
  int64_t step_ = 0;
  bool drops_ = true;

  // Sizes, named as in the comments of backend.h.
  const int64_t b_, s_, n_, h_;
  // With sequence parallelism, norms, residuals and dropout work on the rank's share of the tokens. Otherwise they work on all
  // tokens.
  const bool sharded_;
  const int64_t share_n_;        // number of tokens in the share
  const int64_t first_token_;    // the first token of the share
  const int64_t share_at_;       // number of elements before the share in a tensor (n, h)
  const int64_t context_width_;  // a / t * d: the heads of this rank times the elements of a head
  const int64_t qkv_width_;
  const AttentionShape attention_;
  const LatentShape latent_;  // h is 0 if the model has ordinary attention
  // The queries and keys that norms see. A norm over all queries of a token is that of one head with all elements.
  const AttentionShape normed_heads_;
  // The MLP of a layer.
  struct Mlp {
    explicit Mlp(const LayerShape& shape)
        : moe(shape.moe()), rows(shape.mlp_rows()), width(shape.mlp_width()), fc1_width(shape.fc1_width()) {}

    bool moe;           // true: it has experts
    int64_t rows;       // all tokens, or the rows of the rank's experts
    int64_t width;      // f / t, this rank's part of the inner size; with experts, the inner size of an expert
    int64_t fc1_width;  // width of the output of fc1
  };
  const Mlp& MlpOf(int32_t layer) const { return kinds_.IsDense(layer) ? dense_mlp_ : mlp_; }
  const LayerKinds kinds_;
  const Mlp mlp_, dense_mlp_;  // dense_mlp_: for layers without experts in a model that has experts
  const RouterShape router_;
  const RouterLosses router_losses_;
  const int64_t shared_width_;  // u: width of the block that every token passes in addition to the experts; 0 = none
  const bool shared_gate_;      // true: this block has a gate
  const bool router_bias_;      // true: routers have biases, and backward passes count the loads of experts
  const ExpertShape experts_;
  // True if rows without room go through rounds. The rounds of the backward pass leave the gradients of their rows' weights at
  // the beginning of the workspace, where the router reads them (ExpertRounds).
  const bool rounds_;
  // The rows that permute writes and unpermute reads: those of the rank's own experts if no other rank has experts.
  struct RowTensors {
    Tensor rows, weights, results, grad_rows, grad_weights, grad_results;
  };
  const RowTensors sent_;
  const int64_t v_shard_;  // number of vocabulary rows on this rank, including padding
  const int64_t v_valid_;  // number of these rows that exist in the vocabulary
  const int32_t v_first_;  // the first of these rows, as an index in the vocabulary
};

// LayerOps for elements of type T.
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
  // Returns the addresses of a table with their element types.
  struct Tensors {
    const TensorTable& table;

    T* operator[](Tensor tensor) const { return static_cast<T*>(table.at[static_cast<size_t>(tensor)]); }
    float* Wide(Tensor tensor) const { return static_cast<float*>(table.at[static_cast<size_t>(tensor)]); }
    RouteChoice* route() const { return static_cast<RouteChoice*>(table.at[static_cast<size_t>(Tensor::kRoute)]); }
    T* next_x() const { return static_cast<T*>(table.next_x); }
  };

  // The passes of the ops that latent attention has in place of qkv.
  void LatentForward(Op op, int32_t layer, const Tensors& t);
  void LatentBackward(Op op, int32_t layer, const Tensors& t);
  void LatentWeight(Op op, int32_t layer, const Tensors& t);
  // The passes of the ops of the block that every token passes in addition to its experts.
  void SharedForward(Op op, int32_t layer, const Tensors& t);
  void SharedBackward(Op op, int32_t layer, const Tensors& t);
  void SharedWeight(Op op, int32_t layer, const Tensors& t);
  // Computes LayerNorm or, in a family without biases, RMSNorm, on the rank's share of the tokens.
  void NormForward(int32_t layer, const T* x, Parameter weight, Parameter bias, T* y);
  // dy: the gradient of the share. `accumulate`: adds the input gradient to dx; otherwise overwrites dx with it.
  void NormBackward(int32_t layer, const T* x, Parameter weight, Parameter bias, const T* dy, bool accumulate, T* dx);
  const T* WeightOf(int32_t layer, Parameter weight) const { return state_.WeightOfOps<T>(layer, weight); }
  const T* QkvBiasOf(int32_t layer) const { return qkv_bias_ ? WeightOf(layer, Parameter::kQkvBias) : nullptr; }
  float* QkvBiasGradientOf(int32_t layer) { return qkv_bias_ ? state_.Gradient(layer, Parameter::kQkvBias) : nullptr; }
  // Returns null if the family has no biases.
  const T* BiasOf(int32_t layer, Parameter bias) const { return biases_ ? WeightOf(layer, bias) : nullptr; }
  float* BiasGradientOf(int32_t layer, Parameter bias) { return biases_ ? state_.Gradient(layer, bias) : nullptr; }
  // Computes the backward pass of add1 and add2: writes the gradient of their input to `share`.
  void BiasDropoutAdd(Op op, int32_t layer, const MicrobatchInput& input, const T* grad, Parameter bias, T* share);
  // Returns the gate's part of shared_fc1 or of its gradient; null if the block has no gate.
  float* GateOf(T* shared_fc1) const {
    return shared_gate_ ? reinterpret_cast<float*>(shared_fc1 + share_n_ * 2 * shared_width_) : nullptr;
  }
  // Returns the rank's share of the gradient of ln2's or fc2's output. In a layer with experts, the tensor is only the share.
  T* MlpShare(int32_t layer, T* gradient) const { return MlpOf(layer).moe ? gradient : gradient + share_at_; }

  LayerBackend<T>& ops_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_LAYER_OPS_H_
