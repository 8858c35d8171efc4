#include "worker/model/counted_slots.h"

#include "planner/program/state_sharing.h"

namespace lynx::worker {

std::vector<ParameterSlot> CountedSlots(const StageContext& context, int32_t tp_rank, const StateIndex& index,
                                        const std::vector<ParameterSlot>& updated) {
  std::vector<ParameterSlot> counted;
  for (const ParameterSlot& slot : updated) {
    if (slot.by_load) continue;
    const bool shared = (slot.expert ? ExpertShares(context) : OptimizerShares(context)) > 1;
    const bool first = (slot.expert ? index.expert : index.data) == 0;
    if ((shared || first) && !slot.copy && (!slot.replicated || tp_rank == 0)) counted.push_back(slot);
  }
  return counted;
}

}  // namespace lynx::worker
