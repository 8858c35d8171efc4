// Reads a bash script as far as its text determines the words of its commands, without running anything. People start training
// with such scripts: variables, arrays such as ARGS=( ... ), ${TP:-4}, $((A * B)), lines that end in a backslash, and tests
// such as [[ "$X" == y ]] around assignments.
//
// What the text does not determine (variables that only the environment sets, $(commands), loops) becomes an unknown part of a
// word. It is an error only where the value is needed. The functions are pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_SHELL_SCRIPT_H_
#define LYNX_CLI_FRAMEWORKS_SHELL_SCRIPT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx::cli {

// A command as the shell would start it, after all expansions.
struct ShellCommand {
  int32_t line = 1;
  std::vector<std::string> words;
};

struct ShellArray {
  std::string name;
  std::vector<std::string> words;
};

struct ShellScript {
  std::vector<ShellCommand> commands;  // in the script's order, without assignments, tests and commands that never run
  std::vector<std::string> sourced;    // files that the script executes in its own shell; they are not read
  std::vector<ShellArray> arrays;      // as they are at the end of the script, in the order of their first assignment
};

// `given`: values of variables. They take the place of what the script assigns; positional parameters are named "1", "2", ...
// InvalidArgument: "FILE:LINE: what is wrong; what to do". A given variable that the script does not mention is an error.
absl::StatusOr<ShellScript> ReadShellScript(const std::string& text, const std::string& file,
                                            const std::map<std::string, std::string>& given);

// Splits one line into words as a shell does. Unknown parts stay unknown. InvalidArgument: a quote is not closed.
absl::StatusOr<std::vector<std::string>> SplitShellWords(const std::string& line);

// True if the text does not determine a part of the word.
bool HasUnknown(const std::string& word);
// What the first unknown part of the word stands for, such as "$DATA" or "$(hostname)".
std::string FirstUnknown(const std::string& word);
// True if the word stands for any number of words. A test that only a run can decide may add these words to a variable.
bool IsUnknownRest(const std::string& word);
// Returns the word as people should see it: unknown parts are written as in the script.
std::string ShownWord(const std::string& word);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_SHELL_SCRIPT_H_
