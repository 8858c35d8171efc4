// Estimates the memory of a step in closed form, for our own engine's layouts and those of other frameworks (FrameworkTraits).
// The memory model of a program (planner/program/memory_model.h) is exact, but only for our engine. This estimate counts what
// every framework keeps: model states, what layers keep between their forward and their backward pass, and the largest of the
// tensors that live only for a moment. Pure; thread-safe.
//
// Bytes of a rank with P parameters and d replicas, in 16 bits (Rajbhandari et al. 2020): weights 2 P, gradients 4 P (summed in
// 32 bits; 2 P if ModelSpec::gradient_dtype has 16), optimizer 12 P (the 32-bit weights and both moments). In 32 bits: 4 P, 4 P
// and 8 P. ZeRO divides the optimizer's, then the gradients', then the weights' bytes by d. Where the weights are divided, the
// rank also holds the gathered weights of two layers at a time: of the one that computes and of the one that is being gathered.
#ifndef LYNX_PLANNER_FRAMEWORKS_MEMORY_ESTIMATE_H_
#define LYNX_PLANNER_FRAMEWORKS_MEMORY_ESTIMATE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/frameworks/step_estimate.h"

namespace lynx {

// The bytes of one rank. All ranks of a pipeline rank's tensor group have the same estimate.
struct MemoryEstimate {
  Bytes weights;  // with the gathered weights of two layers, where weights are sharded
  Bytes gradients;
  Bytes optimizer;
  Bytes activations;  // what layers, embedding and head keep for all microbatches that are in flight at the same time
  // The largest sum of tensors that live at the same time only while a layer or the loss runs: what a recomputed layer keeps
  // again, the gradients inside a layer, or the logits and their copies.
  Bytes transient;
  Bytes workspace;  // FrameworkTraits::workspace_bytes

  Bytes states() const { return weights + gradients + optimizer; }
  Bytes total() const { return states() + activations + transient + workspace; }
  bool operator==(const MemoryEstimate&) const = default;
};

// Bytes that a layer of this shape keeps of a microbatch between its forward and its backward pass, with the recomputation and
// the traits of the request.
Bytes StoredLayerBytes(const StepRequest& request, const LayerShape& shape);

// Returns the memory of each pipeline rank. Returns InvalidArgument as EstimateStep does. What is offloaded
// (StepRequest::offload_permille) is not counted.
absl::StatusOr<std::vector<MemoryEstimate>> EstimateMemory(const StepRequest& request);

}  // namespace lynx

#endif  // LYNX_PLANNER_FRAMEWORKS_MEMORY_ESTIMATE_H_
