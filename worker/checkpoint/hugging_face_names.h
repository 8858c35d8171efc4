// The names that Hugging Face's transformers use for a model's tensors, and the config.json that they need. Covers the families
// of planner/problem/model_families.h whose weights have names. A table says which part of which Lynx parameter each tensor is.
// Pure; thread-safe.
//
// The shapes differ in two ways. GPT-2's linear layers ("Conv1D") store their weights as (in, out), so they are transposed.
// Llama has one tensor each for query, key and value, and one each for gate and up. Lynx, GPT-2 and Phi-3 store these one above
// the other in one tensor. The pairs of rotary positions are the same, (i, i + d/2) of a head, so nothing is permuted.
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
  ParameterPiece piece;     // part of our whole parameter; its offset is unused
  bool transposed = false;  // columns of our piece are rows of the tensor
};

// The tensors that make up one Lynx parameter, in the order of its rows. `slot`: the slot of a rank that has the whole model.
// `family`: a family whose weights have names.
std::vector<HuggingFaceTensor> HuggingFaceTensorsOf(const ParameterSlot& slot, const FamilyTraits& family);

// True for a tensor that holds no weights: masks and frequencies that some versions of the library write.
bool IsHuggingFaceConstant(const std::string& name);

// The text of config.json for the model, described as a model of `family`. The family's layers must compute the same as the
// model's (ExportFamilyOf).
std::string HuggingFaceConfigText(const ModelSpec& model, const FamilyTraits& family);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_HUGGING_FACE_NAMES_H_
