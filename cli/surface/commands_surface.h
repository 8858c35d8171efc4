// The verbs of lynxctl that concern lynxctl itself: its pages and completions. They use its CommandTree. Each prints to
// standard output and returns an exit code. One thread.
#ifndef LYNX_CLI_SURFACE_COMMANDS_SURFACE_H_
#define LYNX_CLI_SURFACE_COMMANDS_SURFACE_H_

#include <string>

#include "cli/surface/command_tree.h"
#include "cli/verbs/commands.h"

namespace lynx::cli {

// Prints the names of `kind` (completion.h), one per line: contexts of this machine, or names that the server knows. Prints no
// names of the server if it does not answer within a second.
int CompleteNames(const GlobalOptions& global, const std::string& kind);
int Completion(const std::string& shell, const CommandTree& tree);
// Prints the page of the verb ("queue-set"; "" = lynxctl's own), or writes all pages into the folder.
int Man(const std::string& verb, const std::string& folder, const std::string& version, const CommandTree& tree);
int Reference(const CommandTree& tree);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SURFACE_COMMANDS_SURFACE_H_
