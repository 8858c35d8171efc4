// HtmlPage writes a plan as one self-contained page: main figures, the timeline of the predicted step, the use of time and
// memory, the plan and its policies. The page uses no network and no external script. If scripts are off, the figures and
// tables are still shown. The page's own text, style and scripts are the files in planner/report/page/, which are compiled in
// (page_text.h). Pages that show several plans take the same parts. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_HTML_PAGE_H_
#define LYNX_PLANNER_REPORT_HTML_PAGE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/report/page_parts.h"
#include "planner/report/timeline.h"

namespace lynx {

// Limits for the contents of a page, over all stages. If a step is above these limits, only its begin and its end are shown in
// detail. For the time between, the page shows for each interval the share of time of each kind of work, and says so.
struct PageLimits {
  size_t spans = 40'000;
  size_t share_columns = 36'000;
  size_t memory_points = 24'000;
};

// A plan as parts of a page, each for the element whose data-part is its id. The ids, in this order: title, subtitle, chips,
// figures, legend, timeline_note, breakdown, memory_aside, memory, plan_table, policy_table, strands, profile_note, footer.
// timeline_note and strands may be empty.
struct PlanParts {
  std::vector<PagePart> parts;
  std::string data;  // what the page's script draws: one JSON object
};

// Both return FailedPrecondition in the same cases as MemoryOf. The same step always gives the same bytes.
absl::StatusOr<PlanParts> PlanPageParts(const PredictedStep& step, const PageLimits& limits = {});
absl::StatusOr<std::string> HtmlPage(const PredictedStep& step, const PageLimits& limits = {});

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_HTML_PAGE_H_
