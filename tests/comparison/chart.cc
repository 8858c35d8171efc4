#include "tests/comparison/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/report/table.h"

namespace lynx::comparison {
namespace {

// The space around a panel's plot, in pixels.
constexpr double kLeft = 46, kRight = 10, kTop = 26, kBottom = 40;
constexpr double kLegendLine = 20;
constexpr double kBarWidth = 9;

// The colours of the styles; dark schemes have other colours. Every colour has a contrast of at least 3:1 to its background.
constexpr char kStyle[] = R"(<style>
  svg { --page: #ffffff; --ink: #1f2328; --faint: #59636e; --grid: #d8dee4;
        --s0: #0969da; --s1: #bc4c00; --s2: #1a7f37; --s3: #8250df; --s4: #57606a; --s5: #cf222e; --s6: #9a6700; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #0d1117; --ink: #e6edf3; --faint: #9198a1; --grid: #2d333b;
          --s0: #58a6ff; --s1: #f0883e; --s2: #56d364; --s3: #bc8cff; --s4: #a5adb7; --s5: #ff7b72; --s6: #d29922; }
  }
  text { font: 11px system-ui, sans-serif; fill: var(--ink); }
  .tick, .axis { fill: var(--faint); font-size: 10px; }
  .title { font-weight: 600; font-size: 12px; }
  .page { fill: var(--page); }
  .grid { stroke: var(--grid); }
  .line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
  .s0 { stroke: var(--s0); fill: var(--s0); } .s1 { stroke: var(--s1); fill: var(--s1); }
  .s2 { stroke: var(--s2); fill: var(--s2); } .s3 { stroke: var(--s3); fill: var(--s3); }
  .s4 { stroke: var(--s4); fill: var(--s4); } .s5 { stroke: var(--s5); fill: var(--s5); }
  .s6 { stroke: var(--s6); fill: var(--s6); }
  .line.s0 { stroke-width: 2.8; } .line.s1 { stroke-dasharray: 7 3; } .line.s2 { stroke-dasharray: 2 2; }
  .line.s3 { stroke-dasharray: 8 2 2 2; } .line.s4 { stroke-dasharray: 4 4; } .line.s5 { stroke-dasharray: none; }
  .line.s6 { stroke-dasharray: 1 3; }
  .line { fill: none !important; } .dot { stroke: none; } .bar { stroke: none; }
</style>
)";

std::string Text(double x, double y, const std::string& anchor, const std::string& type, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">%s</text>\n", x, y, anchor, type,
                         HtmlEscaped(text));
}

// Draws one panel. Its upper left corner is at (left, top).
class PanelSvg {
 public:
  PanelSvg(const Chart& chart, const Panel& panel, double left, double top)
      : panel_(panel), left_(left + kLeft), right_(left + chart.panel_width - kRight), top_(top + kTop),
        bottom_(top + chart.panel_height - kBottom) {}

  std::string Svg() const { return absl::StrCat(Axes(), panel_.bars ? Bars() : Lines()); }

 private:
  static double Share(const Axis& axis, double value) {
    if (axis.logarithmic) return std::log(value / axis.low) / std::log(axis.high / axis.low);
    return (value - axis.low) / (axis.high - axis.low);
  }
  double X(double value) const { return left_ + (right_ - left_) * Share(panel_.x, value); }
  double Y(double value) const { return bottom_ - (bottom_ - top_) * std::clamp(Share(panel_.y, value), 0.0, 1.0); }

  std::string Axes() const {
    std::string svg = Text(left_, top_ - 10, "start", "title", panel_.title);
    for (const Tick& tick : panel_.y.ticks) {
      absl::StrAppendFormat(&svg, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", left_, right_,
                            Y(tick.at), Y(tick.at));
      svg += Text(left_ - 5, Y(tick.at) + 3.5, "end", "tick", tick.text);
    }
    for (const Tick& tick : panel_.x.ticks) svg += Text(X(tick.at), bottom_ + 14, "middle", "tick", tick.text);
    if (!panel_.x.title.empty()) svg += Text((left_ + right_) / 2, bottom_ + 29, "middle", "axis", panel_.x.title);
    return svg;
  }

  std::string Lines() const {
    std::string svg;
    // The strongest style is drawn last, so that it is above the others.
    for (auto one = panel_.series.rbegin(); one != panel_.series.rend(); ++one) {
      std::string points, dots;
      for (const auto& [x, y] : one->points) {
        absl::StrAppendFormat(&points, "%s%.1f,%.1f", points.empty() ? "" : " ", X(x), Y(y));
        absl::StrAppendFormat(&dots, "<circle class=\"dot s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>\n", one->style, X(x), Y(y),
                              one->style == 0 ? "3" : "2");
      }
      absl::StrAppendFormat(&svg, "<polyline class=\"line s%d\" points=\"%s\"/>\n%s", one->style, points, dots);
    }
    return svg;
  }

  std::string Bars() const {
    std::string svg;
    const double count = static_cast<double>(panel_.series.size());
    for (size_t i = 0; i < panel_.series.size(); ++i) {
      const double shift = (static_cast<double>(i) - count / 2) * (kBarWidth + 1);
      for (const auto& [x, y] : panel_.series[i].points) {
        absl::StrAppendFormat(&svg, "<rect class=\"bar s%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                              panel_.series[i].style, X(x) + shift, Y(y), kBarWidth, bottom_ - Y(y));
      }
    }
    return svg;
  }

  const Panel& panel_;
  const double left_, right_, top_, bottom_;
};

std::string Sample(const LegendEntry& entry, bool bar, double x, double y) {
  const std::string mark = bar ? absl::StrFormat("<rect class=\"bar s%d\" x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\"/>\n",
                                                 entry.style, x + 16, y - 9)
                               : absl::StrFormat("<polyline class=\"line s%d\" points=\"%.1f,%.1f %.1f,%.1f\"/>\n", entry.style,
                                                 x, y - 4, x + 30, y - 4);
  return mark + Text(x + 36, y, "start", "", entry.text);
}

}  // namespace

std::string SvgOf(const Chart& chart) {
  const int panels = static_cast<int>(chart.panels.size());
  const int cells = panels + (chart.legend_in_grid ? 1 : 0);
  const int rows = (cells + chart.columns - 1) / chart.columns;
  const int width = chart.columns * chart.panel_width;
  const int height = rows * chart.panel_height + (chart.legend_in_grid ? 0 : static_cast<int>(kLegendLine) + 8);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n"
      "<title>%s</title>\n%s<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n",
      width, height, width, height, HtmlEscaped(chart.title), kStyle, width, height);
  const auto corner = [&](int cell) {
    return std::pair(static_cast<double>(cell % chart.columns * chart.panel_width),
                     static_cast<double>(cell / chart.columns * chart.panel_height));
  };
  for (int i = 0; i < panels; ++i) {
    const auto [x, y] = corner(i);
    svg += PanelSvg(chart, chart.panels[i], x, y).Svg();
  }
  const bool bars = !chart.panels.empty() && chart.panels.front().bars;
  for (size_t i = 0; i < chart.legend.size(); ++i) {
    const double line = static_cast<double>(i);
    if (chart.legend_in_grid) {
      const auto [x, y] = corner(panels);
      svg += Sample(chart.legend[i], bars, x + 24, y + kTop + 6 + line * kLegendLine);
    } else {
      svg += Sample(chart.legend[i], bars, kLeft + line * 160, height - 10);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace lynx::comparison
