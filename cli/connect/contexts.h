// Contexts: several clusters by name. Each is a context file (security/context_file.h) in ~/.config/lynx/contexts; the one in
// use is what
// ~/.config/lynx/context.json links to. One thread.
#ifndef LYNX_CLI_CONNECT_CONTEXTS_H_
#define LYNX_CLI_CONNECT_CONTEXTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "security/context_file.h"

namespace lynx {

// ~/.config/lynx, or as XDG_CONFIG_HOME says; "" where there is no home.
std::string ConfigFolder();

// The file of the context of this name. InvalidArgument for what is no name ([a-zA-Z0-9._-]{1,48}) and where there is no home.
absl::StatusOr<std::string> ContextPath(const std::string& name);

struct NamedContext {
  std::string name;
  std::string path;
  bool in_use = false;
  absl::StatusOr<ClientContext> context;  // why it cannot be read
};
std::vector<NamedContext> ListContexts();

// The name of the one in use; "" = none, or the standing file was put there by hand.
std::string ContextInUse();

// AlreadyExists; else as WriteContextFile.
absl::Status AddContext(const std::string& name, const ClientContext& context);
// NotFound with the names that there are. FailedPrecondition: context.json was put there by hand, and would be lost.
absl::Status UseContext(const std::string& name);
// None is in use afterwards.
absl::Status LeaveContext();
// NotFound. Where it is in use, none is afterwards.
absl::Status RemoveContext(const std::string& name);

}  // namespace lynx

#endif  // LYNX_CLI_CONNECT_CONTEXTS_H_
