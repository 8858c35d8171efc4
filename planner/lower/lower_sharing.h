// The lowering pass that shards model states among the ranks that hold the same weights (ZeRO; see state_sharing.h).
// Pure.
//
// ZeRO-3. The program visits layers: a visit is a run of compute actions on weights of one layer. A layer's gather starts
// when the previous visit begins, and is waited for before its own visit, so each gather has the time of one layer. The
// weights of the last two visits are still present. Gathered weights are free after the last reader of the visit.
//
// ZeRO-2 and -3. The reduction of a layer's gradients of a microbatch starts after the last action that adds to them, and
// is waited for before the next reduction starts. So each reduction has the time of one layer, and two layers' gradients
// are present. The group runs one transfer after another, so a wait also waits for all earlier transfers.
//
// ZeRO-1 and -2. All layers' weights are gathered after the optimizer, with nothing beside.
#ifndef LYNX_PLANNER_LOWER_LOWER_SHARING_H_
#define LYNX_PLANNER_LOWER_LOWER_SHARING_H_

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// `program` must be lowered as for ranks that share at most optimizer states, without the gather of updated weights. If
// ReducesEachMicrobatch, it must not contain reductions.
Program ShareStates(Program program, const StageContext& context);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_SHARING_H_
