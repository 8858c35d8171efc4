// Finds the command of a script that starts the training, and how many devices it starts it on. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_LAUNCH_H_
#define LYNX_CLI_FRAMEWORKS_LAUNCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/frameworks/shell_script.h"

namespace lynx::cli {

struct Launch {
  std::string place;                   // "FILE:LINE", for errors
  std::string program;                 // its file without folders, such as "pretrain_gpt.py"; "" if there is none
  std::vector<std::string> arguments;  // the words after the name of the program
  int32_t devices = 0;                 // 0: neither the command nor the script says how many
};

// `text` is the whole script, for the lines of #SBATCH and for the comment of Lynx's own exports. The command is the one that
// names a program that ends in ".py" and has arguments; `mark` is an argument that tells it from others ("--num-layers").
// Without such a command: the words of a file that has only arguments, or of its arrays, as in Lynx's own exports. `devices`:
// the number of devices, if the user gives it; 0 = as the command or the script says. InvalidArgument: there is no such
// command, there are several, or the number of devices cannot be read.
absl::StatusOr<Launch> FindLaunch(const ShellScript& script, const std::string& text, const std::string& file,
                                  const std::string& mark, int32_t devices);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_LAUNCH_H_
