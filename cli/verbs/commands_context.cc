// context: names for several clusters.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/connect/contexts.h"
#include "cli/local/find_server.h"
#include "cli/output/exit_code.h"
#include "cli/verbs/commands.h"

namespace lynx::cli {

int ListContextsCommand(const GlobalOptions& global) {
  Listing listing{
      .columns = {{"", "in_use"}, {"NAME", "name"}, {"SERVER", "server"}, {"TLS", "tls"}, {"TOKEN", "token"}, {"", "problem"}},
      .nothing = "no contexts; 'lynxctl --server HOST:PORT context add NAME' makes one"};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const bool whole = Cells(global).whole();
  for (const NamedContext& one : ListContexts()) {
    const ClientContext context = one.context.ok() ? *one.context : ClientContext();
    const std::string problem = one.context.ok() ? "" : std::string(one.context.status().message());
    const bool tls = !context.authority.empty(), token = !context.token.empty();
    listing.names.push_back(one.name);
    listing.rows.push_back({whole ? (one.in_use ? "yes" : "no") : (one.in_use ? "*" : ""), one.name, context.server,
                            tls ? "yes" : "no", token ? "yes" : "no", problem});
    list.push_back({{"name", one.name},
                    {"inUse", one.in_use},
                    {"server", context.server},
                    {"tls", tls},
                    {"token", token},
                    {"problem", problem}});
  }
  const nlohmann::ordered_json all({{"contexts", list}});
  return ShowListing(global.output, all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n", listing);
}

int AddContextCommand(const GlobalOptions& global, const std::string& name) {
  const ServerAddress server = FindServer(global.connection);
  if (!server.status.ok()) return Fail(server.status);
  const absl::Status added = AddContext(name, {.server = server.address, .authority = server.authority, .token = server.token});
  if (!added.ok()) return Fail(added);
  std::printf("context %s: %s (from %s); use it with: lynxctl context use %s\n", name.c_str(), server.address.c_str(),
              server.source.c_str(), name.c_str());
  return kExitOk;
}

int UseContextCommand(const std::string& name) {
  const absl::Status used = name.empty() ? LeaveContext() : UseContext(name);
  if (!used.ok()) return Fail(used);
  std::printf("%s\n", name.empty() ? "no context is in use" : absl::StrCat("context ", name, " is in use").c_str());
  return kExitOk;
}

int RemoveContextCommand(const std::string& name) {
  const absl::Status removed = RemoveContext(name);
  if (!removed.ok()) return Fail(removed);
  std::printf("context %s is removed\n", name.c_str());
  return kExitOk;
}

}  // namespace lynx::cli
