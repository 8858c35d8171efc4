// What Hugging Face's transformers call a model's tensors, and the config.json that they read it with, for the families
// of planner/problem/model_families.h whose weights have names. One table says which tensor is which part of which of our
// parameters. Pure; thread-safe.
//
// Differences of shape: GPT-2's linear layers ("Conv1D") keep their weights as (in, out), so they are transposed;
// Llama has a tensor for each of query, key and value, and for gate and up, where we, GPT-2 and Phi-3 have one above the
// other. The pairs of rotary positions are the same, (i, i + d/2) of a head, so nothing is permuted.
#ifndef LYNX_WORKER_CHECKPOINT_HUGGING_FACE_NAMES_H_
#define LYNX_WORKER_CHECKPOINT_HUGGING_FACE_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/problem/job_spec.h"
#include "planner/problem/model_families.h"
#include "worker/model/model_state.h"

namespace lynx {

struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> shape;
  ParameterPiece piece;     // of our whole parameter; its offset is unused
  bool transposed = false;  // columns of our piece are rows there
};

// The tensors that make up one of our parameters, in the order of its rows. `slot`: of a rank that has the whole
// model. `family`: one whose weights have names.
std::vector<HuggingFaceTensor> HuggingFaceTensorsOf(const ParameterSlot& slot, const FamilyTraits& family);

// Whether a tensor says nothing of the weights: masks and frequencies that some versions of the library write.
bool IsHuggingFaceConstant(const std::string& name);

// As a model of the family, whose layers the model's are (ExportFamilyOf).
std::string HuggingFaceConfigText(const ModelSpec& model, const FamilyTraits& family);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_HUGGING_FACE_NAMES_H_
