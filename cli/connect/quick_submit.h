// A fast path for 'lynxctl submit' that handles most submissions without most of lynxctl. It handles one outcome: the job is
// submitted, at the first or at another of several servers. In other cases it leaves the command to the full program, which
// starts the command again and can explain what is wrong. These cases are unknown options, TLS, a mistake in the file, and a
// server that does not answer or refuses. One thread.
#ifndef LYNX_CLI_CONNECT_QUICK_SUBMIT_H_
#define LYNX_CLI_CONNECT_QUICK_SUBMIT_H_

#include <optional>
#include <string>
#include <vector>

namespace lynx::cli {

struct QuickSubmit {
  std::string file;
  std::vector<std::string> overrides;
  std::string idempotency_key;  // "" = make a new one
  std::string server;           // "" = not given
  double timeout_seconds = 10;
};

// Parses the arguments after the program's name. nullopt: the command is not a submit, or it has other options.
std::optional<QuickSubmit> ParseQuickSubmit(const std::vector<std::string>& arguments);

struct QuickSubmitted {
  std::optional<std::string> text;  // the text to print; nullopt: the full program must carry out the command
  // The arguments for the full program if `text` is nullopt. Empty: they are the given arguments. They differ if this path has
  // already asked the server. Then the full program must ask again with the same idempotency key, and only within the caller's
  // timeout.
  std::vector<std::string> arguments;
};
QuickSubmitted SubmitQuickly(const QuickSubmit& options);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_QUICK_SUBMIT_H_
