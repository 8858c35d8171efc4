// The files of planner/report/page/, which the build compiles in. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_PAGE_TEXT_H_
#define LYNX_PLANNER_REPORT_PAGE_TEXT_H_

#include <string_view>

namespace lynx {

// ---- For every page ----
std::string_view PageTemplate();  // page.html, with {{name}} where text is inserted: see PageDocument
std::string_view PageStyle();     // page.css
std::string_view SharedScript();  // shared.js: what all other scripts use

// ---- The view of a plan ----
// view.html: the sections of the view. Each element with data-part is the place of a part of PlanPageParts. A page whose script
// makes the view has this text in a <template id="plan-view">.
std::string_view PlanView();
// data.js timeline.js interaction.js memory.js view.js, one after another: mountPlan. Needs SharedScript.
std::string_view PlanViewScript();

// chart.js: drawFrontier, a chart of step times over memory. Needs SharedScript.
std::string_view ChartScript();

// ---- The page of one plan ----
std::string_view PlanPageBody();  // plan.html, with {{name}} where text is inserted

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_PAGE_TEXT_H_
