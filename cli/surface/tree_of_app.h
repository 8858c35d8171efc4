// Makes the CommandTree from the options that CLI11 knows. One thread.
#ifndef LYNX_CLI_SURFACE_TREE_OF_APP_H_
#define LYNX_CLI_SURFACE_TREE_OF_APP_H_

#include <CLI/CLI.hpp>

#include "cli/surface/command_tree.h"

namespace lynx::cli {

CommandTree TreeOf(const CLI::App& app);
// Gives the value of each option of the app and its verbs a name ("FILE", "JOB"), so that --help shows this name.
void NameValues(CLI::App& app);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SURFACE_TREE_OF_APP_H_
