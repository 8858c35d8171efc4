// The store's tables for access control and for audit records. See store.h.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "server/store/store.h"

namespace lynx::server {
namespace {

// Records of refusals have a limit of their own, because anybody can cause refusals. Without it they would push out the records
// of changes.
constexpr int64_t kKeptRefusals = 10'000;
constexpr int64_t kKeptChanges = 1'000'000;

}  // namespace

absl::Status Store::WriteAccess(const AccessChange& change) {
  if (const auto* user = std::get_if<User>(&change)) {
    Statement put = Kept(PutStatement("users", {"name"}, {"role", "created_ns"}));
    return put.Bind(user->name).Bind(std::string(RoleName(user->role))).Bind(user->created.value).Run();
  }
  if (const auto* token = std::get_if<UserToken>(&change)) {
    Statement put = Kept("INSERT INTO tokens VALUES(?, ?, ?, ?, ?)");
    return put.Bind(token->id)
        .Bind(token->digest)
        .Bind(token->user)
        .Bind(token->created.value)
        .Bind(token->expires.value)
        .Run();
  }
  if (const auto* grant = std::get_if<JoinGrant>(&change)) {
    Statement put = Kept("INSERT INTO join_tokens VALUES(?, ?, ?, ?)");
    return put.Bind(grant->digest).Bind(grant->node).Bind(grant->created.value).Bind(grant->expires.value).Run();
  }
  if (const auto* certificate = std::get_if<NodeCertificate>(&change)) {
    Statement put = Kept("INSERT INTO certificates VALUES(?, ?, ?, ?)");
    return put.Bind(certificate->serial)
        .Bind(certificate->node)
        .Bind(certificate->issued.value)
        .Bind(certificate->ends.value)
        .Run();
  }
  if (const auto* user = std::get_if<DeleteUser>(&change)) {
    Statement tokens = Kept("DELETE FROM tokens WHERE \"user\"=?");
    LYNX_RETURN_IF_ERROR(tokens.Bind(user->name).Run());
    Statement gone = Kept("DELETE FROM users WHERE name=?");
    return gone.Bind(user->name).Run();
  }
  if (const auto* token = std::get_if<DeleteToken>(&change)) {
    Statement gone = Kept("DELETE FROM tokens WHERE id=?");
    return gone.Bind(token->id).Run();
  }
  if (const auto* grant = std::get_if<DeleteJoinGrant>(&change)) {
    Statement gone = Kept("DELETE FROM join_tokens WHERE digest=?");
    return gone.Bind(grant->digest).Run();
  }
  Statement gone = Kept("DELETE FROM certificates WHERE serial=?");
  return gone.Bind(std::get<DeleteCertificate>(change).serial).Run();
}

absl::Status Store::WriteAudit(const AuditRecord& record) {
  Statement insert = Kept(
      "INSERT INTO audit(sequence, time_ns, who, origin, what, target, outcome, detail, refused) "
      "VALUES((SELECT coalesce(max(sequence), 0) + 1 FROM audit), ?, ?, ?, ?, ?, ?, ?, ?)");
  LYNX_RETURN_IF_ERROR(insert.Bind(record.time.value)
                           .Bind(record.who)
                           .Bind(record.from)
                           .Bind(record.what)
                           .Bind(record.target)
                           .Bind(record.outcome)
                           .Bind(record.detail)
                           .Bind(record.refused ? 1 : 0)
                           .Run());
  Statement trim = Kept(record.refused ? "DELETE FROM audit WHERE refused=1 AND sequence <= (SELECT sequence FROM "
                                         "audit WHERE refused=1 ORDER BY sequence DESC LIMIT 1 OFFSET ?)"
                                       : "DELETE FROM audit WHERE sequence <= (SELECT max(sequence) FROM audit) - ?");
  return trim.Bind(record.refused ? kKeptRefusals : kKeptChanges).Run();
}

absl::Status Store::CommitAccess(const std::vector<AccessChange>& changes, const AuditRecord& record) {
  return Transact([&](int64_t) -> absl::Status {
    for (const AccessChange& change : changes) LYNX_RETURN_IF_ERROR(WriteAccess(change));
    return WriteAudit(record);
  });
}

absl::StatusOr<std::vector<AccessChange>> Store::LoadAccess() {
  std::vector<AccessChange> changes;
  Statement users = Select("SELECT name, role, created_ns FROM users");
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(users));
    if (!more) break;
    const std::optional<Role> role = ParseRole(users.Text(1));
    if (!role.has_value()) return Damaged(absl::StrCat("user ", users.Text(0), " has an unknown role"));
    changes.push_back(User{users.Text(0), *role, Nanos(users.Int(2))});
  }
  Statement tokens = Select("SELECT id, digest, \"user\", created_ns, expires_ns FROM tokens");
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(tokens));
    if (!more) break;
    changes.push_back(UserToken{tokens.Text(0), tokens.Text(1), tokens.Text(2), Nanos(tokens.Int(3)), Nanos(tokens.Int(4))});
  }
  Statement grants = Select("SELECT digest, node, created_ns, expires_ns FROM join_tokens");
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(grants));
    if (!more) break;
    changes.push_back(JoinGrant{grants.Text(0), grants.Text(1), Nanos(grants.Int(2)), Nanos(grants.Int(3))});
  }
  Statement certificates = Select("SELECT serial, node, issued_ns, ends_ns FROM certificates");
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(certificates));
    if (!more) return changes;
    changes.push_back(
        NodeCertificate{certificates.Text(0), certificates.Text(1), Nanos(certificates.Int(2)), Nanos(certificates.Int(3))});
  }
}

absl::StatusOr<std::vector<AuditRecord>> Store::LoadAudit(int64_t limit, int64_t before, bool refused_only) {
  Statement row =
      Select(absl::StrCat("SELECT sequence, time_ns, who, origin, what, target, outcome, detail, refused FROM audit "
                          "WHERE ",
                          refused_only ? "refused=1 AND " : "", "(?=0 OR sequence<?) ORDER BY sequence DESC LIMIT ?"));
  row.Bind(before).Bind(before).Bind(limit);
  std::vector<AuditRecord> records;
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(row));
    if (!more) return records;
    records.push_back({.sequence = row.Int(0),
                       .time = Nanos(row.Int(1)),
                       .who = row.Text(2),
                       .from = row.Text(3),
                       .what = row.Text(4),
                       .target = row.Text(5),
                       .outcome = row.Text(6),
                       .detail = row.Text(7),
                       .refused = row.Int(8) != 0});
  }
}

absl::StatusOr<std::map<std::string, std::string>> Store::LoadShared() {
  std::map<std::string, std::string> values;
  Statement row = Select("SELECT name, value FROM lynx_shared");
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(row));
    if (!more) return values;
    values[row.Text(0)] = row.Text(1);
  }
}

absl::Status Store::PutShared(const std::map<std::string, std::string>& values) {
  return Transact([&](int64_t) -> absl::Status {
    for (const auto& [name, value] : values) {
      Statement statement = Kept(PutStatement("lynx_shared", {"name"}, {"value"}));
      LYNX_RETURN_IF_ERROR(statement.Bind(name).BindBlob(value).Run());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> Store::IsUsed() {
  Statement count = Select("SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM users) + (SELECT count(*) FROM nodes)");
  LYNX_RETURN_IF_ERROR(Next(count).status());
  return count.Int(0) > 0;
}

}  // namespace lynx::server
