// The report's own template and style, in addition to the style of plan pages (planner/report/page_text.h).
#ifndef LYNX_REPORT_REPORT_STYLE_H_
#define LYNX_REPORT_REPORT_STYLE_H_

#include <string_view>

namespace lynx {

std::string_view ReportTemplate();
std::string_view ReportStyle();

}  // namespace lynx

#endif  // LYNX_REPORT_REPORT_STYLE_H_
