// The CommandTree of the program's options as CLI11 knows them. One thread.
#ifndef LYNX_CLI_SURFACE_TREE_OF_APP_H_
#define LYNX_CLI_SURFACE_TREE_OF_APP_H_

#include <CLI/CLI.hpp>

#include "cli/surface/command_tree.h"

namespace lynx {

CommandTree TreeOf(const CLI::App& app);
// Names what stands for the value of each option of the app and its verbs ("FILE", "JOB"), so that --help says it too.
void NameValues(CLI::App& app);

}  // namespace lynx

#endif  // LYNX_CLI_SURFACE_TREE_OF_APP_H_
