// Says which gradients a rank counts in the gradient norm. Pure; thread-safe.
#ifndef LYNX_WORKER_MODEL_COUNTED_SLOTS_H_
#define LYNX_WORKER_MODEL_COUNTED_SLOTS_H_

#include <cstdint>
#include <vector>

#include "planner/problem/stage_context.h"
#include "worker/model/model_state.h"

namespace lynx::worker {

// Returns those of the slots whose gradients the rank counts in the norm. `updated`: the slots that the rank updates
// (ModelState::updated). Several ranks may have the same gradient: the ranks with the same weights or the same experts (unless
// each updates only a share), the tensor-parallel ranks (of replicated parameters), and the two ranks with a tied embedding.
// Each element of each parameter is counted on exactly one rank of the world.
std::vector<ParameterSlot> CountedSlots(const StageContext& context, int32_t tp_rank, const StateIndex& index,
                                        const std::vector<ParameterSlot>& updated);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_MODEL_COUNTED_SLOTS_H_
