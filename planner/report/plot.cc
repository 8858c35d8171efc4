// See plot.h.
#include "planner/report/plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/units.h"
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
  constexpr double kFactors[] = {1, 2, 5, 10};
  const double step = magnitude * *std::find_if(kFactors, std::end(kFactors) - 1,
                                                [&](double factor) { return factor * magnitude >= rough * 0.999; });
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::ceil(low / step - 1e-9));
  for (int64_t i = first; static_cast<double>(i) * step <= high + step * 1e-9; ++i)
    ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

AxisText InMillis() {
  return {[](double value) { return absl::StrCat(Coordinate(value), " ms"); }, 1e6};
}

AxisText InBytes(double most) {
  const std::pair<Bytes, const char*> units[] = {{kGiB, "GiB"}, {kMiB, "MiB"}, {kKiB, "KiB"}, {Bytes(1), "B"}};
  const auto* unit = std::begin(units);
  while (unit->first.value > 1 && most < static_cast<double>(unit->first.value)) ++unit;
  return {[name = unit->second](double amount) { return absl::StrFormat("%.4g %s", amount, name); },
          static_cast<double>(unit->first.value)};
}

std::string SvgPlot(const std::string& title, const std::string& description, double height, const std::string& content) {
  return absl::StrCat("<div class=\"plots\" tabindex=\"0\" role=\"group\" aria-label=\"", HtmlEscaped(title),
                      "\"><svg class=\"plot\" role=\"img\" viewBox=\"0 0 ", Coordinate(kPlotWidth), " ", Coordinate(height),
                      "\"><title>", HtmlEscaped(title), "</title><desc>", HtmlEscaped(description), "</desc>\n", content,
                      "</svg></div>\n");
}

namespace {

// An element with these attributes, and a title if there is one.
std::string Element(const char* tag, const std::string& classes,
                    std::initializer_list<std::pair<const char*, double>> attributes, const std::string& title) {
  std::string open = absl::StrCat("<", tag, " class=\"", classes, "\"");
  for (const auto& [name, value] : attributes) absl::StrAppend(&open, " ", name, "=\"", Coordinate(value), "\"");
  return title.empty() ? open + "/>\n" : absl::StrCat(open, "><title>", HtmlEscaped(title), "</title></", tag, ">\n");
}

}  // namespace

std::string SvgRect(const std::string& classes, double x, double y, double width, double height, const std::string& title) {
  return Element("rect", classes, {{"x", x}, {"y", y}, {"width", width}, {"height", height}}, title);
}

std::string SvgText(const std::string& classes, double x, double y, const std::string& text) {
  return absl::StrCat("<text class=\"", classes, "\" x=\"", Coordinate(x), "\" y=\"", Coordinate(y), "\">", HtmlEscaped(text),
                      "</text>\n");
}

std::string SvgLine(const std::string& classes, double x1, double y1, double x2, double y2, const std::string& title) {
  return Element("line", classes, {{"x1", x1}, {"y1", y1}, {"x2", x2}, {"y2", y2}}, title);
}

std::string SvgCircle(const std::string& classes, double x, double y, double radius, const std::string& title) {
  return Element("circle", classes, {{"cx", x}, {"cy", y}, {"r", radius}}, title);
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
  for (const double tick : Ticks(x.low / text.unit, x.high / text.unit, count)) {
    const double at = x.At(tick * text.unit);
    absl::StrAppend(&grid, SvgLine("grid", at, top, at, bottom), SvgText("middle", at, bottom + 17, text.text(tick)));
  }
  return grid;
}

std::string GridLeft(const Axis& y, double left, double right, const AxisText& text, int count) {
  std::string grid;
  for (const double tick : Ticks(y.low / text.unit, y.high / text.unit, count)) {
    const double at = y.At(tick * text.unit);
    absl::StrAppend(&grid, SvgLine("grid", left, at, right, at), SvgText("end", left - 8, at + 4, text.text(tick)));
  }
  return grid;
}

}  // namespace lynx
