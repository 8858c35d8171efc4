#include "planner/problem/shorter_steps.h"

#include <algorithm>

#include "planner/problem/stage_context.h"

namespace lynx {
namespace {

// Slots repeat after one microbatch (or group of a woven layout) per pipeline rank, or after two where waits alternate.
constexpr int32_t kPeriodPerRank = 2;
// The shorter steps have at least this number of periods. All warm-up passes, and the slots until waits repeat, need fewer.
constexpr int32_t kLeastPeriods = 3;

}  // namespace

int64_t ShorterSteps::Extrapolated(int32_t microbatches, int64_t of_fewer, int64_t of_more) const {
  const int64_t periods = (microbatches - more) / (more - fewer);
  return of_more + (of_more - of_fewer) * periods;
}

std::optional<ShorterSteps> ShorterStepsOf(const ParallelLayout& layout, int32_t microbatches) {
  if (layout.schedule == ScheduleKind::kCustom || layout.schedule == ScheduleKind::kGpipe) return std::nullopt;
  const int32_t pipes = PipelineOf(layout).pipes();
  const int32_t period = kPeriodPerRank * layout.pp * pipes * GroupOf(layout.weave);
  const int32_t fewer = kLeastPeriods * period + microbatches % period;
  const int32_t more = fewer + period;
  if (fewer + more > microbatches) return std::nullopt;
  return ShorterSteps{fewer, more};
}

}  // namespace lynx
