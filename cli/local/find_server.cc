#include "cli/local/find_server.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/connect/contexts.h"
#include "cli/connect/leader_memory.h"
#include "cli/connect/server_place.h"
#include "cli/local/local_cluster.h"
#include "common/status.h"
#include "node/file.h"
#include "node/server_addresses.h"
#include "security/certificate.h"
#include "security/context_file.h"
#include "security/secret.h"

namespace lynx::cli {
namespace {

constexpr int64_t kMaxPem = 64 << 10;

// The file of a context. A text without a slash is a context's name, unless the current folder has a file of this name.
absl::StatusOr<std::string> ContextFileOf(const std::string& text) {
  std::error_code error;
  if (text.find('/') != std::string::npos || std::filesystem::exists(text, error)) return text;
  const absl::StatusOr<std::string> named = ContextPath(text);
  return named.ok() && std::filesystem::exists(*named, error) ? *named : text;
}

// True if all servers of `address` are among `servers`. Both are one HOST:PORT or several with commas.
bool IsAmong(const std::string& address, const std::string& servers) {
  const absl::StatusOr<ServerAddresses> called = ServerAddresses::Parse(address), known = ServerAddresses::Parse(servers);
  return called.ok() && known.ok() ? known->HasAll(*called) : address == servers;
}

bool IsLoopback(const std::string& address) {
  return absl::StartsWith(address, "127.") || absl::StartsWith(address, "localhost:") || absl::StartsWith(address, "[::1]:");
}

std::string FlagOr(const std::string& flag, const char* variable) { return flag.empty() ? Environment(variable) : flag; }

// Reads the files that the flags and the environment name. Their contents replace those of the context.
absl::Status TakeFiles(const ConnectionFlags& flags, ServerAddress& found) {
  const auto file_of = [&](const std::string& flag, const char* variable) {
    return flags.no_context ? flag : FlagOr(flag, variable);
  };
  if (const std::string file = file_of(flags.ca_file, "LYNX_CA_FILE"); !file.empty()) {
    LYNX_ASSIGN_OR_RETURN(found.authority, ReadFile(file, kMaxPem));
    LYNX_RETURN_IF_ERROR(Annotate(ReadCertificate(found.authority).status(), file));
    found.context_file.clear();
  }
  if (const std::string file = file_of(flags.token_file, "LYNX_TOKEN_FILE"); !file.empty()) {
    LYNX_ASSIGN_OR_RETURN(found.token, ReadSecretFile(file));
  }
  if (found.token.empty() || !found.authority.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a token is only sent over TLS: give --ca-file with the cluster's authority, or a --context");
}

absl::Status Find(const ConnectionFlags& flags, ServerAddress& found) {
  if (flags.no_context && !flags.context.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a context is named (", flags.context, "), and no context is wanted: leave one of the two out"));
  }
  if (!flags.server.empty()) {
    found = {.address = flags.server, .source = "--server"};
  } else if (const std::string server = Environment("LYNX_SERVER"); !server.empty()) {
    found = {.address = server, .source = "LYNX_SERVER"};
  }
  const std::string standing = flags.no_context ? "" : StandingContextFile();
  std::string file = flags.no_context ? "" : FlagOr(flags.context, "LYNX_CONTEXT");
  if (file.empty() && !standing.empty() && found.address.empty() && !ContextInUse().empty()) file = standing;
  if (!file.empty()) {
    LYNX_ASSIGN_OR_RETURN(file, ContextFileOf(file));
    LYNX_ASSIGN_OR_RETURN(const ClientContext context, ReadContextFile(file));
    if (found.address.empty()) found = {.address = context.server, .source = file};
    found.authority = context.authority;
    found.token = context.token;
    found.context_file = file;
    return TakeFiles(flags, found);
  }
  if (found.address.empty()) {
    const absl::StatusOr<LocalCluster> local = ReadLocalCluster(LocalDirectory());
    if (local.ok()) found = {.address = local->server_address, .source = "the local cluster in " + LocalDirectory()};
    // FailedPrecondition: another user has put a file where the file of this user's cluster would be. Then the command fails,
    // instead of calling a different server.
    if (absl::IsFailedPrecondition(local.status())) return local.status();
  }
  std::error_code error;
  if (!standing.empty() && std::filesystem::exists(standing, error)) {
    LYNX_ASSIGN_OR_RETURN(const ClientContext context, ReadContextFile(standing));
    if (found.address.empty()) found = {.address = context.server, .source = standing};
    if (IsAmong(found.address, context.server)) {
      found.authority = context.authority;
      found.token = context.token;
      found.context_file = standing;
    }
  }
  return TakeFiles(flags, found);
}

}  // namespace

ServerAddress FindServer(const ConnectionFlags& flags) {
  ServerAddress found;
  const absl::Status status = Find(flags, found);
  if (found.address.empty())
    found = {.address = kDefaultServer,
             .source = "the default",
             .authority = found.authority,
             .token = found.token,
             .context_file = found.context_file};
  found.status = status;
  found.leaders_file = LeadersFile();
  const absl::Status address = ServerAddresses::Parse(found.address).status();
  if (found.status.ok() && !address.ok()) found.status = Annotate(address, found.source);
  return found;
}

std::string AddressForOthers(const std::string& own, const std::string& servers) {
  if (servers.empty()) return own;
  const absl::StatusOr<ServerAddresses> called = ServerAddresses::Parse(own), known = ServerAddresses::Parse(servers);
  const bool names_more = called.ok() && known.ok() && known->HasAll(*called);
  return IsLoopback(own) || names_more ? servers : own;
}

}  // namespace lynx::cli
