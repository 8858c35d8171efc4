// The options of the verbs that hold jobs, set queues and take nodes out of use. Only for main.cc.
#ifndef LYNX_CLI_SCHEDULE_OPTIONS_H_
#define LYNX_CLI_SCHEDULE_OPTIONS_H_

#include "cli/verbs/commands.h"

namespace CLI {
class App;
}

namespace lynx::cli {

// Adds the verbs to `app`. When `app` parses one of them, it runs and leaves its exit code in `code`. `global` and `code` must
// outlive `app`.
void AddScheduleCommands(CLI::App& app, const GlobalOptions& global, int& code);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SCHEDULE_OPTIONS_H_
