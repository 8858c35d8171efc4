// Contexts: names for several clusters. Each context is a file (security/context_file.h) in ~/.config/lynx/contexts.
// ~/.config/lynx/context.json is a link to the context in use. One thread.
#ifndef LYNX_CLI_CONNECT_CONTEXTS_H_
#define LYNX_CLI_CONNECT_CONTEXTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "security/context_file.h"

namespace lynx::cli {

// ~/.config/lynx, or the folder that XDG_CONFIG_HOME says; "" if there is no home.
std::string ConfigFolder();

// The file of the context with this name. InvalidArgument: the text is not a name ([a-zA-Z0-9._-]{1,48}, the first not a
// dot), or there is no home.
absl::StatusOr<std::string> ContextPath(const std::string& name);

struct NamedContext {
  std::string name;
  std::string path;
  bool in_use = false;
  absl::StatusOr<ClientContext> context;  // the error says why it cannot be read
};
std::vector<NamedContext> ListContexts();

// The name of the context in use; "" = no context is in use, or somebody put context.json there by hand.
std::string ContextInUse();

// Adds a context. AlreadyExists: the name is taken. Other errors: see WriteContextFile.
absl::Status AddContext(const std::string& name, const ClientContext& context);
// Makes this context the one in use. NotFound lists the names that exist. FailedPrecondition: somebody put context.json there
// by hand, and the file would be lost.
absl::Status UseContext(const std::string& name);
// Removes the link, so that no context is in use.
absl::Status LeaveContext();
// Deletes the context. NotFound: the name is unknown. If the context was in use, no context is in use afterwards.
absl::Status RemoveContext(const std::string& name);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_CONTEXTS_H_
