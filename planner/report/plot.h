// Plots as SVG elements of a page: no script, colours from the page's style, and a title and a description for people who do
// not see the plot. Coordinates belong to a drawing of width kPlotWidth, which the page scales. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_PLOT_H_
#define LYNX_PLANNER_REPORT_PLOT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lynx {

inline constexpr double kPlotWidth = 1200;

// The text of a coordinate, with only as many digits as are visible.
std::string Coordinate(double value);

// Round numbers within [low, high] that divide it into about `count` parts. low < high.
std::vector<double> Ticks(double low, double high, int count);

// How numbers of an axis are written. They are round in this unit.
struct AxisText {
  std::function<std::string(double)> text;  // of a number in this unit
  double unit = 1;
};
AxisText InMillis();            // of nanoseconds: "12.5 ms"
AxisText InBytes(double most);  // of bytes: "1.5 GiB"; `most` decides the unit

struct Axis {
  double low = 0, high = 1;
  double from = 0, to = 1;  // coordinates of low and high
  double At(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

// The axes of a plot of kPlotWidth with numbers below and at the left.
inline constexpr double kPlotLeft = 90, kPlotRight = kPlotWidth - 12, kPlotBottom = 250, kPlotHeight = kPlotBottom + 26;

// An <svg class="plot"> with title, description and `content`, inside an element that scrolls if the window is too narrow.
std::string SvgPlot(const std::string& title, const std::string& description, double height, const std::string& content);
std::string SvgRect(const std::string& classes, double x, double y, double width, double height, const std::string& title = "");
std::string SvgText(const std::string& classes, double x, double y, const std::string& text);
std::string SvgLine(const std::string& classes, double x1, double y1, double x2, double y2, const std::string& title = "");
std::string SvgCircle(const std::string& classes, double x, double y, double radius, const std::string& title);
// A polyline; empty text if there are no points.
std::string SvgPath(const std::string& classes, const std::vector<std::pair<double, double>>& points);
// Grid lines with their numbers. GridBelow: vertical lines from `top` to `bottom`, numbers below. GridLeft: horizontal lines
// from `left` to `right`, numbers at the left.
std::string GridBelow(const Axis& x, double top, double bottom, const AxisText& text, int count = 8);
std::string GridLeft(const Axis& y, double left, double right, const AxisText& text, int count = 4);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_PLOT_H_
