// RunCommands: runs short-lived helper programs side by side and collects what they print. All of them together have
// one time limit; at its end, or when `cancel` is raised, those that still run are killed. Blocks the calling thread;
// thread-safe.
#ifndef LYNX_NODE_COMMAND_H_
#define LYNX_NODE_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/units.h"
#include "node/wake.h"

namespace lynx {

struct CommandResult {
  // OK: exit code 0. NotFound, PermissionDenied: could not be started. DeadlineExceeded: killed at the limit.
  // Cancelled. Internal: another exit code or a signal; the text ends in the last line of its standard error.
  // ResourceExhausted: it printed more than 4 MiB.
  absl::Status status;
  std::string output;  // standard output
};

// One result per command, in order. Each argv[0] is a path. `input`: what each of them reads as its standard input.
std::vector<CommandResult> RunCommands(const std::vector<std::vector<std::string>>& commands, Nanos limit,
                                       const WakeEvent& cancel, const std::string& input = "");

// The last line that is not blank, without its line end; at most `limit` bytes. "" when there is none.
std::string LastLine(const std::string& text, size_t limit = 500);

}  // namespace lynx

#endif  // LYNX_NODE_COMMAND_H_
