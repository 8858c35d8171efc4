// See admin_service.h.
#include "server/services/admin_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "proto/bounds.h"
#include "security/join_token.h"
#include "security/secret.h"
#include "server/wire/grpc_status.h"
#include "server/wire/retry_later.h"

namespace lynx::server {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
constexpr int64_t kDay = 86'400 * kNanosPerSecond;
constexpr Nanos kJoinLife{kDay};
constexpr int64_t kMaxJoinLife = 30 * kDay;
constexpr int64_t kMaxTokenLife = 3650 * kDay;
constexpr size_t kMaxRequest = 8 << 10;
constexpr size_t kMaxUsers = 10'000;
constexpr size_t kMaxTokensOfUser = 100;
constexpr size_t kMaxJoinGrants = 10'000;
// The largest number of valid certificates of one node. A renewal does not end the old certificate: it stays valid until it
// expires, or until a renewal exceeds this number and ends the oldest ones.
constexpr size_t kMaxCertificatesOfNode = 4;
constexpr int32_t kDefaultAudit = 100;
constexpr int32_t kMaxAudit = 1000;
// A standby updates its entry twice a second, and waits up to 2 s for each answer of the database. Without an update for
// kSilent, it counts as silent.
constexpr Nanos kSilent{10 * kNanosPerSecond};

absl::Status CheckLife(const std::string& field, int64_t life, int64_t longest) {
  return life == 0 ? absl::OkStatus() : CheckRange(field, life, kNanosPerSecond, longest);
}

absl::Status NoTls() {
  return absl::FailedPreconditionError(
      "this server runs without TLS: everybody who reaches it is an admin, and tokens and certificates mean nothing; start it "
      "with --tls");
}

v1::Role Encode(Role role) { return static_cast<v1::Role>(static_cast<int>(role) + v1::ROLE_VIEWER); }

absl::StatusOr<Role> Decode(v1::Role role) {
  if (role >= v1::ROLE_VIEWER && role <= v1::ROLE_ADMIN) return static_cast<Role>(static_cast<int>(role) - v1::ROLE_VIEWER);
  return BadField("role", absl::StrCat(static_cast<int>(role)), "is not a role");
}

v1::AuditRecord Encode(const AuditRecord& record) {
  v1::AuditRecord message;
  message.set_sequence(record.sequence);
  message.set_time_unix_ns(record.time.value);
  message.set_who(record.who);
  message.set_from(record.from);
  message.set_what(record.what);
  message.set_target(record.target);
  message.set_outcome(record.outcome);
  message.set_detail(record.detail);
  return message;
}

v1::ListedServer Encode(const KnownServer& known, Nanos now) {
  v1::ListedServer message;
  message.set_address(known.server.address);
  message.set_role(known.leads                ? v1::SERVER_ROLE_LEADS
                   : known.seen_ago > kSilent ? v1::SERVER_ROLE_SILENT
                                              : v1::SERVER_ROLE_STANDS_BY);
  message.set_epoch(known.epoch);
  message.set_version(known.server.version);
  message.set_since_unix_ns(known.since.value);
  message.set_seen_unix_ns((now - known.seen_ago).value);
  message.set_encrypt_ranks(known.server.encryption);
  message.set_host(known.server.host);
  message.set_process(known.server.process);
  return message;
}

}  // namespace

NewToken MakeToken(const std::string& user, Nanos now, Nanos life) {
  NewToken made{.secret = NewSecret()};
  made.token = {.id = NewRandomId(8),
                .digest = SecretDigest(made.secret),
                .user = user,
                .created = now,
                .expires = life == Nanos(0) ? Nanos(0) : now + life};
  return made;
}

void AdminService::Change(const Call& call, const std::string& target, Decide decide) {
  UnaryAnswer* answer = call.answer;
  if (options_.tls == nullptr) {
    answer->Finish(ToGrpc(NoTls()));
    return;
  }
  const bool stranger = call.caller.kind == Caller::Kind::kNobody;
  const bool posted =
      core_.loop().Run([this, answer, stranger, record = call.Audit(target), decide = std::move(decide)]() mutable {
        record.time = core_.clock().Wall();
        const absl::StatusOr<std::vector<AccessChange>> changes = decide(record.time);
        absl::Status status = changes.status();
        SetOutcome(record, status);
        if (status.ok()) {
          status = core_.store().CommitAccess(*changes, record);
          if (status.ok()) book_.Apply(*changes);
        } else if (stranger) {
          record.refused = true;
          core_.Refused(std::move(record));
        } else {
          core_.loop().Record(std::move(record));
        }
        answer->Finish(ToGrpc(status));
      });
  if (!posted) answer->Finish(ToGrpc(Overloaded()));
}

void AdminService::Read(const Call& call, std::function<absl::Status()> read) {
  UnaryAnswer* answer = call.answer;
  const bool posted = core_.loop().Run([answer, read = std::move(read)] { answer->Finish(ToGrpc(read())); });
  if (!posted) answer->Finish(ToGrpc(Overloaded()));
}

void AdminService::WhoAmI(const Call& call, const v1::WhoAmIRequest*, v1::WhoAmIResponse* response) {
  response->set_name(CallerText(call.caller));
  response->set_role(Encode(call.caller.role));
  if (options_.tls != nullptr) response->set_authority(options_.tls->authority()->certificate());
  UnaryAnswer* answer = call.answer;
  answer->Finish(grpc::Status::OK);
}

void AdminService::CreateJoinToken(const Call& call, const v1::CreateJoinTokenRequest* request,
                                   v1::CreateJoinTokenResponse* response) {
  return Change(call, request->node(), [=, this](Nanos now) -> absl::StatusOr<std::vector<AccessChange>> {
    if (!request->node().empty()) LYNX_RETURN_IF_ERROR(CheckName("node", request->node()));
    LYNX_RETURN_IF_ERROR(CheckLife("life_ns", request->life_ns(), kMaxJoinLife));
    std::vector<AccessChange> changes = book_.Expired(now);
    if (book_.JoinGrants().size() >= kMaxJoinGrants) {
      return absl::ResourceExhaustedError(absl::StrCat(
          kMaxJoinGrants, " join tokens wait for their nodes, the limit: 'lynxctl admin revoke-join-tokens' forgets them"));
    }
    const std::string secret = NewSecret();
    const JoinGrant grant{.digest = SecretDigest(secret),
                          .node = request->node(),
                          .created = now,
                          .expires = now + (request->life_ns() == 0 ? kJoinLife : Nanos(request->life_ns()))};
    response->set_token(JoinTokenText({secret, options_.tls->authority()->digest()}));
    response->set_expires_unix_ns(grant.expires.value);
    changes.push_back(grant);
    return changes;
  });
}

void AdminService::RevokeJoinTokens(const Call& call, const v1::RevokeJoinTokensRequest*,
                                    v1::RevokeJoinTokensResponse* response) {
  return Change(call, "", [this, response](Nanos) -> absl::StatusOr<std::vector<AccessChange>> {
    std::vector<AccessChange> changes;
    for (const JoinGrant& grant : book_.JoinGrants()) changes.push_back(DeleteJoinGrant{grant.digest});
    response->set_revoked(static_cast<int32_t>(changes.size()));
    return changes;
  });
}

absl::StatusOr<std::vector<AccessChange>> AdminService::Certify(const std::string& request, const std::string& node, Nanos now,
                                                                std::string* certificate) const {
  LYNX_RETURN_IF_ERROR(CheckSize("request", request.size(), 1, kMaxRequest, "bytes"));
  absl::StatusOr<Authority::Issued> issued =
      options_.tls->authority()->IssueNode(request, node, now, options_.node_certificate_life);
  if (!issued.ok()) return Annotate(issued.status(), "request");
  *certificate = issued->pem;
  std::vector<AccessChange> changes = book_.Expired(now);
  changes.push_back(NodeCertificate{.serial = issued->serial, .node = node, .issued = now, .ends = issued->ends});
  return changes;
}

absl::StatusOr<std::vector<AccessChange>> AdminService::DecideJoin(const v1::JoinRequest& request, Nanos now,
                                                                   std::string* certificate) const {
  LYNX_RETURN_IF_ERROR(CheckName("node", request.node()));
  const std::optional<JoinGrant> grant = book_.FindJoinGrant(SecretDigest(request.secret()), now);
  if (!grant.has_value()) return JoinTokenIsOver();
  if (!grant->node.empty() && grant->node != request.node()) {
    return absl::PermissionDeniedError(absl::StrCat("the join token is for node ", grant->node, ", not for ", request.node()));
  }
  const std::vector<NodeCertificate> before = book_.CertificatesOf(request.node(), now);
  if (!before.empty() && grant->node.empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("node ", request.node(),
                     " has a certificate: choose another --node, or let an admin make a token for just this node with "
                     "'lynxctl admin join-token --node ",
                     request.node(), "', which ends the old certificate"));
  }
  LYNX_ASSIGN_OR_RETURN(std::vector<AccessChange> changes, Certify(request.request(), request.node(), now, certificate));
  for (const NodeCertificate& old : before) changes.push_back(DeleteCertificate{old.serial});
  changes.push_back(DeleteJoinGrant{grant->digest});
  return changes;
}

void AdminService::Join(const Call& call, const v1::JoinRequest* request, v1::JoinResponse* response) {
  return Change(call, CheckName("node", request->node()).ok() ? request->node() : "",
                [=, this](Nanos now) { return DecideJoin(*request, now, response->mutable_certificate()); });
}

void AdminService::RotateCertificate(const Call& call, const v1::RotateCertificateRequest* request,
                                     v1::RotateCertificateResponse* response) {
  const std::string node = call.caller.name;
  return Change(call, node, [=, this](Nanos now) -> absl::StatusOr<std::vector<AccessChange>> {
    LYNX_ASSIGN_OR_RETURN(std::vector<AccessChange> changes,
                          Certify(request->request(), node, now, response->mutable_certificate()));
    std::vector<NodeCertificate> before = book_.CertificatesOf(node, now);
    std::sort(before.begin(), before.end(), [](const auto& a, const auto& b) { return a.issued > b.issued; });
    for (size_t i = kMaxCertificatesOfNode - 1; i < before.size(); ++i) changes.push_back(DeleteCertificate{before[i].serial});
    return changes;
  });
}

void AdminService::RevokeNode(const Call& call, const v1::RevokeNodeRequest* request, v1::RevokeNodeResponse* response) {
  return Change(call, request->node(), [=, this](Nanos now) -> absl::StatusOr<std::vector<AccessChange>> {
    LYNX_RETURN_IF_ERROR(CheckName("node", request->node()));
    std::vector<AccessChange> changes;
    for (const NodeCertificate& old : book_.CertificatesOf(request->node(), now))
      changes.push_back(DeleteCertificate{old.serial});
    if (changes.empty()) return absl::NotFoundError(absl::StrCat("node ", request->node(), " has no certificate"));
    response->set_revoked(static_cast<int32_t>(changes.size()));
    return changes;
  });
}

void AdminService::AddUser(const Call& call, const v1::AddUserRequest* request, v1::AddUserResponse* response) {
  return Change(call, request->name(), [=, this](Nanos now) -> absl::StatusOr<std::vector<AccessChange>> {
    LYNX_RETURN_IF_ERROR(CheckName("name", request->name()));
    if (request->name() == kLocalUser) {
      return BadField("name", request->name(), "must not be the name of everybody on a server without TLS");
    }
    LYNX_RETURN_IF_ERROR(CheckLife("life_ns", request->life_ns(), kMaxTokenLife));
    LYNX_ASSIGN_OR_RETURN(const Role role, Decode(request->role()));
    if (const std::optional<User> known = book_.FindUser(request->name()); known.has_value()) {
      return absl::AlreadyExistsError(absl::StrCat("user ", known->name, " exists, with the role ", RoleName(known->role),
                                                   ": 'lynxctl admin token add' gives one more token"));
    }
    if (book_.Users().size() >= kMaxUsers) {
      return absl::ResourceExhaustedError(absl::StrCat("there are ", kMaxUsers, " users, the limit"));
    }
    const NewToken made = MakeToken(request->name(), now, Nanos(request->life_ns()));
    response->set_token(made.secret);
    response->set_token_id(made.token.id);
    response->set_server(options_.reached_at());
    return std::vector<AccessChange>{User{request->name(), role, now}, made.token};
  });
}

void AdminService::ListUsers(const Call& call, const v1::ListUsersRequest*, v1::ListUsersResponse* response) {
  return Read(call, [this, response] {
    for (const User& user : book_.Users()) {
      v1::User& message = *response->add_users();
      message.set_name(user.name);
      message.set_role(Encode(user.role));
      message.set_created_unix_ns(user.created.value);
      for (const UserToken& token : book_.TokensOf(user.name)) {
        v1::Token& entry = *message.add_tokens();
        entry.set_id(token.id);
        entry.set_created_unix_ns(token.created.value);
        entry.set_expires_unix_ns(token.expires.value);
      }
    }
    return absl::OkStatus();
  });
}

void AdminService::RevokeUser(const Call& call, const v1::RevokeUserRequest* request, v1::RevokeUserResponse*) {
  return Change(call, request->name(), [=, this](Nanos now) -> absl::StatusOr<std::vector<AccessChange>> {
    const std::optional<User> user = book_.FindUser(request->name());
    if (!user.has_value()) return absl::NotFoundError(absl::StrCat("there is no user ", request->name()));
    if (user->role == Role::kAdmin && book_.AdminTokensWithout(user->name, "", now) == 0) {
      return absl::FailedPreconditionError(absl::StrCat(user->name, " is the last admin: add another first"));
    }
    return std::vector<AccessChange>{DeleteUser{user->name}};
  });
}

void AdminService::AddToken(const Call& call, const v1::AddTokenRequest* request, v1::AddTokenResponse* response) {
  return Change(call, request->user(), [=, this](Nanos now) -> absl::StatusOr<std::vector<AccessChange>> {
    LYNX_RETURN_IF_ERROR(CheckLife("life_ns", request->life_ns(), kMaxTokenLife));
    const std::optional<User> user = book_.FindUser(request->user());
    if (!user.has_value()) return absl::NotFoundError(absl::StrCat("there is no user ", request->user()));
    if (book_.TokensOf(user->name).size() >= kMaxTokensOfUser) {
      return absl::ResourceExhaustedError(
          absl::StrCat(user->name, " has ", kMaxTokensOfUser, " tokens, the limit: revoke one first"));
    }
    const NewToken made = MakeToken(user->name, now, Nanos(request->life_ns()));
    response->set_token(made.secret);
    response->set_token_id(made.token.id);
    response->set_server(options_.reached_at());
    return std::vector<AccessChange>{made.token};
  });
}

void AdminService::RevokeToken(const Call& call, const v1::RevokeTokenRequest* request, v1::RevokeTokenResponse*) {
  // An id has 8 characters. Other text is not recorded, because somebody may have given a secret by mistake.
  const std::string id = request->id().size() == 8 ? request->id() : "";
  return Change(call, id, [this, id](Nanos now) -> absl::StatusOr<std::vector<AccessChange>> {
    const std::optional<UserToken> token = book_.FindToken(id);
    if (!token.has_value()) {
      return absl::NotFoundError("there is no token of that id: 'lynxctl admin user list' shows those that there are");
    }
    const std::optional<User> user = book_.FindUser(token->user);
    if (user.has_value() && user->role == Role::kAdmin && book_.AdminTokensWithout("", token->id, now) == 0) {
      return absl::FailedPreconditionError(absl::StrCat("token ", id, " is the last one of an admin: add another first"));
    }
    return std::vector<AccessChange>{DeleteToken{token->id}};
  });
}

void AdminService::ListAudit(const Call& call, const v1::ListAuditRequest* request, v1::ListAuditResponse* response) {
  return Read(call, [this, request, response]() -> absl::Status {
    LYNX_RETURN_IF_ERROR(CheckRange("limit", request->limit(), 0, kMaxAudit));
    LYNX_ASSIGN_OR_RETURN(const std::vector<AuditRecord> records,
                          core_.store().LoadAudit(request->limit() == 0 ? kDefaultAudit : request->limit(),
                                                  request->before_sequence(), request->refused_only()));
    for (const AuditRecord& record : records) *response->add_records() = Encode(record);
    return absl::OkStatus();
  });
}

void AdminService::ListServers(const Call& call, const v1::ListServersRequest*, v1::ListServersResponse* response) {
  const Nanos now = core_.clock().Wall();
  for (const KnownServer& known : options_.servers()) *response->add_servers() = Encode(known, now);
  UnaryAnswer* answer = call.answer;
  answer->Finish(grpc::Status::OK);
}

}  // namespace lynx::server
