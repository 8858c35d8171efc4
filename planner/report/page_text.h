// The files of planner/report/page/, which the build compiles in. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_PAGE_TEXT_H_
#define LYNX_PLANNER_REPORT_PAGE_TEXT_H_

#include <string_view>

namespace lynx {

std::string_view PageTemplate();  // page.html, with {{name}} where text is inserted
std::string_view PageStyle();     // page.css
std::string_view PageScript();    // data.js timeline.js interaction.js memory.js main.js, one after another

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_PAGE_TEXT_H_
