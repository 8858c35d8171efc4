// The memory model: one fold over a rank's action list. The planner's feasibility check, the validator and the worker's arena
// all use this fold, so the planned peak is exactly the allocated size.
//
// A buffer instance begins at an action that writes its tensor without reading it, or that starts a new sum. It lives until the
// last action that reads or changes the tensor before the next such write. So the program need not state whether a tensor is
// stored or recomputed: if an R action writes the tensor again before the backward pass reads it, the instance of the forward
// pass ends early.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_PROGRAM_MEMORY_MODEL_H_
#define LYNX_PLANNER_PROGRAM_MEMORY_MODEL_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

struct BufferKey {
  Tensor tensor = Tensor::kX;
  // The layer of the tensor, with two special cases. The kX that is the output of a slice has end_layer, or kHeadLayer if the
  // slice has the head (whose final norm reads this x). kGrad has kNoLayer on a rank with one slice; on other ranks it has the
  // first layer of the slice from which the gradient leaves the rank.
  int32_t layer = kNoLayer;
  int32_t microbatch = kNoMicrobatch;

  auto operator<=>(const BufferKey&) const = default;

  template <class H>
  friend H AbslHashValue(H h, const BufferKey& key) {
    return H::combine(std::move(h), key.tensor, key.layer, key.microbatch);
  }
};
std::string BufferKeyText(const BufferKey& key);  // "probs[12,3]"

struct Access {
  BufferKey key;
  AccessMode mode;
  Bytes bytes;  // size of the whole tensor, unpadded
};

// All accesses of one action to arena buffers, in a fixed order; each key occurs once. The engine takes its pointers from the
// same list. Model states are not arena buffers, except what ZeRO keeps in the arena (StateBytes). A wait accesses the same
// buffers as its start. The action's virtual stage must be on the rank.
std::vector<Access> AccessesOf(const Action& action, const StageContext& context);

struct BufferInstance {
  BufferKey key;
  int32_t first = 0;  // index of the action that begins the instance
  int32_t last = 0;   // index of the last action that accesses the instance; this action still belongs to its lifetime
  Bytes bytes;        // padded to kBufferAlignment
  Bytes offset;       // in the arena; set by LayOut
};

struct MemoryPlan {
  std::vector<BufferInstance> buffers;  // ordered by first, then key
  Bytes live_peak;                      // largest sum of bytes (padded) that live at the same time; the arena cannot be smaller
  Bytes arena;                          // bytes that the worker allocates, at least live_peak
  int32_t peak_action = 0;              // the action at which live_peak is reached
  // Host memory of a rank: the pool of LayOutHost. This is the largest sum of bytes in the pool at the same time, plus
  // fragmentation.
  Bytes host_peak;
};

// Computes live_peak, peak_action, and buffers without offsets; arena and host_peak are 0. Returns FailedPrecondition with the
// action and the tensor if an action reads a tensor that was never written.
absl::StatusOr<MemoryPlan> FoldLiveness(const Program& program, const StageContext& context);
// Computes liveness, the size of the host's pool, and then offsets with which two buffers that live at the same time never
// share a byte. Deterministic. Stops looking for a smaller arena once the arena has at most `enough` bytes. If `enough` is the
// arena of an earlier result, the function returns the same result again.
absl::StatusOr<MemoryPlan> PlanMemory(const Program& program, const StageContext& context, Bytes enough = Bytes(0));

// Returns for each action the indices into MemoryPlan::buffers of its accesses, in the order of AccessesOf(action).
std::vector<std::vector<int32_t>> ResolveBuffers(const Program& program, const StageContext& context, const MemoryPlan& memory);

// Memory outside the arena, per rank. It holds the weights in the model's data type, the gradients in theirs
// (ModelSpec::gradient_dtype), and in 32 bits two AdamW moments and, for bfloat16, the master weights. With ZeRO, data- and
// context-parallel ranks shard optimizer states, then gradients, then weights. The arena then holds the gathered weights, and
// the gradients that are not reduced yet.
struct StateBytes {
  Bytes weights, gradients, optimizer;
  Bytes total() const { return weights + gradients + optimizer; }
};
StateBytes StatesOf(const StageContext& context);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_MEMORY_MODEL_H_
