// CommandTree: what lynxctl can be asked, as data: help, man pages, the reference page and completions are all made from it.
#ifndef LYNX_CLI_SURFACE_COMMAND_TREE_H_
#define LYNX_CLI_SURFACE_COMMAND_TREE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lynx {

// What may stand for a value, for completion.
enum class ValueKind : uint8_t { kNone, kText, kFile, kJob, kNode, kQueue, kUser, kContext };

struct CommandOption {
  std::vector<std::string> names;  // "-f", "--file"; of a positional argument its name alone
  std::string help;
  ValueKind value = ValueKind::kNone;  // kNone: a flag
  std::vector<std::string> choices;    // all values that there are; empty: others
  std::string fallback;                // the default, as text; "" where help says it or there is none
  bool required = false;
};

struct CommandTree {
  std::string name;
  std::string help;
  std::vector<CommandOption> arguments;  // positional
  std::vector<CommandOption> options;    // those of the program go with every verb
  std::vector<CommandTree> verbs;
};

}  // namespace lynx

#endif  // LYNX_CLI_SURFACE_COMMAND_TREE_H_
