// TopScreen: a cluster at a glance, for `lynxctl top`: what is used, which jobs train how fast, what waits and why. Pure;
// thread-safe.
#ifndef LYNX_CLI_OUTPUT_TOP_SCREEN_H_
#define LYNX_CLI_OUTPUT_TOP_SCREEN_H_

#include <cstddef>
#include <string>
#include <vector>

#include "common/units.h"
#include "lynx/v1/cluster.pb.h"
#include "lynx/v1/jobs.pb.h"

namespace lynx {

struct TopView {
  std::string server;  // its address
  v1::ListNodesResponse nodes;
  std::vector<v1::Job> jobs;  // that have not ended: those with devices, then those that wait, each newest first
  bool more_active = false;   // older ones of these are left out
  bool more_waiting = false;
  std::vector<v1::JobCurves> curves;  // by job; empty of those that do not train
  std::vector<v1::Queue> queues;
  std::string problem;  // why this is not fresh; "" = it is
  Nanos now;            // Unix time
};

struct TopStyle {
  size_t width = 100;  // columns; longer lines are cut
  size_t height = 0;   // lines; 0 = as many as there are
  bool color = false;
  bool unicode = true;
};

// Lines, each with its newline; jobs that train come first.
std::string TopScreen(const TopView& view, const TopStyle& style);

// The values as `width` small bars, the newest at the right, each the mean of those that fall to it; fewer values give fewer
// bars. `from_zero`: the lowest bar stands for 0, else for the smallest value. Values that are no numbers are left out.
std::string Sparkline(const std::vector<double>& values, size_t width, bool from_zero, bool unicode);

}  // namespace lynx

#endif  // LYNX_CLI_OUTPUT_TOP_SCREEN_H_
