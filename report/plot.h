// Plots as SVG elements that stand in a page: no script, colours from the page's style, a title and a description for those who
// do not see them. Coordinates are of a drawing kPlotWidth wide, which the page scales. Pure; thread-safe.
#ifndef LYNX_REPORT_PLOT_H_
#define LYNX_REPORT_PLOT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lynx {

inline constexpr double kPlotWidth = 1200;

// A coordinate, with no more digits than can be seen.
std::string Coordinate(double value);

// Round numbers that divide low..high into about `count` parts, within it. low < high.
std::vector<double> Ticks(double low, double high, int count);

// What a number on an axis reads.
using AxisText = std::function<std::string(double)>;

struct Axis {
  double low = 0, high = 1;
  double from = 0, to = 1;  // coordinates of low and high
  double At(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

// <svg class="plot"> with title and description around `content`, in an element that scrolls where the window is narrower than
// can be read.
std::string SvgPlot(const std::string& title, const std::string& description, double height, const std::string& content);
std::string SvgRect(const std::string& classes, double x, double y, double width, double height, const std::string& title = "");
std::string SvgText(const std::string& classes, double x, double y, const std::string& text);
std::string SvgLine(const std::string& classes, double x1, double y1, double x2, double y2, const std::string& title = "");
// A polyline; empty for no points.
std::string SvgPath(const std::string& classes, const std::vector<std::pair<double, double>>& points);
// Grid lines with their numbers: under the plot from `top` to `bottom`, and left of it from `left` to `right`.
std::string GridBelow(const Axis& x, double top, double bottom, const AxisText& text, int count = 8);
std::string GridLeft(const Axis& y, double left, double right, const AxisText& text, int count = 4);

}  // namespace lynx

#endif  // LYNX_REPORT_PLOT_H_
