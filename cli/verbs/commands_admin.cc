// admin: verbs that say who may call the server.
#include <cctype>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/connect/client.h"
#include "cli/local/find_server.h"
#include "cli/output/exit_code.h"
#include "cli/output/listings.h"
#include "cli/spec/scalar_text.h"
#include "cli/verbs/commands.h"
#include "common/status.h"
#include "security/context_file.h"
#include "security/secret.h"

namespace lynx::cli {
namespace {

// Prints the message as JSON or YAML, or else the text.
template <class Message>
int Print(const GlobalOptions& global, const absl::StatusOr<Message>& message, const std::string& text) {
  return message.ok() ? Show(global.output, *message, text) : Fail(message.status());
}

std::string TimeText(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone());
}

std::string RoleText(v1::Role role) { return absl::AsciiStrToLower(v1::Role_Name(role).substr(sizeof("ROLE_") - 1)); }

absl::StatusOr<v1::Role> ParseRoleName(const std::string& name) {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  if (v1::Role_Parse("ROLE_" + absl::AsciiStrToUpper(name), &role) && role != v1::ROLE_UNSPECIFIED) return role;
  return absl::InvalidArgumentError(absl::StrCat("--role '", name, "' is not viewer, submitter, operator or admin"));
}

// Parses a lifetime. Returns 0 if no lifetime is given.
absl::StatusOr<int64_t> LifeOf(const std::string& text) {
  if (text.empty()) return 0;
  const absl::StatusOr<Nanos> life = ParseDuration(text);
  if (!life.ok()) return Annotate(life.status(), "--life");
  return life->value;
}

// InvalidArgument if the output goes to a file and -o asks for a format other than a table, because then nothing would be
// printed in that format.
absl::Status CheckFileOutput(const GlobalOptions& global, const std::string& file, const char* option) {
  if (file.empty()) return absl::OkStatus();
  return Annotate(CheckOutput(global.output, {OutputFormat::kTable, OutputFormat::kWide}), option);
}

// Prints the secret, or writes it to a file and prints the file's name.
template <class Response>
int TellToken(const GlobalOptions& global, const Client& client, const UserOptions& options, const Response& response) {
  if (options.context_file.empty()) return Print(global, absl::StatusOr<Response>(response), response.token() + "\n");
  const std::string server = AddressForOthers(client.server().address, response.server());
  const absl::Status written = WriteContextFile(
      options.context_file, {.server = server, .authority = client.server().authority, .token = response.token()});
  if (!written.ok()) {
    return Fail(Annotate(written, absl::StrCat("token ", response.token_id(), " was made and is lost, revoke it")));
  }
  std::printf(
      "token %s of %s for the server at %s is in %s: give it to nobody else; it belongs in ~/.config/lynx/context.json there, "
      "or --context\n",
      response.token_id().c_str(), options.name.c_str(), server.c_str(), options.context_file.c_str());
  return kExitOk;
}

}  // namespace

int WhoAmI(const GlobalOptions& global) {
  const auto response = Connect(global).ReadAdmin(&v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest());
  return Print(global, response, response.ok() ? absl::StrCat(response->name(), ": ", RoleText(response->role()), "\n") : "");
}

int MakeJoinToken(const GlobalOptions& global, const JoinTokenOptions& options) {
  if (const absl::Status checked = CheckFileOutput(global, options.out, "--out"); !checked.ok()) return Fail(checked);
  v1::CreateJoinTokenRequest request;
  request.set_node(options.node);
  const absl::StatusOr<int64_t> life = LifeOf(options.life);
  if (!life.ok()) return Fail(life.status());
  request.set_life_ns(*life);
  const auto response = Connect(global).Admin(&v1::Admin::Stub::CreateJoinToken, request);
  if (!response.ok()) return Fail(response.status());
  if (options.out.empty()) return Print(global, response, response->token() + "\n");
  const absl::Status written = WriteSecretFile(options.out, response->token() + "\n");
  if (!written.ok())
    return Fail(Annotate(written, "--out: a token was made and is lost; 'lynxctl admin revoke-join-tokens' forgets it"));
  std::printf("a join token for %s, once, until %s, is in %s\n", options.node.empty() ? "one node" : options.node.c_str(),
              TimeText(response->expires_unix_ns()).c_str(), options.out.c_str());
  return kExitOk;
}

int RevokeJoinTokens(const GlobalOptions& global) {
  const auto response = Connect(global).Admin(&v1::Admin::Stub::RevokeJoinTokens, v1::RevokeJoinTokensRequest());
  return Print(global, response, response.ok() ? absl::StrCat(response->revoked(), " join tokens are forgotten\n") : "");
}

int RevokeNode(const GlobalOptions& global, const std::string& node) {
  v1::RevokeNodeRequest request;
  request.set_node(node);
  return Print(
      global, Connect(global).Admin(&v1::Admin::Stub::RevokeNode, request),
      absl::StrCat("node ", node, " is no longer let in; its ranks, if any, go on until they are given up for lost\n"));
}

int AddUser(const GlobalOptions& global, const UserOptions& options) {
  if (const absl::Status checked = CheckFileOutput(global, options.context_file, "--context-file"); !checked.ok())
    return Fail(checked);
  v1::AddUserRequest request;
  request.set_name(options.name);
  const absl::StatusOr<v1::Role> role = ParseRoleName(options.role);
  if (!role.ok()) return Fail(role.status());
  request.set_role(*role);
  const absl::StatusOr<int64_t> life = LifeOf(options.life);
  if (!life.ok()) return Fail(life.status());
  request.set_life_ns(*life);
  Client client = Connect(global);
  const auto response = client.Admin(&v1::Admin::Stub::AddUser, request);
  return response.ok() ? TellToken(global, client, options, *response) : Fail(response.status());
}

int ListUsers(const GlobalOptions& global) {
  const auto response = Connect(global).ReadAdmin(&v1::Admin::Stub::ListUsers, v1::ListUsersRequest());
  if (!response.ok()) return Fail(response.status());
  Listing listing{.columns = {{"USER", "user"}, {"ROLE", "role"}, {"SINCE", "since"}, {"TOKENS", "tokens"}}};
  for (const v1::User& user : response->users()) {
    std::vector<std::string> tokens;
    for (const v1::Token& token : user.tokens()) {
      tokens.push_back(token.expires_unix_ns() == 0 ? token.id()
                                                    : absl::StrCat(token.id(), " until ", TimeText(token.expires_unix_ns())));
    }
    listing.names.push_back(user.name());
    listing.rows.push_back({user.name(), RoleText(user.role()), TimeText(user.created_unix_ns()), absl::StrJoin(tokens, ", ")});
  }
  return Show(global.output, *response, listing);
}

int RevokeUser(const GlobalOptions& global, const std::string& name) {
  v1::RevokeUserRequest request;
  request.set_name(name);
  return Print(global, Connect(global).Admin(&v1::Admin::Stub::RevokeUser, request),
               absl::StrCat("user ", name, " and all its tokens are revoked\n"));
}

int AddToken(const GlobalOptions& global, const UserOptions& options) {
  if (const absl::Status checked = CheckFileOutput(global, options.context_file, "--context-file"); !checked.ok())
    return Fail(checked);
  v1::AddTokenRequest request;
  request.set_user(options.name);
  const absl::StatusOr<int64_t> life = LifeOf(options.life);
  if (!life.ok()) return Fail(life.status());
  request.set_life_ns(*life);
  Client client = Connect(global);
  const auto response = client.Admin(&v1::Admin::Stub::AddToken, request);
  return response.ok() ? TellToken(global, client, options, *response) : Fail(response.status());
}

int RevokeToken(const GlobalOptions& global, const std::string& id) {
  v1::RevokeTokenRequest request;
  request.set_id(id);
  return Print(global, Connect(global).Admin(&v1::Admin::Stub::RevokeToken, request),
               absl::StrCat("token ", id, " is revoked\n"));
}

int Audit(const GlobalOptions& global, const AuditOptions& options) {
  v1::ListAuditRequest request;
  request.set_limit(options.limit);
  request.set_refused_only(options.refused);
  const auto response = Connect(global).ReadAdmin(&v1::Admin::Stub::ListAudit, request);
  if (!response.ok()) return Fail(response.status());
  Listing listing{.columns = {{"TIME", "time"},
                              {"WHO", "who"},
                              {"FROM", "from"},
                              {"WHAT", "what"},
                              {"TARGET", "target"},
                              {"OUTCOME", "outcome"},
                              {"DETAIL", "detail"}}};
  for (const v1::AuditRecord& record : response->records()) {
    listing.rows.push_back({TimeText(record.time_unix_ns()), record.who().empty() ? "-" : record.who(), record.from(),
                            record.what(), record.target().empty() ? "-" : record.target(), record.outcome(), record.detail()});
  }
  return Show(global.output, *response, listing);
}

int ListServers(const GlobalOptions& global) {
  const auto response = Connect(global).ReadAdmin(&v1::Admin::Stub::ListServers, v1::ListServersRequest());
  if (!response.ok()) return Fail(response.status());
  return Show(global.output, *response, ServerListing({response->servers().begin(), response->servers().end()}, Cells(global)));
}

}  // namespace lynx::cli
