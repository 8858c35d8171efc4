// ModelState: a rank's weights, gradients and AdamW moments, in four flat fp32 arrays with the same layout. Parameters are in
// the order of their layers and each layer is contiguous, so that data parallelism reduces a layer's gradients as one range,
// and the optimizer walks the arrays once. A bfloat16 model has a fifth array with the weights rounded to bfloat16, which its
// ops read. The fp32 weights are then its master weights (Micikevicius et al. 2018); checkpoints have only these.
//
// With ZeRO-1 the ranks that hold the same weights divide each layer's range evenly, padded to a multiple of their number. Each
// rank has the moments of only its own share, one layer's share after another, and with bfloat16 the master weights of only its
// share too. The weights that ops read are complete on each rank, but the rank updates only its own share of them: the other
// shares must be gathered (Engine::GatherWeights).
//
// Names and shapes of GPT's parameters (global; t = tensor-parallel size; weights are (out, in)):
//   embed.tok (v, h) split by rows   embed.pos (s, h)
//   layers.N.ln1.weight|bias (h)     layers.N.qkv.weight (3h, h) rows split by heads within each of q, k, v; .bias (3h)
//   layers.N.proj.weight (h, h) split by columns; .bias (h)      layers.N.ln2.weight|bias (h)
//   layers.N.fc1.weight (f, h) split by rows; .bias (f)          layers.N.fc2.weight (h, f) split by columns; .bias (h)
//   head.ln.weight|bias (h)          head.out.weight (v, h) split by rows
// Llama has no embed.pos and no biases, except qkv.bias where the model says so. With k key and value heads for a query heads,
// of d elements each, qkv.weight is ((a + 2k) d, h), in GPT too. If queries and keys have norms, there are
// q_norm.weight|k_norm.weight (d). fc1.weight is (2f, h): the gate's rows and then the rows of what the gate multiplies, split
// by rows within each half. Rows of a vocabulary shard beyond v are padding: they are zero, no gradient updates them, and
// checkpoints do not contain them.
//
// With a tied embedding (embed.tok is also the output projection), a rank that needs both has no head.out.weight. If two ranks
// need them, head.out.weight is a copy: it begins with the same bits, and both ranks add up both gradients, so it stays equal.
// The rank with the embedding counts it in the gradient norm and owns the weight.
//
// Initial values are a function of (seed, parameter name, global element index), so every layout starts from the same model:
// normal(0, 0.02); proj and fc2 normal(0, 0.02 / sqrt(2 L)); norms 1; biases 0.
//
// Owned by the rank's compute thread.
#ifndef LYNX_WORKER_MODEL_MODEL_STATE_H_
#define LYNX_WORKER_MODEL_MODEL_STATE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/program/state_sharing.h"
#include "worker/backend/backend.h"

namespace lynx::worker {

enum class Parameter : uint8_t {
  kEmbedTok,
  kEmbedPos,
  kLn1Weight,
  kLn1Bias,
  kQkvWeight,
  kQkvBias,
  kQNormWeight,
  kKNormWeight,
  kProjWeight,
  kProjBias,
  kLn2Weight,
  kLn2Bias,
  kFc1Weight,
  kFc1Bias,
  kFc2Weight,
  kFc2Bias,
  kHeadLnWeight,
  kHeadLnBias,
  kHeadOutWeight,
};

// One rectangular piece of a global 2-D parameter that this rank holds: rows [row, row + rows) x columns [column, column +
// columns) of the global (global_rows, global_columns). A 1-D parameter has one row, and as many columns as its length.
struct ParameterPiece {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
  int64_t offset = 0;  // elements, counted from the parameter's offset
};

struct ParameterSlot {
  Parameter parameter;
  int32_t layer = 0;  // transformer layer, kEmbeddingLayer or kHeadLayer
  std::string name;
  std::string whole_name;   // name of the whole parameter: for a copy of the embedding the embedding's name, else `name`
  int64_t global_rows = 0;  // 1 for vectors
  int64_t global_columns = 0;
  bool vector = false;                 // 1-D in files
  std::vector<ParameterPiece> pieces;  // 3 for qkv, 2 for a gated fc1, 1 elsewhere
  int64_t offset = 0;                  // elements from the start of the flat arrays
  int64_t count = 0;                   // elements on this rank, including padding
  int64_t share_offset = 0;            // the offset in arrays that contain only what this rank updates
  bool decays = false;                 // true for matrices: weight decay applies
  bool replicated = false;             // the same on all tensor-parallel ranks, so it counts once in the gradient norm
  // Replicated, but each rank computes only the gradient of its own heads. The ranks' gradients are therefore added once per
  // step, whether norms are sharded or not.
  bool by_heads = false;
  bool copy = false;  // this is the output projection as a copy of the embedding on another rank
};

// The slots of one rank, in order. Pure.
std::vector<ParameterSlot> ParameterSlotsOf(const StageContext& context, int32_t tp_rank);
// The parts of the slots that member `index` of the ranks with the same weights updates: all of each slot or, with ZeRO, its
// share of each layer, as slots of their own without padding. Pure.
std::vector<ParameterSlot> UpdatedSlots(const StageContext& context, const std::vector<ParameterSlot>& slots, int32_t index);

// Writes the initial values of a slot into `weights` (slot.count), which must be zero, because padding and biases are not
// written. Element i (row-major in the global parameter) of a normal parameter is deviate i of the Philox stream with key
// Mix64(seed ^ FNV-1a-64(name)): block i / 4, by Box-Muller in double, then rounded to float. So the same math library and kind
// of processor give the same bits on every rank. Pure.
void FillInitialWeights(const ParameterSlot& slot, const ModelSpec& model, uint64_t seed, std::span<float> weights);

class ModelState {
 public:
  // Allocates the arrays through the backend and fills the weights that this rank updates with their initial values.
  // `data_index`: the rank's index among those with the same weights.
  static absl::StatusOr<ModelState> Create(const StageContext& context, int32_t tp_rank, int32_t data_index, uint64_t seed,
                                           Backend& backend);

  const std::vector<ParameterSlot>& slots() const { return slots_; }
  // The slots that this rank has moments for, updates, and writes to and reads from checkpoints. Other ranks with the same
  // weights have the rest.
  const std::vector<ParameterSlot>& updated() const { return updated_; }
  bool shares_updates() const { return OptimizerShares(context_) > 1; }
  // fp32; with bfloat16 only the weights that this rank updates. If anything but the optimizer changes them,
  // Engine::GatherWeights must be called before the next step.
  std::span<float> weights() { return weights_; }
  // `slot`: a slot of updated().
  float* UpdatedWeight(const ParameterSlot& slot) {
    return weights_.data() + (rounded_weights_.empty() ? slot.offset : slot.share_offset);
  }
  // The weights that ops read in a bfloat16 model, with the layout of gradients(); empty in fp32.
  std::span<Bfloat16> rounded_weights() { return rounded_weights_; }
  std::span<float> gradients() { return gradients_; }
  std::span<float> first_moments() { return first_moments_; }
  std::span<float> second_moments() { return second_moments_; }

  // The weight that ops read: Bfloat16 in a model of that type, else float.
  template <class T>
  const T* WeightOfOps(int32_t layer, Parameter parameter) const;
  float* Gradient(int32_t layer, Parameter parameter);
  // The tied embedding, if another rank has the other copy; else null.
  const ParameterSlot* shared_embedding() const;
  // The slot of a parameter, which must be on this rank.
  const ParameterSlot& Slot(int32_t layer, Parameter parameter) const;
  // The contiguous range [begin, begin + count) of one layer in the flat arrays, including its padding.
  struct Range {
    int64_t begin = 0, count = 0;
  };
  Range LayerRange(int32_t layer) const;

  // Copies everything that this rank updates from the fp32 weights to the weights that ops read. Does nothing in fp32.
  void RoundWeights(Backend& backend);
  // What the optimizer updates, in the order of `updated`, including the weights that ops read.
  std::vector<AdamWTensor> Updates();
  // The backend that holds the arrays.
  Backend& backend() { return *backend_; }
  // The size of all arrays.
  Bytes bytes() const;

 private:
  Backend* backend_ = nullptr;
  std::vector<ParameterSlot> slots_, updated_;
  std::vector<int32_t> index_;  // by (layer position, parameter)
  StageContext context_;
  std::span<float> weights_, gradients_, first_moments_, second_moments_;
  std::span<Bfloat16> rounded_weights_;  // empty unless the model is bfloat16
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_MODEL_MODEL_STATE_H_
