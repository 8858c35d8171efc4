// See plot.h.
#include "report/plot.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "planner/report/table.h"

namespace lynx {

std::string Coordinate(double value) {
  std::string text = absl::StrFormat("%.1f", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::vector<double> Ticks(double low, double high, int count) {
  LYNX_CHECK(count > 0);
  if (!(low < high) || !std::isfinite(high - low)) return {};
  const double rough = (high - low) / count;
  const double magnitude = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * magnitude;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * magnitude >= rough * 0.999) {
      step = factor * magnitude;
      break;
    }
  }
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::ceil(low / step - 1e-9));
  for (int64_t i = first; static_cast<double>(i) * step <= high + step * 1e-9; ++i)
    ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::string SvgPlot(const std::string& title, const std::string& description, double height, const std::string& content) {
  return absl::StrCat("<div class=\"plots\" tabindex=\"0\" role=\"group\" aria-label=\"", HtmlEscaped(title),
                      "\"><svg class=\"plot\" role=\"img\" viewBox=\"0 0 ", Coordinate(kPlotWidth), " ", Coordinate(height),
                      "\"><title>", HtmlEscaped(title), "</title><desc>", HtmlEscaped(description), "</desc>\n", content,
                      "</svg></div>\n");
}

std::string SvgRect(const std::string& classes, double x, double y, double width, double height, const std::string& title) {
  const std::string open = absl::StrCat("<rect class=\"", classes, "\" x=\"", Coordinate(x), "\" y=\"", Coordinate(y),
                                        "\" width=\"", Coordinate(width), "\" height=\"", Coordinate(height), "\"");
  return title.empty() ? open + "/>\n" : absl::StrCat(open, "><title>", HtmlEscaped(title), "</title></rect>\n");
}

std::string SvgText(const std::string& classes, double x, double y, const std::string& text) {
  return absl::StrCat("<text class=\"", classes, "\" x=\"", Coordinate(x), "\" y=\"", Coordinate(y), "\">", HtmlEscaped(text),
                      "</text>\n");
}

std::string SvgLine(const std::string& classes, double x1, double y1, double x2, double y2, const std::string& title) {
  const std::string open = absl::StrCat("<line class=\"", classes, "\" x1=\"", Coordinate(x1), "\" y1=\"", Coordinate(y1),
                                        "\" x2=\"", Coordinate(x2), "\" y2=\"", Coordinate(y2), "\"");
  return title.empty() ? open + "/>\n" : absl::StrCat(open, "><title>", HtmlEscaped(title), "</title></line>\n");
}

std::string SvgPath(const std::string& classes, const std::vector<std::pair<double, double>>& points) {
  if (points.empty()) return "";
  std::string path;
  for (const auto& [x, y] : points) absl::StrAppend(&path, path.empty() ? "M" : "L", Coordinate(x), " ", Coordinate(y));
  if (points.size() == 1) absl::StrAppend(&path, "h0.1");  // a dot, drawn by the round line cap
  return absl::StrCat("<path class=\"", classes, "\" d=\"", path, "\"/>\n");
}

std::string GridBelow(const Axis& x, double top, double bottom, const AxisText& text, int count) {
  std::string grid;
  for (const double tick : Ticks(x.low, x.high, count)) {
    absl::StrAppend(&grid, SvgLine("grid", x.At(tick), top, x.At(tick), bottom),
                    SvgText("middle", x.At(tick), bottom + 17, text(tick)));
  }
  return grid;
}

std::string GridLeft(const Axis& y, double left, double right, const AxisText& text, int count) {
  std::string grid;
  for (const double tick : Ticks(y.low, y.high, count)) {
    absl::StrAppend(&grid, SvgLine("grid", left, y.At(tick), right, y.At(tick)),
                    SvgText("end", left - 8, y.At(tick) + 4, text(tick)));
  }
  return grid;
}

}  // namespace lynx
