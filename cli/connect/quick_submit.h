// The short way of 'lynxctl submit': for what most submissions are, without most of lynxctl. It knows one outcome, that the job
// is submitted; in everything else (options that it does not know, TLS, a mistake in the file, a server that does not answer or
// refuses) it leaves the command to the program of all verbs, which does it from the beginning and has the words for it. One
// thread.
#ifndef LYNX_CLI_CONNECT_QUICK_SUBMIT_H_
#define LYNX_CLI_CONNECT_QUICK_SUBMIT_H_

#include <optional>
#include <string>
#include <vector>

namespace lynx {

struct QuickSubmit {
  std::string file;
  std::vector<std::string> overrides;
  std::string idempotency_key;  // "" = a fresh one
  std::string server;           // "" = not given
  double timeout_seconds = 10;
};

// Parses the arguments after the program's name. nullopt: the command is not a submit, or it has other options.
std::optional<QuickSubmit> ParseQuickSubmit(const std::vector<std::string>& arguments);

struct QuickSubmitted {
  std::optional<std::string> text;  // to print; nullopt: left to the program of all verbs
  // Then its arguments, in place of those that were given; empty: as they were. Once the server has been asked, it is only
  // asked again with the same key, and not for longer than the caller's patience lasts.
  std::vector<std::string> arguments;
};
QuickSubmitted SubmitQuickly(const QuickSubmit& options);

}  // namespace lynx

#endif  // LYNX_CLI_CONNECT_QUICK_SUBMIT_H_
