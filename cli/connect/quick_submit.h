// A fast path for 'lynxctl submit' that handles most submissions without most of lynxctl. It handles one outcome: the
// job is submitted. In every other case (unknown options, TLS, a mistake in the file, a server that does not answer or
// refuses) it leaves the command to the full program, which starts it again and can explain what is wrong. One thread.
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
  std::optional<std::string> text;  // to print; nullopt: the full program must do the command
  // If `text` is nullopt: the arguments for the full program, if they differ from the given ones; empty: the given ones. If
  // this path has already asked the server, the full program must ask again with the same key, and only within the caller's
  // timeout.
  std::vector<std::string> arguments;
};
QuickSubmitted SubmitQuickly(const QuickSubmit& options);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_QUICK_SUBMIT_H_
