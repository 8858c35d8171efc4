// CommandTree: lynxctl's verbs and options as data. Help, man pages, the reference page and completions are made from
// it.
#ifndef LYNX_CLI_SURFACE_COMMAND_TREE_H_
#define LYNX_CLI_SURFACE_COMMAND_TREE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lynx::cli {

// What kind of thing a value is, for completion.
enum class ValueKind : uint8_t { kNone, kText, kFile, kJob, kNode, kQueue, kUser, kContext };

struct CommandOption {
  std::vector<std::string> names;  // "-f", "--file"; a positional argument has only its name
  std::string help;
  ValueKind value = ValueKind::kNone;  // kNone: a flag
  std::vector<std::string> choices;    // all possible values; empty: not a fixed set
  std::string fallback;                // the default as text; "" if help says it or there is no default
  bool required = false;
};

struct CommandTree {
  std::string name;
  std::string help;
  std::vector<CommandOption> arguments;  // the positional arguments
  std::vector<CommandOption> options;    // the program's options are valid with every verb
  std::vector<CommandTree> verbs;
};

}  // namespace lynx::cli

#endif  // LYNX_CLI_SURFACE_COMMAND_TREE_H_
