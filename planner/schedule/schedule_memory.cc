#include "planner/schedule/schedule_memory.h"

#include <algorithm>

#include "common/check.h"

namespace lynx {

std::vector<InFlightCount> CountInFlight(const Schedule& schedule) {
  std::vector<InFlightCount> counts;
  counts.reserve(schedule.ranks.size());
  for (const std::vector<Slot>& slots : schedule.ranks) {
    InFlightCount now, most;
    for (const Slot& slot : slots) {
      switch (slot.pass) {
        case Pass::kForward:
          ++now.activations;
          ++now.either;
          break;
        case Pass::kBackward:
          --now.activations;
          now.weights += schedule.splits_weight ? 1 : 0;
          now.either -= schedule.splits_weight ? 0 : 1;
          break;
        case Pass::kWeight:
          --now.weights;
          --now.either;
          break;
      }
      most.activations = std::max(most.activations, now.activations);
      most.weights = std::max(most.weights, now.weights);
      most.either = std::max(most.either, now.either);
    }
    counts.push_back(most);
  }
  return counts;
}

int64_t InterleavedInFlight(const PipelineShape& shape, int32_t rank, int64_t microbatches) {
  const int64_t p = shape.ranks, v = shape.chunks;
  const int64_t whole = (microbatches - 1) / p;      // groups of p microbatches before the last group
  const int64_t of_last = microbatches - whole * p;  // microbatches of the last group, 1..p
  const int64_t slots = (v - 1) * p + 2 * (p - rank - 1) + 1;
  if (slots <= whole * p * v) return slots;
  const int64_t in_last = std::min(slots - whole * p * v, p * v);
  return whole * p * v + in_last / p * of_last + std::min(in_last % p, of_last);
}

std::vector<Bytes> PeakHeldBytes(const Schedule& schedule, const std::vector<StageHeldBytes>& stages) {
  LYNX_CHECK(stages.size() == static_cast<size_t>(schedule.shape.stages()));
  std::vector<Bytes> peaks;
  peaks.reserve(schedule.ranks.size());
  for (const std::vector<Slot>& slots : schedule.ranks) {
    Bytes now, most;
    for (const Slot& slot : slots) {
      const StageHeldBytes& held = stages[static_cast<size_t>(slot.stage)];
      switch (slot.pass) {
        case Pass::kForward: now += held.activations; break;
        case Pass::kBackward:
          now -= held.activations;
          if (schedule.splits_weight) now += held.weights;
          break;
        case Pass::kWeight: now -= held.weights; break;
      }
      most = std::max(most, now);
    }
    peaks.push_back(most);
  }
  return peaks;
}

}  // namespace lynx
