// The recomputation pass of the lowering: a layer's policy becomes the ops to run at each point of time before its
// backward pass. Pure values; thread-safe.
#ifndef LYNX_PLANNER_LOWER_RECOMPUTE_H_
#define LYNX_PLANNER_LOWER_RECOMPUTE_H_

#include <array>
#include <cstdint>

#include "planner/layer_graph.h"
#include "planner/recompute_policy.h"

namespace lynx {

// Where a program can recompute for layer l and microbatch k, in the order of time. The critical placement is two
// points: which one follows from the backward segment that reads the tensor first.
enum class RecomputePoint : uint8_t {
  kForwardAttn,
  kForwardMlp,
  kStall,
  kAboveMlp,
  kAboveAttn,
  kBeforeMlp,
  kOwnMlp,
  kBeforeAttn,
};
inline constexpr int kRecomputePointCount = 8;

// Which points exist for a layer and microbatch.
struct RecomputeSituation {
  bool collectives = false;     // t > 1: segments end in collectives
  bool paired_forward = false;  // another microbatch's forward runs just before this backward
  bool stall = false;           // the gradient comes from a next stage
  bool layer_above = false;     // the stage has layer l + 1
};

// Indexed by RecomputePoint: the ops to run again there.
using RecomputeOps = std::array<OpSet, kRecomputePointCount>;

// Where a placement's point does not exist, its tensors move to a later one: from forward windows and windows of the
// layer above into the stall, from the stall to just before their use. A tensor moves later still when an input does,
// and is never later than its first reader. Results of repeated collectives stay out of windows.
RecomputeOps ResolveRecomputation(const LayerPolicy& policy, const RecomputeSituation& situation);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_RECOMPUTE_H_
