// The step of many microbatches, from the steps of fewer. In the middle of a step, all ranks repeat the same work: the slots of
// some microbatches, the period, take the same time again and again. So each further period makes the step longer by the same
// time. The beginning and the end of the step do not depend on the number of microbatches. The step of M microbatches then
// follows from two shorter steps that differ by one period. A step of a fixed schedule, or of GPipe (where the microbatches in
// flight depend on M), is never shortened. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_SHORTER_STEPS_H_
#define LYNX_PLANNER_PROBLEM_SHORTER_STEPS_H_

#include <cstdint>
#include <optional>

#include "common/units.h"
#include "planner/problem/layout.h"

namespace lynx {

// Two numbers of microbatches below M. Both leave the same remainder as M when they are divided by `more - fewer`.
struct ShorterSteps {
  int32_t fewer = 0, more = 0;

  // The step of `microbatches`, from the steps of `fewer` and `more`.
  Nanos Extrapolated(int32_t microbatches, Nanos step_of_fewer, Nanos step_of_more) const;
};

// nullopt: two shorter steps would have more microbatches together than the whole step, or its schedule has no steady state.
std::optional<ShorterSteps> ShorterStepsOf(const ParallelLayout& layout, int32_t microbatches);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_SHORTER_STEPS_H_
