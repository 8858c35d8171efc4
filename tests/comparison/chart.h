// Small charts as SVG text: a grid of panels with axes, lines or bars, and a legend. Colours follow the reader's light
// or dark scheme; lines also differ in their dashes. Pure; thread-safe.
#ifndef LYNX_TESTS_COMPARISON_CHART_H_
#define LYNX_TESTS_COMPARISON_CHART_H_

#include <string>
#include <utility>
#include <vector>

namespace lynx::comparison {

inline constexpr int kSeriesStyles = 6;

// Points in data units, joined by a line.
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
  bool bars = false;  // bars from the bottom of the panel to each point, instead of lines
};

struct LegendEntry {
  int style = 0;
  std::string text;
};

struct Chart {
  std::string title;  // for people who cannot see the chart
  int columns = 1;
  int panel_width = 215, panel_height = 180;  // pixels, with axes
  std::vector<Panel> panels;                  // row by row
  std::vector<LegendEntry> legend;
  bool legend_in_grid = false;  // in the cell after the last panel, instead of in a line below all panels
};

std::string SvgOf(const Chart& chart);

}  // namespace lynx::comparison

#endif  // LYNX_TESTS_COMPARISON_CHART_H_
