// See connection_options.h.
#include "cli/connection_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "cli/real_range.h"

namespace lynx::cli {
namespace {

// An empty value is most likely a variable that is not set. Without this check the option would be as good as not given.
std::string NotEmpty(const std::string& text) {
  return text.empty() ? "the value is empty: give one, or leave the option out" : "";
}

// True if the verb that was called makes no call to the server that these options name. 'local' calls its own one.
bool CallsNoServer(const CLI::App& verb) {
  static constexpr const char* kOffline[] = {"plan",    "export",     "defaults", "import",     "audit",
                                             "compare", "explain",    "whatif",   "studio",     "models",
                                             "local",   "checkpoint", "man",      "completion", "reference"};
  const std::string& name = verb.get_name();
  if (std::find(std::begin(kOffline), std::end(kOffline), name) != std::end(kOffline)) return true;
  if (name == "context") return !verb.got_subcommand("add");
  const char* without = name == "submit" ? "--dry-run" : name == "doctor" ? "--no-server" : nullptr;
  return without != nullptr && verb.count(without) > 0;
}

}  // namespace

void AddConnectionOptions(CLI::App& app, GlobalOptions& global) {
  ConnectionFlags& flags = global.connection;
  std::vector<CLI::Option*> all = {
      app.add_option(
          "--server", flags.server,
          "host:port of lynx-server, or of several with commas: the one that leads is called; default: $LYNX_SERVER, the "
          "context's, the local cluster, 127.0.0.1:7470"),
      app.add_option("--context", flags.context,
                     "Name of a context, or a file with a server's address, authority and your token; default: $LYNX_CONTEXT, "
                     "the one in use"),
      app.add_option("--ca-file", flags.ca_file,
                     "Authority of the cluster, in place of the context's: calls go over TLS; default: $LYNX_CA_FILE"),
      app.add_option("--token-file", flags.token_file,
                     "File with your token, in place of the context's; default: $LYNX_TOKEN_FILE")};
  for (CLI::Option* option : all) option->check(CLI::Validator(NotEmpty, ""));
  all.push_back(app.add_flag("--no-context", flags.no_context,
                             "Ignore all contexts, and $LYNX_CONTEXT, $LYNX_CA_FILE and $LYNX_TOKEN_FILE")
                    ->excludes(all[1]));
  all.push_back(app.add_option("--timeout", global.timeout_seconds, "Seconds for one call to the server")
                    ->check(RealRange(0.1, 3600.0))
                    ->capture_default_str());
  app.parse_complete_callback([&app, all] {
    const std::vector<CLI::App*> verbs = app.get_subcommands();
    if (verbs.empty() || !CallsNoServer(*verbs[0])) return;
    std::string unused;
    int count = 0;
    for (const CLI::Option* option : all) {
      const bool used = option == all.back() && verbs[0]->get_name() == "local";
      if (option->count() == 0 || used) continue;
      unused += (count++ == 0 ? "" : ", ") + option->get_name();
    }
    if (count == 0) return;
    std::fprintf(stderr, "lynxctl: note: '%s' does not use %s; leave %s out\n", verbs[0]->get_name().c_str(), unused.c_str(),
                 count == 1 ? "it" : "them");
  });
}

}  // namespace lynx::cli
