// AccessBook: who may call: users with their tokens, join tokens, and the certificates of nodes. It holds digests, never
// secrets. What it says is the fold of its changes, which the store keeps.
//
// Thread-safe: all may read; the owner thread applies changes, after the store has them.
#ifndef LYNX_SERVER_VALUES_ACCESS_H_
#define LYNX_SERVER_VALUES_ACCESS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <variant>
#include <vector>

#include "common/units.h"

namespace lynx {

// Each may do what those before it may.
enum class Role : uint8_t { kViewer, kSubmitter, kOperator, kAdmin };
inline constexpr int kRoleCount = 4;
const char* RoleName(Role role);  // "viewer"
std::optional<Role> ParseRole(const std::string& name);

// Times are Unix.
struct User {
  std::string name;
  Role role = Role::kViewer;
  Nanos created;
};
struct UserToken {
  std::string id;      // not secret
  std::string digest;  // SecretDigest
  std::string user;
  Nanos created;
  Nanos expires;  // 0 = no end
};
// A join token that has not been used.
struct JoinGrant {
  std::string digest;
  std::string node;  // "" = any that has no certificate
  Nanos created;
  Nanos expires;
};
struct NodeCertificate {
  std::string serial;
  std::string node;
  Nanos issued;
  Nanos ends;
};
// With the user's tokens.
struct DeleteUser {
  std::string name;
};
struct DeleteToken {
  std::string id;
};
struct DeleteJoinGrant {
  std::string digest;
};
struct DeleteCertificate {
  std::string serial;
};
// Users are put before their tokens.
using AccessChange =
    std::variant<User, UserToken, JoinGrant, NodeCertificate, DeleteUser, DeleteToken, DeleteJoinGrant, DeleteCertificate>;

class AccessBook {
 public:
  void Apply(const std::vector<AccessChange>& changes);

  // What does not hold at `now` is not found.
  std::optional<User> UserOfToken(const std::string& digest, Nanos now) const;
  std::optional<JoinGrant> FindJoinGrant(const std::string& digest, Nanos now) const;
  std::optional<NodeCertificate> FindCertificate(const std::string& serial, Nanos now) const;
  std::vector<NodeCertificate> CertificatesOf(const std::string& node, Nanos now) const;

  std::optional<User> FindUser(const std::string& name) const;
  std::optional<UserToken> FindToken(const std::string& id) const;
  std::vector<User> Users() const;  // by name
  std::vector<UserToken> TokensOf(const std::string& user) const;
  std::vector<JoinGrant> JoinGrants() const;
  // Tokens of admins that hold at `now`, but for those of the user and the one token: what is left when they go.
  int AdminTokensWithout(const std::string& user, const std::string& token_id, Nanos now) const;
  // What has ended by `now` and is of no more use: join tokens and certificates.
  std::vector<AccessChange> Expired(Nanos now) const;

 private:
  mutable std::shared_mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, User> users_;                    // by name
  std::map<std::string, UserToken> tokens_;              // by digest
  std::map<std::string, JoinGrant> grants_;              // by digest
  std::map<std::string, NodeCertificate> certificates_;  // by serial
};

}  // namespace lynx

#endif  // LYNX_SERVER_VALUES_ACCESS_H_
