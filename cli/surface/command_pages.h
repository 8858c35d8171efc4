// Makes pages from the command tree: the reference in Markdown, and manual pages in roff (man-pages(7)). Pure;
// thread-safe.
#ifndef LYNX_CLI_SURFACE_COMMAND_PAGES_H_
#define LYNX_CLI_SURFACE_COMMAND_PAGES_H_

#include <string>
#include <vector>

#include "cli/surface/command_tree.h"

namespace lynx::cli {

struct ManPage {
  std::string file;  // "lynxctl-queue-set.1"
  std::string text;
};

// The text of docs/cli.md. `closing`: the section about exit codes.
std::string CommandReference(const CommandTree& tree, const std::string& closing);
// A page for the program, and one for each verb that does something or has verbs of its own.
std::vector<ManPage> ManPages(const CommandTree& tree, const std::string& version, const std::string& closing);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SURFACE_COMMAND_PAGES_H_
