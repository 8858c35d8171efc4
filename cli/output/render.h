// Pages and lines about jobs, for people. Pure functions from messages to text; thread-safe.
#ifndef LYNX_CLI_OUTPUT_RENDER_H_
#define LYNX_CLI_OUTPUT_RENDER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "common/units.h"
#include "lynx/v1/jobs.pb.h"
#include "report/texts.h"

namespace lynx::cli {

// True if `fd` is a terminal that can move its cursor. TERM=dumb says that it cannot.
bool IsTerminal(int fd);

// The colors of a terminal. No color if NO_COLOR is set or the output is not such a terminal.
struct Style {
  bool color = false;
};
Style StyleOf(int fd);

// Returns a table. Each column is as wide as its widest cell, two spaces stand between columns, and no line ends with spaces.
// Rows[0] is the header.
std::string TableText(const std::vector<std::vector<std::string>>& rows);

std::string Colored(v1::JobState state, const std::string& text, Style style);

// One job in full: its state, the plan in one table, predicted next to measured values, losses, checkpoint, and its events if
// there are any. `now`: Unix time, for ages.
std::string JobPage(const v1::Job& job, Style style, Nanos now);
// One line of progress, at most `width` columns: "step 120/400 [=====>    ] 30%  loss 2.310  12.3k tok/s  ETA 1m10s".
std::string ProgressLine(const v1::Job& job, int width);
// One event as a line with its newline: `time`, state, kind, reason. If that is more than `width` columns, the reason stands on
// lines below. If the rest is still too wide, the date, which is all of `time` before its last space, is left out.
std::string EventLine(const v1::JobEvent& event, const std::string& time, size_t width, Style style);

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_RENDER_H_
