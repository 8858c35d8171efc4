// The options of lynxctl about the server that it calls. Call once, from one thread.
#ifndef LYNX_CLI_CONNECTION_OPTIONS_H_
#define LYNX_CLI_CONNECTION_OPTIONS_H_

#include "cli/verbs/commands.h"

namespace CLI {
class App;
}

namespace lynx::cli {

// Adds --server, --context, --ca-file, --token-file, --no-context and --timeout to the program. Their values go to `global`,
// which must outlive `app`. If the verb has no use for one that is given, a note on standard error says so, because the
// caller expects something of it.
void AddConnectionOptions(CLI::App& app, GlobalOptions& global);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECTION_OPTIONS_H_
