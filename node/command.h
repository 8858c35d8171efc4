// RunCommands: runs short helper programs in parallel and collects their output. All programs share one time limit. When it is
// over, or when `cancel` is raised, the programs that still run are killed. Blocks the calling thread; thread-safe.
#ifndef LYNX_NODE_COMMAND_H_
#define LYNX_NODE_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/units.h"
#include "node/wake.h"

namespace lynx {

struct CommandResult {
  // How the program ended. OK: exit code 0. NotFound, PermissionDenied: the program could not be started. DeadlineExceeded: it
  // was killed at the time limit. Cancelled: it was killed because of `cancel`. ResourceExhausted: it printed more than 4 MiB.
  // Internal: another exit code or a signal; the text ends with the last line of its standard error.
  absl::Status status;
  std::string output;  // what the program wrote to standard output
};

// Returns one result per command, in order. Each argv[0] is a path. `input`: standard input of each program.
std::vector<CommandResult> RunCommands(const std::vector<std::vector<std::string>>& commands, Nanos limit,
                                       const WakeEvent& cancel, const std::string& input = "");

// The last line that is not blank, without its line end, at most `limit` bytes; empty: there is no such line.
std::string LastLine(const std::string& text, size_t limit = 500);

}  // namespace lynx

#endif  // LYNX_NODE_COMMAND_H_
