// The times of a shape's ops: as they were measured, or computed and scaled by what was measured of the same model. Pure;
// thread-safe.
#ifndef LYNX_PLANNER_COST_KNOWN_TIMES_H_
#define LYNX_PLANNER_COST_KNOWN_TIMES_H_

#include <array>

#include "common/units.h"
#include "planner/cost/hardware_profile.h"
#include "planner/problem/layer_graph.h"

namespace lynx {

using TimesOfOps = std::array<OpTimes, kOpCount>;  // the index is the Op

struct KnownTimes {
  TimesOfOps ops;
  // True if the times were measured for this shape, or for one that differs only in sequence parallelism or the skew of
  // experts.
  bool measured = false;
  Nanos optimizer_per_mega_parameter;  // see ShapeTimes; 0 if `measured` is false
};

// If the profile has no times of the shape, the times are computed (OpCost). If it has times of other shapes of the same model,
// the computed times are scaled by those of the nearest one.
KnownTimes KnownTimesOf(const HardwareProfile& profile, const LayerShape& shape);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_KNOWN_TIMES_H_
