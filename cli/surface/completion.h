// Completion scripts for shells, made from the command tree. Jobs, nodes, queues and users are asked of the server, by
// `lynxctl __complete KIND`; a server that is not there completes to nothing. No script expands what it is told. Pure;
// thread-safe.
#ifndef LYNX_CLI_SURFACE_COMPLETION_H_
#define LYNX_CLI_SURFACE_COMPLETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/surface/command_tree.h"

namespace lynx {

// `shell`: bash, zsh or fish; InvalidArgument for another one.
absl::StatusOr<std::string> CompletionScript(const std::string& shell, const CommandTree& tree);

// What `lynxctl __complete` is asked for: "jobs", "nodes", "queues", "users", "contexts"; "" for what nobody knows.
const char* CompletionKind(ValueKind value);

}  // namespace lynx

#endif  // LYNX_CLI_SURFACE_COMPLETION_H_
