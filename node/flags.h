// Flags of a daemon: --name VALUE or --name=VALUE, and --name alone for a switch. Each value is written into a variable of the
// caller. Not thread-safe.
#ifndef LYNX_NODE_FLAGS_H_
#define LYNX_NODE_FLAGS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace lynx {

struct Flag {
  std::string name;                                   // without the dashes
  std::variant<std::string*, int64_t*, bool*> value;  // the variable, which holds the default
  std::string help;
};

// Every argument must be one of the flags, and each flag may occur once. InvalidArgument names the argument and the flag that
// was probably meant.
absl::Status ParseFlags(const std::vector<std::string>& arguments, const std::vector<Flag>& flags);

// Text for --help: one line per flag with its default: "--node NAME   ...".
std::string FlagsText(const std::vector<Flag>& flags);

// Parses the command line for main. --help and --version print and end the process with code 0; wrong flags end it with code 2
// and a sentence on standard error.
void ParseCommandLine(int argc, char** argv, const std::string& program, const std::string& purpose,
                      const std::vector<Flag>& flags);

}  // namespace lynx

#endif  // LYNX_NODE_FLAGS_H_
