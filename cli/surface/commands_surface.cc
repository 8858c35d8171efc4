// See commands_surface.h.
#include "cli/surface/commands_surface.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cli/connect/client.h"
#include "cli/connect/contexts.h"
#include "cli/local/find_server.h"
#include "cli/output/exit_code.h"
#include "cli/output/output_file.h"
#include "cli/surface/command_pages.h"
#include "cli/surface/completion.h"

namespace lynx::cli {
namespace {

// Time limit for a completion, because a person who pressed Tab waits for it. After this time the person gets no names.
constexpr Nanos kPatience{1'000'000'000};
constexpr int32_t kMaxNames = 1000;

// The names by which other verbs know things of this kind. Contexts are read from this machine. Other names come from the
// server; empty if the server does not answer.
std::vector<std::string> KnownNames(const GlobalOptions& global, const std::string& kind) {
  std::vector<std::string> names;
  if (kind == "contexts") {
    for (const NamedContext& context : ListContexts()) names.push_back(context.name);
    return names;
  }
  Client client(FindServer(global.connection), kPatience);
  if (kind == "jobs") {
    v1::ListJobsRequest request;
    request.set_limit(kMaxNames);
    const auto jobs = client.List(request);
    if (jobs.ok()) {
      for (const v1::Job& job : jobs->jobs()) names.push_back(job.id());
    }
  } else if (kind == "nodes") {
    const auto nodes = client.Nodes();
    if (nodes.ok()) {
      for (const v1::Node& node : nodes->nodes()) names.push_back(node.name());
    }
  } else if (kind == "queues") {
    const auto queues = client.Queues();
    if (queues.ok()) {
      for (const v1::Queue& queue : queues->queues()) names.push_back(queue.name());
    }
  } else if (kind == "users") {
    const auto users = client.Admin(&v1::Admin::Stub::ListUsers, v1::ListUsersRequest());  // only admins may call this
    if (users.ok()) {
      for (const v1::User& user : users->users()) names.push_back(user.name());
    }
  }
  return names;
}

}  // namespace

int CompleteNames(const GlobalOptions& global, const std::string& kind) {
  for (const std::string& name : KnownNames(global, kind)) std::puts(name.c_str());
  return kExitOk;
}

int Completion(const std::string& shell, const CommandTree& tree) {
  const absl::StatusOr<std::string> script = CompletionScript(shell, tree);
  if (!script.ok()) return Fail(script.status());
  std::fputs(script->c_str(), stdout);
  return kExitOk;
}

int Man(const std::string& verb, const std::string& folder, const std::string& version, const CommandTree& tree) {
  const std::vector<ManPage> pages = ManPages(tree, version, kExitCodeHelp);
  if (folder.empty()) {
    const std::string file = absl::StrCat(tree.name, verb.empty() ? "" : "-", verb, ".1");
    for (const ManPage& page : pages) {
      if (page.file != file) continue;
      std::fputs(page.text.c_str(), stdout);
      return kExitOk;
    }
    return Fail(absl::NotFoundError(
        absl::StrCat("there is no page of '", verb, "'; those of verbs of verbs are named like queue-set")));
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);  // if this fails, the write below reports it
  for (const ManPage& page : pages) {
    if (const absl::Status written = WriteOutput("--out", absl::StrCat(folder, "/", page.file), page.text); !written.ok())
      return Fail(written);
  }
  std::printf("%zu pages are in %s; read one with: man -l %s/%s\n", pages.size(), folder.c_str(), folder.c_str(),
              pages.front().file.c_str());
  return kExitOk;
}

int Reference(const CommandTree& tree) {
  std::fputs(CommandReference(tree, kExitCodeHelp).c_str(), stdout);
  return kExitOk;
}

}  // namespace lynx::cli
