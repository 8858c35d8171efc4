// See guard.h.
#include "server/access/guard.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "security/certificate.h"
#include "security/credentials.h"
#include "security/secret.h"

namespace lynx::server {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr char kBearer[] = "Bearer ";
constexpr char kJoin[] = "Join ";

const char* Article(Role role) { return role == Role::kOperator || role == Role::kAdmin ? "an " : "a "; }

Caller Local(const std::string& from) { return {.kind = Caller::Kind::kLocal, .role = Role::kAdmin, .from = from}; }

absl::Status Revoked() {
  return absl::UnauthenticatedError(
      "the certificate of this node has been revoked, or is of a database that the server no longer has: join again with a "
      "token of 'lynxctl admin join-token --node NAME', and an empty --identity-dir");
}

}  // namespace

absl::Status JoinTokenIsOver() {
  return absl::UnauthenticatedError(
      "the join token has been used, is too old, or was revoked: each is for one node, once; 'lynxctl admin join-token' "
      "makes another");
}

AuditRecord Call::Audit(const std::string& target) const {
  return {.who = CallerText(caller), .from = caller.from, .what = method, .target = target};
}

std::string HostOfPeer(const std::string& peer) {
  const size_t scheme = peer.find(':');
  const size_t port = peer.rfind(':');
  if (scheme == std::string::npos || port <= scheme) return peer;
  const std::string host = peer.substr(scheme + 1, port - scheme - 1);
  return absl::StrReplaceAll(host, {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
}

absl::StatusOr<Caller> Guard::IdentifyToken(const std::string& authorization, const std::string& from) const {
  if (absl::StartsWith(authorization, kJoin)) {
    const std::string digest = SecretDigest(authorization.substr(sizeof(kJoin) - 1));
    if (book_.FindJoinGrant(digest, clock_.Wall()).has_value()) return Caller{.from = from, .joins = true};
    return JoinTokenIsOver();
  }
  if (!absl::StartsWith(authorization, kBearer))
    return absl::UnauthenticatedError("the call's authorization is not one bearer token");
  const std::optional<User> user = book_.UserOfToken(SecretDigest(authorization.substr(sizeof(kBearer) - 1)), clock_.Wall());
  if (!user.has_value()) {
    return absl::UnauthenticatedError(
        "the server does not know this token, or no longer: it was revoked, has ended, or is of another cluster; an admin "
        "gives "
        "a new one with 'lynxctl admin token add'");
  }
  return Caller{.kind = Caller::Kind::kUser, .name = user->name, .role = user->role, .from = from};
}

absl::StatusOr<Caller> Guard::Identify(const Metadata& metadata, const grpc::AuthContext& connection,
                                       const std::string& from) const {
  Caller caller{.from = from};
  if (open_) return Local(caller.from);
  const auto [first, last] = metadata.equal_range(kAuthorization);
  if (first != last) {
    const bool one = std::next(first) == last;
    return IdentifyToken(one ? std::string(first->second.data(), first->second.size()) : "", caller.from);
  }
  const std::optional<CertificateFacts> shown = PeerCertificate(connection);
  if (!shown.has_value()) return caller;
  const std::optional<NodeCertificate> known = book_.FindCertificate(shown->serial, clock_.Wall());
  if (!known.has_value() || NodeOf(*shown) != known->node) return Revoked();
  caller.kind = Caller::Kind::kNode;
  caller.name = known->node;
  caller.serial = known->serial;
  return caller;
}

absl::Status Guard::Authorize(const MethodRule& rule, const Caller& caller) const {
  using Kind = Caller::Kind;
  if (caller.kind == Kind::kLocal) return absl::OkStatus();
  if (rule.need == Need::kJoinToken) {
    if (caller.kind != Kind::kNobody || caller.joins) return absl::OkStatus();
    return absl::UnauthenticatedError(
        absl::StrCat(rule.method,
                     " needs the join token with the call, and not only in its message: a node of an earlier release is "
                     "upgraded before it joins"));
  }
  if (rule.need == Need::kNode) {
    if (caller.kind == Kind::kNode) return absl::OkStatus();
    return caller.kind == Kind::kNobody
               ? absl::UnauthenticatedError(absl::StrCat(rule.method,
                                                         " needs the certificate of a node: give --identity-dir, and a "
                                                         "join token the first time"))
               : absl::PermissionDeniedError(absl::StrCat(rule.method, " is for nodes, not for ", CallerText(caller)));
  }
  const Role needed = RoleNeeded(rule.need);
  if (caller.kind == Kind::kNobody) {
    return absl::UnauthenticatedError(absl::StrCat(
        rule.method, " needs a token: give --context or --token-file; 'lynxctl admin user add' makes one for a person"));
  }
  if (caller.kind == Kind::kUser && caller.role >= needed) return absl::OkStatus();
  const std::string who = caller.kind == Kind::kUser
                              ? absl::StrCat(caller.name, " is ", Article(caller.role), RoleName(caller.role))
                              : absl::StrCat(CallerText(caller), " is a node");
  return absl::PermissionDeniedError(absl::StrCat(who, ", and ", rule.method, " needs ", Article(needed), RoleName(needed)));
}

absl::Status Guard::CheckLimits(const MethodRule& rule, const Caller& caller) {
  if (rule.cost == Cost::kNothing) return absl::OkStatus();
  if (caller.kind != Caller::Kind::kNode) LYNX_RETURN_IF_ERROR(limits_.CheckQueue(hooks_.queue()));
  // Without TLS callers cannot be told apart, so all callers from one address share a rate.
  const bool by_address = caller.kind == Caller::Kind::kNobody || caller.kind == Caller::Kind::kLocal;
  return by_address ? limits_.Take(rule.cost, CallerKey::kAddress, caller.from, clock_.Monotonic())
                    : limits_.Take(rule.cost, CallerKey::kName, CallerText(caller), clock_.Monotonic());
}

absl::StatusOr<Caller> Guard::Decide(const MethodRule& rule, const absl::StatusOr<Caller>& caller, const std::string& from) {
  absl::Status status = caller.ok() ? Authorize(rule, *caller) : caller.status();
  if (status.ok()) {
    LYNX_RETURN_IF_ERROR(CheckLimits(rule, *caller));
    return *caller;
  }
  AuditRecord record{
      .time = clock_.Wall(), .who = caller.ok() ? CallerText(*caller) : "", .from = from, .what = rule.method, .refused = true};
  SetOutcome(record, status);
  hooks_.refused(std::move(record));
  return status;
}

absl::StatusOr<Call> Guard::Admit(const MethodRule& rule, const grpc::CallbackServerContext& context) {
  const std::string from = HostOfPeer(context.peer());
  LYNX_ASSIGN_OR_RETURN(const Caller caller,
                        Decide(rule, Identify(context.client_metadata(), *context.auth_context(), from), from));
  return Call{.caller = caller, .method = rule.method};
}

absl::Status Guard::RefuseStranger(const Metadata& metadata, const grpc::AuthContext& connection) const {
  const absl::StatusOr<Caller> caller = Identify(metadata, connection, "");
  if (!caller.ok()) return caller.status();
  if (caller->kind != Caller::Kind::kNobody) return absl::OkStatus();
  return absl::UnauthenticatedError("every call needs a token or a certificate");
}

absl::StatusOr<Caller> Guard::AdmitHttp(const MethodRule& rule, const std::string& authorization, const std::string& from) {
  if (open_) return Decide(rule, Local(from), from);
  return Decide(rule, authorization.empty() ? Caller{.from = from} : IdentifyToken(authorization, from), from);
}

absl::Status Guard::CheckReport(const Caller& caller, const std::string& node) const {
  if (caller.kind != Caller::Kind::kNode) return absl::OkStatus();
  if (node != caller.name) {
    return absl::PermissionDeniedError(
        absl::StrCat("node ", caller.name, " reports as node ", node, ": --node must be the name that it joined with"));
  }
  if (book_.FindCertificate(caller.serial, clock_.Wall()).has_value()) return absl::OkStatus();
  return absl::UnauthenticatedError(
      absl::StrCat("the certificate with which node ", caller.name,
                   " has dialled has ended or been revoked: dial again with a renewed one, or join again"));
}

}  // namespace lynx::server
