// HtmlPage: a plan as one self-contained page: headline figures, the timeline of the predicted step, where time and
// memory go, the plan and its policies. No network, no outside script; without a script the figures and tables
// remain. The page's own text, style and scripts are the files in planner/report/page/, compiled in. Pure;
// thread-safe.
#ifndef LYNX_PLANNER_REPORT_HTML_PAGE_H_
#define LYNX_PLANNER_REPORT_HTML_PAGE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "planner/report/timeline.h"

namespace lynx {

// Bounds of what a page holds, over all stages. Beyond them the begin and the end of the step are shown in detail and
// the rest as shares of intervals, which the page says.
struct PageLimits {
  size_t spans = 40'000;
  size_t share_columns = 36'000;
  size_t memory_points = 24'000;
};

// FailedPrecondition as MemoryOf. The same step gives the same bytes.
absl::StatusOr<std::string> HtmlPage(const PredictedStep& step, const PageLimits& limits = {});

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_HTML_PAGE_H_
