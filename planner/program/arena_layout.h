// The arena's layout: an offset for every buffer instance, such that two that live at once never share a byte. Pure;
// thread-safe; deterministic.
#ifndef LYNX_PLANNER_PROGRAM_ARENA_LAYOUT_H_
#define LYNX_PLANNER_PROGRAM_ARENA_LAYOUT_H_

#include "planner/program/action.h"
#include "planner/program/memory_model.h"

namespace lynx {

// Sets the offsets and `arena` of a plan whose buffers and live_peak FoldLiveness has made from `program`. Looks for
// nothing smaller once the arena is at most `enough`. With the arena that comes out as `enough` the same comes out again.
void LayOut(const Program& program, Bytes enough, MemoryPlan& plan);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_ARENA_LAYOUT_H_
