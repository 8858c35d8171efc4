// ModelState holds a rank's weights, gradients and AdamW moments, in four flat fp32 arrays with the same layout. Parameters
// have the order of their layers, and each layer is contiguous. So data parallelism reduces a layer's gradients as one range,
// and the optimizer goes through the arrays once. A bfloat16 model has a fifth array: the weights rounded to bfloat16, which
// its ops read. Its fp32 weights are then the master weights (Micikevicius et al. 2018). Checkpoints have only the fp32
// weights.
//
// With ZeRO-1 the ranks that hold the same weights divide each layer's range evenly. The range is padded to a multiple of their
// number. Each rank has the moments of only its own share; the shares of the layers follow each other. With bfloat16, each rank
// also has the master weights of only its own share. The weights that ops read are complete on each rank, but a rank updates
// only its own share of them. It must receive the other shares from the other ranks (Engine::GatherWeights).
//
// Names and shapes of GPT's parameters (global; t = tensor-parallel size; weights are (out, in)):
//   embed.tok (v, h) split by rows   embed.pos (s, h)
//   layers.N.ln1.weight|bias (h)     layers.N.qkv.weight (3h, h) rows split by heads within each of q, k, v; .bias (3h)
//   layers.N.proj.weight (h, h) split by columns; .bias (h)      layers.N.ln2.weight|bias (h)
//   layers.N.fc1.weight (f, h) split by rows; .bias (f)          layers.N.fc2.weight (h, f) split by columns; .bias (h)
//   head.ln.weight|bias (h)          head.out.weight (v, h) split by rows
// Llama has no embed.pos and no biases, except qkv.bias if the model says so. If a model has k key and value heads for a query
// heads, with d elements each, qkv.weight is ((a + 2k) d, h), in GPT too. If queries and keys have norms, there are
// q_norm.weight|k_norm.weight (d), or (a d) and (k d) if the norms are over whole tokens. fc1.weight is (2f, h): first the rows
// of the gate, then the rows that the gate multiplies. It is split by rows within each half. If a vocabulary shard has rows
// beyond v, these are padding: they are zero, no gradient updates them, and checkpoints do not contain them.
//
// With latent attention (LatentSpec: p = query_rank, r = kv_rank, t = rotary.dims, e = value_dim) a layer has in place of qkv:
//   layers.N.latent.weight (p + r + t, h), layers.N.latent_norm.weight (p + r), whole on each rank
//   layers.N.query.weight (a d, p, or h if p is 0) split by heads; the first t rows of a head are those of the rotated elements
//   layers.N.key_value.weight (a (d - t) + a e, r): first the rows of keys, without their rotated elements, then those of
//       values, both split by heads
// and proj.weight is (h, a e).
//
// A layer with E experts of width w has these parameters in place of fc1 and fc2. Tensor parallelism does not split them.
// Member i of an expert group of ep ranks (planner/problem/layout.h) has the rows of the experts [i E/ep, (i+1) E/ep):
//   layers.N.router.weight (E, h), whole on each rank
//   layers.N.shared.fc1.weight (2u, h), layers.N.shared.fc2.weight (h, u): the block of width u that every token passes beside
//       the experts, whole on each rank; rows as those of fc1 and fc2
//   layers.N.shared.gate.weight (h), whole on each rank: the gate of this block, if it has one
//   layers.N.experts.fc1.weight (E 2w, h): for each expert the 2w rows of its fc1.weight
//   layers.N.experts.fc2.weight (E h, w): for each expert the h rows of its fc2.weight
// If the model's routers have biases, each such layer has layers.N.router.bias (E), whole on each rank. These are the last
// parameters of the arrays, a range of their own that is not divided (LoadsRange).
// A layer's experts follow its other parameters, and are a range of their own (ExpertRange). The ranks that hold the same
// experts are not those that hold the same other parameters, so both ranges are reduced, and with ZeRO-1 divided, apart from
// each other (planner/program/state_sharing.h).
//
// With a tied embedding, embed.tok is also the output projection. A rank that needs both then has no head.out.weight. If two
// ranks need them, head.out.weight is a copy of embed.tok. It begins with the same bits, and both ranks add up both gradients,
// so it stays equal. The rank with embed.tok owns the weight and counts it in the gradient norm.
//
// Initial values depend only on seed, parameter name and global element index, so every layout starts from the same model. They
// are normal(0, 0.02). Exceptions: proj and fc2, also of experts and shared, are normal(0, 0.02 / sqrt(2 L)) with L layers,
// norms are 1, biases are 0.
//
// The rank's compute thread owns it.
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
  kLatentWeight,
  kLatentNormWeight,
  kQueryWeight,
  kKeyValueWeight,
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
  // of transformer layers with experts
  kRouterWeight,
  kSharedFc1Weight,
  kSharedFc2Weight,
  kSharedGateWeight,
  kExpertsFc1Weight,
  kExpertsFc2Weight,
  kRouterBias,
};

// One rectangular piece of a global 2-D parameter that this rank holds: rows [row, row + rows) and columns [column, column +
// columns) of the global matrix (global_rows, global_columns). A 1-D parameter has one row, and one column for each element.
struct ParameterPiece {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
  int64_t offset = 0;  // number of elements from the parameter's offset to this piece
};

struct ParameterSlot {
  Parameter parameter;
  int32_t layer = 0;  // transformer layer, kEmbeddingLayer or kHeadLayer
  std::string name;
  // The name of the whole parameter: for a copy of the embedding, the embedding's name; otherwise `name`.
  std::string whole_name;
  int64_t global_rows = 0;  // 1 for vectors
  int64_t global_columns = 0;
  bool vector = false;                 // true if the parameter is 1-D in files
  std::vector<ParameterPiece> pieces;  // 3 for qkv, 2 for an fc1 with a gate, otherwise 1
  int64_t offset = 0;                  // number of elements from the start of the flat arrays
  int64_t count = 0;                   // number of elements on this rank, including padding
  int64_t share_offset = 0;            // the offset in arrays that contain only the part that this rank updates
  bool decays = false;                 // true if weight decay applies, which is so for matrices
  bool replicated = false;  // true if all tensor-parallel ranks have the same values; these count once in the gradient norm
  // True if the parameter is replicated, but each rank computes only the gradient that comes from its own heads. Then the ranks
  // add up their gradients once per step, with and without sequence parallelism.
  bool by_heads = false;
  bool copy = false;    // true if this is the output projection, and a copy of the embedding on another rank
  bool expert = false;  // true if the parameter is of experts; never replicated, even if tensor-parallel ranks have the same
  // True if the parameter is a router's bias, which follows the loads of experts, not a gradient. Its part of the gradients has
  // the loads. Every rank of the stage has all of it, in fp32, and no optimizer updates it.
  bool by_load = false;
};

// A rank's index among the ranks that have the same weights, and among those that have the same experts.
struct StateIndex {
  int32_t data = 0, expert = 0;
};
// `data_index`: the index among the ranks with the same weights, apart from experts.
StateIndex StateIndexOf(const StageContext& context, int32_t tp_rank, int32_t data_index);

// Returns the slots of one rank, in order. `data_index`: as above; it matters only if ranks share experts. Pure.
std::vector<ParameterSlot> ParameterSlotsOf(const StageContext& context, int32_t tp_rank, int32_t data_index = 0);
// Returns the parts of the slots that a rank updates. Without ZeRO, each part is a whole slot. With ZeRO, the parts are the
// rank's share of each layer's range, and of the range of its experts, as slots of their own without padding. A range that only
// this rank has is not divided. Pure.
std::vector<ParameterSlot> UpdatedSlots(const StageContext& context, const std::vector<ParameterSlot>& slots,
                                        const StateIndex& index);

// Writes the initial values of a slot into `weights` (slot.count). `weights` must be zero, because padding and biases are not
// written. The values of a parameter with normal values come from the Philox stream with key Mix64(seed ^ FNV-1a-64(name)).
// Element i (row-major in the global parameter) is normal number i of this stream: block i / 4, by Box-Muller in double, then
// rounded to float. So every rank gets the same bits with the same math library and kind of processor. The numbers of a large
// parameter are computed on all cores that the calling thread may use; the result does not depend on their number.
void FillInitialWeights(const ParameterSlot& slot, const ModelSpec& model, uint64_t seed, std::span<float> weights);

class ModelState {
 public:
  // Allocates the arrays through the backend, and fills the weights that this rank updates with their initial values.
  // `data_index`: the rank's index among the ranks with the same weights, apart from experts.
  static absl::StatusOr<ModelState> Create(const StageContext& context, int32_t tp_rank, int32_t data_index, uint64_t seed,
                                           Backend& backend);

  const std::vector<ParameterSlot>& slots() const { return slots_; }
  // The slots that this rank updates. The rank has moments only for these, and it writes only these to checkpoints and reads
  // only these from them. Other ranks with the same weights have the rest.
  const std::vector<ParameterSlot>& updated() const { return updated_; }
  // True if the rank updates only a share of its weights, apart from experts, or of its experts.
  bool shares_updates() const { return OptimizerShares(context_) > 1; }
  bool shares_experts() const { return ExpertShares(context_) > 1; }
  // The fp32 weights; in a bfloat16 model only the weights that this rank updates. If anything other than the optimizer changes
  // them, Engine::GatherWeights must be called before the next step.
  std::span<float> weights() { return weights_; }
  // `slot`: a slot of updated().
  float* UpdatedWeight(const ParameterSlot& slot) {
    return weights_.data() + (rounded_weights_.empty() ? slot.offset : slot.share_offset);
  }
  // The weights that ops read in a bfloat16 model, with the layout of gradients(). Empty in an fp32 model.
  std::span<Bfloat16> rounded_weights() { return rounded_weights_; }
  std::span<float> gradients() { return gradients_; }
  std::span<float> first_moments() { return first_moments_; }
  std::span<float> second_moments() { return second_moments_; }

  // Returns the weight that ops read: Bfloat16 in a bfloat16 model, otherwise float.
  template <class T>
  const T* WeightOfOps(int32_t layer, Parameter parameter) const;
  float* Gradient(int32_t layer, Parameter parameter);
  // Returns the slot of the tied embedding on this rank if another rank has the other copy, otherwise null.
  const ParameterSlot* shared_embedding() const;
  // Returns the slot of a parameter. The parameter must be on this rank.
  const ParameterSlot& Slot(int32_t layer, Parameter parameter) const;
  // The contiguous range [begin, begin + count) of one layer in the flat arrays, without its experts, including its padding.
  struct Range {
    int64_t begin = 0, count = 0;
  };
  Range LayerRange(int32_t layer) const;
  // The range of the experts of a layer, which must be on this rank.
  Range ExpertRange(int32_t layer) const;
  // The range of the biases of all routers on this rank; in the gradients it has the loads of their experts. Empty if there are
  // none.
  Range LoadsRange() const;
  // The bias that a router's ops read, in fp32; null if the model's routers have none. The layer must have experts.
  float* RouterBias(int32_t layer);

  // Rounds the fp32 weights that this rank updates, and stores them in the weights that ops read. Does nothing in an fp32
  // model.
  void RoundWeights(Backend& backend);
  // Returns the tensors that the optimizer updates, in the order of updated(). In a bfloat16 model, each tensor also has the
  // address of the weights that ops read.
  std::vector<AdamWTensor> Updates();
  // The backend that holds the arrays.
  Backend& backend() { return *backend_; }
  // Returns the size of all arrays together.
  Bytes bytes() const;

 private:
  Range RangeOf(int32_t layer, bool expert) const;

  Backend* backend_ = nullptr;
  std::vector<ParameterSlot> slots_, updated_;
  std::vector<int32_t> index_;  // indexed by (layer position, parameter)
  StageContext context_;
  std::span<float> weights_, gradients_, first_moments_, second_moments_;
  std::span<Bfloat16> rounded_weights_;  // empty unless the model is bfloat16
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_MODEL_MODEL_STATE_H_
