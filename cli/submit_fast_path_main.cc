// lynxctl: the program that people call. It handles the most frequent command itself, quickly (quick_submit.h). For everything
// else, this process continues as the full program.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cli/connect/quick_submit.h"
#include "cli/output/exit_code.h"

namespace lynx::cli {
namespace {

constexpr char kAllVerbs[] = "lynx-verbs";

// The path of the file with that name in this program's folder.
std::string Beside(const char* name) {
  std::string path(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0 || size == static_cast<ssize_t>(path.size())) return name;
  path.resize(static_cast<size_t>(size));
  return path.substr(0, path.rfind('/') + 1) + name;
}

[[noreturn]] void BeginAllVerbs(char* name, const std::vector<std::string>& arguments) {
  std::vector<char*> words = {name};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const std::string program = Beside(kAllVerbs);
  ::execv(program.c_str(), words.data());
  std::fprintf(stderr, "lynxctl: cannot begin %s, which belongs beside it: %s; install lynxctl anew\n", program.c_str(),
               std::strerror(errno));
  ::_exit(kExitRefused);
}

int Main(int argc, char** argv) {
  char name[] = "lynxctl";
  std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (const std::optional<QuickSubmit> submission = ParseQuickSubmit(arguments); submission.has_value()) {
    QuickSubmitted submitted = SubmitQuickly(*submission);
    if (submitted.text.has_value()) {
      // If the text cannot be written completely, reports this with the same message and exit code as the full program.
      if (std::fputs(submitted.text->c_str(), stdout) >= 0 && std::fflush(stdout) == 0) ::_exit(kExitOk);
      std::fprintf(stderr, "lynxctl: what it prints could not be written whole: %s\n", std::strerror(errno));
      ::_exit(kExitRefused);
    }
    if (!submitted.arguments.empty()) arguments = std::move(submitted.arguments);
  }
  BeginAllVerbs(argc > 0 ? argv[0] : name, arguments);
}

}  // namespace
}  // namespace lynx::cli

int main(int argc, char** argv) { return lynx::cli::Main(argc, argv); }
