// The layout of the arena: an offset for every buffer instance, such that two instances that live at the same time never
// share a byte. Pure; thread-safe; deterministic.
#ifndef LYNX_PLANNER_PROGRAM_ARENA_LAYOUT_H_
#define LYNX_PLANNER_PROGRAM_ARENA_LAYOUT_H_

#include "planner/program/action.h"
#include "planner/program/memory_model.h"

namespace lynx {

// Sets the offsets and `arena` of a plan. FoldLiveness must have computed the plan's buffers and live_peak from `program`. The
// function stops looking for a smaller arena once the arena is at most `enough`. A second call, with the resulting arena as
// `enough`, gives the same result.
void LayOut(const Program& program, Bytes enough, MemoryPlan& plan);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_ARENA_LAYOUT_H_
