// Defines the names that Hugging Face's library transformers uses for a model's tensors, and the config.json that the library
// needs. Covers those families of planner/problem/model_families.h for which the names of the weights are known. A table says
// for each tensor which part of which Lynx parameter it is. Pure; thread-safe.
//
// The shapes differ from those of Lynx in two ways. GPT-2's linear layers ("Conv1D") store their weights as (in, out), so they
// are transposed. Llama has separate tensors for query, key and value, and for gate and up; Lynx, GPT-2 and Phi-3 stack the
// rows of these in one tensor. All of them rotate the same pairs of a head's d rotary elements, (i, i + d/2), so no rows are
// permuted, except for latent attention: DeepSeek's files have the rows of the rotated elements of a head after its other rows,
// and rotate the pairs (2i, 2i + 1) of them; in Lynx they come first. kv_b_proj has for each head the rows of keys, then those
// of values; Lynx has the rows of the keys of all heads first.
//
// Lynx stacks the experts of a layer: for each expert the rows of its gate, then the rows that the gate multiplies; in another
// parameter, for each expert the rows of its output. Mixtral and Qwen3-MoE have three tensors for each expert, and one for the
// router; Qwen2-MoE and GLM-4.5 have also those of what every token passes. Both names and shapes are those of transformers'
// classes MixtralSparseMoeBlock, Qwen3MoeSparseMoeBlock, Qwen2MoeSparseMoeBlock and Glm4MoeMoE; later versions of transformers
// stack the experts in memory, but their files have these names (conversion_mapping.py).
#ifndef LYNX_WORKER_CHECKPOINT_HUGGING_FACE_NAMES_H_
#define LYNX_WORKER_CHECKPOINT_HUGGING_FACE_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/problem/job_spec.h"
#include "planner/problem/model_families.h"
#include "worker/model/model_state.h"

namespace lynx::worker {

struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> shape;
  ParameterPiece piece;     // the part of the whole Lynx parameter; its offset is not used
  bool transposed = false;  // true if the columns of the piece are the rows of the tensor
  // If it is not empty, row i of the piece is row rows[i] of the tensor.
  std::vector<int64_t> rows = {};
};

// Returns the tensors that make up one Lynx parameter, in the order of its rows. `slot`: the slot of a rank that has the whole
// model. `family`: a family for which the names of the weights are known, and whose layers are those of the model.
std::vector<HuggingFaceTensor> HuggingFaceTensorsOf(const ParameterSlot& slot, const ModelSpec& model,
                                                    const FamilyTraits& family);

// True for a tensor that holds no weights, such as the masks and frequencies that some versions of transformers write.
bool IsHuggingFaceConstant(const std::string& name);

// Returns the text of config.json, which describes the model as a model of `family`. The family's layers must compute the same
// as the model's layers (ExportFamilyOf). The file has no field for model.moe.capacity, dropless, skew, zLoss and biasRate. It
// has router_aux_loss_coef, but output_router_logits is false as by default, so transformers adds no loss of routers unless
// asked.
std::string HuggingFaceConfigText(const ModelSpec& model, const FamilyTraits& family);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_HUGGING_FACE_NAMES_H_
