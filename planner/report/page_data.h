// PageData writes the data that the page's script draws, as one JSON object. Times are in ticks (a tick is 1, 10, 100, ...
// nanoseconds). Spans are flat lists of numbers. Texts that every microbatch repeats are stored once. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_PAGE_DATA_H_
#define LYNX_PLANNER_REPORT_PAGE_DATA_H_

#include <string>
#include <vector>

#include "planner/report/html_page.h"
#include "planner/report/timeline.h"

namespace lynx {

// Everything that the page shows about one stage.
struct StageFacts {
  const StageTimeline& timeline;
  StageMemory memory;
  Bytes limit;  // see MemoryLimitOf
};

// The page counts time in ticks. If a step is long, its ticks are longer, so that the step has at most kMaxTicks ticks.
inline constexpr int64_t kMaxTicks = 1'000'000'000;

std::string PageData(const PredictedStep& step, const std::vector<StageFacts>& stages, const std::vector<TimeRange>& detail,
                     const PageLimits& limits);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_PAGE_DATA_H_
