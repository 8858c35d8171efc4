// See access.h.
#include "server/values/access.h"

namespace lynx::server {
namespace {

constexpr const char* kRoleNames[kRoleCount] = {"viewer", "submitter", "operator", "admin"};

bool Holds(Nanos expires, Nanos now) { return expires == Nanos(0) || now < expires; }

template <class Value>
std::optional<Value> Found(const std::map<std::string, Value>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? std::nullopt : std::optional<Value>(found->second);
}

}  // namespace

const char* RoleName(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

std::optional<Role> ParseRole(const std::string& name) {
  for (int i = 0; i < kRoleCount; ++i) {
    if (name == kRoleNames[i]) return static_cast<Role>(i);
  }
  return std::nullopt;
}

void AccessBook::Apply(const std::vector<AccessChange>& changes) {
  const std::unique_lock lock(mutex_);
  for (const AccessChange& change : changes) {
    if (const auto* user = std::get_if<User>(&change)) {
      users_[user->name] = *user;
    } else if (const auto* token = std::get_if<UserToken>(&change)) {
      tokens_[token->digest] = *token;
    } else if (const auto* grant = std::get_if<JoinGrant>(&change)) {
      grants_[grant->digest] = *grant;
    } else if (const auto* certificate = std::get_if<NodeCertificate>(&change)) {
      certificates_[certificate->serial] = *certificate;
    } else if (const auto* gone_user = std::get_if<DeleteUser>(&change)) {
      users_.erase(gone_user->name);
      std::erase_if(tokens_, [&](const auto& entry) { return entry.second.user == gone_user->name; });
    } else if (const auto* gone_token = std::get_if<DeleteToken>(&change)) {
      std::erase_if(tokens_, [&](const auto& entry) { return entry.second.id == gone_token->id; });
    } else if (const auto* gone_grant = std::get_if<DeleteJoinGrant>(&change)) {
      grants_.erase(gone_grant->digest);
    } else {
      certificates_.erase(std::get<DeleteCertificate>(change).serial);
    }
  }
}

std::optional<User> AccessBook::UserOfToken(const std::string& digest, Nanos now) const {
  const std::shared_lock lock(mutex_);
  const auto token = tokens_.find(digest);
  if (token == tokens_.end() || !Holds(token->second.expires, now)) return std::nullopt;
  return Found(users_, token->second.user);
}

std::optional<JoinGrant> AccessBook::FindJoinGrant(const std::string& digest, Nanos now) const {
  const std::shared_lock lock(mutex_);
  std::optional<JoinGrant> grant = Found(grants_, digest);
  if (grant.has_value() && !Holds(grant->expires, now)) grant.reset();
  return grant;
}

std::optional<NodeCertificate> AccessBook::FindCertificate(const std::string& serial, Nanos now) const {
  const std::shared_lock lock(mutex_);
  std::optional<NodeCertificate> certificate = Found(certificates_, serial);
  if (certificate.has_value() && !Holds(certificate->ends, now)) certificate.reset();
  return certificate;
}

std::vector<NodeCertificate> AccessBook::CertificatesOf(const std::string& node, Nanos now) const {
  const std::shared_lock lock(mutex_);
  std::vector<NodeCertificate> found;
  for (const auto& [serial, certificate] : certificates_) {
    if (certificate.node == node && Holds(certificate.ends, now)) found.push_back(certificate);
  }
  return found;
}

std::optional<User> AccessBook::FindUser(const std::string& name) const {
  const std::shared_lock lock(mutex_);
  return Found(users_, name);
}

std::optional<UserToken> AccessBook::FindToken(const std::string& id) const {
  const std::shared_lock lock(mutex_);
  for (const auto& [digest, token] : tokens_) {
    if (token.id == id) return token;
  }
  return std::nullopt;
}

std::vector<User> AccessBook::Users() const {
  const std::shared_lock lock(mutex_);
  std::vector<User> users;
  for (const auto& [name, user] : users_) users.push_back(user);
  return users;
}

std::vector<UserToken> AccessBook::TokensOf(const std::string& user) const {
  const std::shared_lock lock(mutex_);
  std::vector<UserToken> tokens;
  for (const auto& [digest, token] : tokens_) {
    if (token.user == user) tokens.push_back(token);
  }
  return tokens;
}

std::vector<JoinGrant> AccessBook::JoinGrants() const {
  const std::shared_lock lock(mutex_);
  std::vector<JoinGrant> grants;
  for (const auto& [digest, grant] : grants_) grants.push_back(grant);
  return grants;
}

int AccessBook::AdminTokensWithout(const std::string& user, const std::string& token_id, Nanos now) const {
  const std::shared_lock lock(mutex_);
  int left = 0;
  for (const auto& [digest, token] : tokens_) {
    const std::optional<User> owner = Found(users_, token.user);
    left += owner.has_value() && owner->role == Role::kAdmin && Holds(token.expires, now) && token.user != user &&
            token.id != token_id;
  }
  return left;
}

std::vector<AccessChange> AccessBook::Expired(Nanos now) const {
  const std::shared_lock lock(mutex_);
  std::vector<AccessChange> expired;
  for (const auto& [digest, grant] : grants_) {
    if (!Holds(grant.expires, now)) expired.push_back(DeleteJoinGrant{digest});
  }
  for (const auto& [serial, certificate] : certificates_) {
    if (!Holds(certificate.ends, now)) expired.push_back(DeleteCertificate{serial});
  }
  return expired;
}

}  // namespace lynx::server
