// Draws small charts as SVG text: a grid of panels with axes, lines or bars, and a legend. Colours follow the light or dark
// scheme of the reader. Lines also differ in their dashes. Pure; thread-safe.
#ifndef LYNX_TESTS_COMPARISON_CHART_H_
#define LYNX_TESTS_COMPARISON_CHART_H_

#include <string>
#include <utility>
#include <vector>

namespace lynx::comparison {

inline constexpr int kSeriesStyles = 7;

// Points in the units of the data. A line joins them.
struct Series {
  int style = 0;  // 0 (the strongest) to kSeriesStyles - 1
  std::vector<std::pair<double, double>> points;
};

// A value at which an axis has a line and a text.
struct Tick {
  double at = 0;
  std::string text;
};

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<Tick> ticks;
  std::string title;
};

struct Panel {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  bool bars = false;  // true: a bar from the bottom of the panel to each point, instead of a line
};

struct LegendEntry {
  int style = 0;
  std::string text;
};

struct Chart {
  std::string title;  // a text for people who cannot see the chart
  int columns = 1;
  int panel_width = 215, panel_height = 180;  // in pixels, including the axes
  std::vector<Panel> panels;                  // row by row
  std::vector<LegendEntry> legend;
  // True: the legend is in the cell after the last panel. False: it is in a line below all panels.
  bool legend_in_grid = false;
};

std::string SvgOf(const Chart& chart);

}  // namespace lynx::comparison

#endif  // LYNX_TESTS_COMPARISON_CHART_H_
