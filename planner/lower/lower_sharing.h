// The pass of the lowering that shares out model states among the ranks that hold the same weights (ZeRO; see
// state_sharing.h). Pure.
//
// ZeRO-3. The program visits layers: a visit is a run of compute actions on weights of one layer. A layer's gather starts
// when the visit before begins, and is waited for before its own, so each has the time of one layer. A layer that
// either of the last two visits was to is still there. What was gathered is free after the visit's last reader.
//
// ZeRO-2 and -3. A layer's gradients of a microbatch are reduced from behind the last action that adds to them, and
// waited for before the next reduction starts: each has the time of one layer, and two layers' gradients are there.
// The group runs one transfer after another, so a wait also waits for what was started before.
//
// ZeRO-1 and -2. All layers' weights are gathered after the optimizer, with nothing beside.
#ifndef LYNX_PLANNER_LOWER_LOWER_SHARING_H_
#define LYNX_PLANNER_LOWER_LOWER_SHARING_H_

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// `program`: as for ranks that share at most optimizer states, but for the weights' way back; with ReducesEachMicrobatch
// it must reduce nothing itself.
Program ShareStates(Program program, const StageContext& context);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_SHARING_H_
