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

  // The value for a step of `microbatches`, from the values for `fewer` and `more` microbatches. The value may be a time or a
  // number of actions.
  int64_t Extrapolated(int32_t microbatches, int64_t of_fewer, int64_t of_more) const;
  Nanos Extrapolated(int32_t microbatches, Nanos of_fewer, Nanos of_more) const {
    return Nanos(Extrapolated(microbatches, of_fewer.value, of_more.value));
  }
};

// nullopt: two shorter steps would have more microbatches together than the whole step, or its schedule has no steady state.
std::optional<ShorterSteps> ShorterStepsOf(const ParallelLayout& layout, int32_t microbatches);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_SHORTER_STEPS_H_
