// The phase of lowering for ZeRO (see state_sharing.h): it shards model states among the ranks that hold the same weights.
// Pure.
//
// ZeRO-3. A *visit* is a sequence of consecutive compute actions that use the weights of one layer. The gather of a layer's
// weights starts when the previous visit begins, and its wait comes before the layer's own visit. So each gather has the time
// of one layer. If one of the last two visits was to the same layer, its weights are still in memory and are not gathered
// again. Gathered weights are freed after the last action that reads them before the layer's next gather.
//
// ZeRO-2 and ZeRO-3. The reduction of a layer's gradients of a microbatch starts after the last action that adds to these
// gradients. Its wait comes before the start of the next reduction. So each reduction has the time of one layer, and the
// gradients of two layers are in memory. The group runs one transfer after another, so a wait also waits for all earlier
// transfers.
//
// ZeRO-1 and ZeRO-2. The weights of all layers are gathered after the optimizer. No other work runs at the same time.
#ifndef LYNX_PLANNER_LOWER_LOWER_SHARING_H_
#define LYNX_PLANNER_LOWER_LOWER_SHARING_H_

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// Changes `program`. It must have been lowered for ranks that shard at most optimizer states, and it must not gather updated
// weights. If ReducesEachMicrobatch is true, it must not contain reductions.
Program ShareStates(Program program, const StageContext& context);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_SHARING_H_
