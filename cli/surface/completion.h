// Completion scripts for shells, made from the command tree. The scripts get the names of jobs, nodes, queues, users and
// contexts with `lynxctl __complete KIND`. All of these except contexts come from the server, and are not completed without
// it. No script lets the shell interpret the text that it gets. Pure; thread-safe.
#ifndef LYNX_CLI_SURFACE_COMPLETION_H_
#define LYNX_CLI_SURFACE_COMPLETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/surface/command_tree.h"

namespace lynx::cli {

// `shell`: bash, zsh or fish. InvalidArgument: another shell.
absl::StatusOr<std::string> CompletionScript(const std::string& shell, const CommandTree& tree);

// Returns what to ask `lynxctl __complete` for: "jobs", "nodes", "queues", "users", "contexts"; "": cannot be listed.
const char* CompletionKind(ValueKind value);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SURFACE_COMPLETION_H_
