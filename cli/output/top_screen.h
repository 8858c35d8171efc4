// TopScreen: an overview of a cluster for `lynxctl top`: what is used, how fast jobs train, which jobs wait and why.
// Pure; thread-safe.
#ifndef LYNX_CLI_OUTPUT_TOP_SCREEN_H_
#define LYNX_CLI_OUTPUT_TOP_SCREEN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/units.h"
#include "lynx/v1/cluster.pb.h"
#include "lynx/v1/jobs.pb.h"

namespace lynx::cli {

struct TopView {
  std::string server;  // address of the server
  v1::ListNodesResponse nodes;
  std::vector<v1::Job> jobs;  // jobs that have not ended: first those with devices, then those that wait; each newest first
  bool more_active = false;   // older jobs with devices are left out
  bool more_waiting = false;
  std::vector<v1::JobCurves> curves;  // one per job; empty for jobs that do not train
  std::vector<v1::Queue> queues;
  std::string problem;  // why the view is not current; "" = it is current
  Nanos now;            // Unix time
};

struct TopStyle {
  // Columns. In a table that is wider, reasons stand below their jobs, names are cut and columns are left out; other lines that
  // are longer are broken, and in the last resort cut.
  size_t width = 100;
  size_t height = 0;  // number of lines; 0 = no limit
  bool color = false;
  bool unicode = true;
};

// Returns the overview as lines, each with its newline. Jobs that train come first.
std::string TopScreen(const TopView& view, const TopStyle& style);

// What the lowest bar of a sparkline means.
enum class LowestBar : uint8_t { kZero, kSmallestValue };
enum class Glyphs : uint8_t { kAscii, kUnicode };
// Draws the values as at most `width` small bars, the newest at the right. Each bar is the mean of the values that fall
// into it; fewer values give fewer bars. Values that are not finite are left out.
std::string Sparkline(const std::vector<double>& values, size_t width, LowestBar lowest, Glyphs glyphs);

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_TOP_SCREEN_H_
