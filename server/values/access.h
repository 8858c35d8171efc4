// AccessBook: who may call the server. It holds users with their tokens, join tokens, and certificates of nodes. It stores
// digests of secrets, never the secrets. Its content is the result of applying all its changes in order; the store keeps these
// changes.
//
// Thread-safe: every thread may read. Only the owner thread applies changes, after the store has written them.
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

namespace lynx::server {

// Roles in ascending order: each may do everything that the roles before it may do.
enum class Role : uint8_t { kViewer, kSubmitter, kOperator, kAdmin };
inline constexpr int kRoleCount = 4;
// The name of every caller of an open server, which is an admin. No user may have this name.
inline constexpr char kLocalUser[] = "local";
const char* RoleName(Role role);  // "viewer"
std::optional<Role> ParseRole(const std::string& name);

// All times are Unix times.
struct User {
  std::string name;
  Role role = Role::kViewer;
  Nanos created;
};
struct UserToken {
  std::string id;      // not secret
  std::string digest;  // SecretDigest of the token
  std::string user;
  Nanos created;
  Nanos expires;  // 0: the token does not expire
};
// A join token that has not been used.
struct JoinGrant {
  std::string digest;
  std::string node;  // empty: any node that has no certificate
  Nanos created;
  Nanos expires;
};
struct NodeCertificate {
  std::string serial;
  std::string node;
  Nanos issued;
  Nanos ends;
};
// Deletes the user and all tokens of the user.
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
// A change that adds a user comes before the changes that add the user's tokens.
using AccessChange =
    std::variant<User, UserToken, JoinGrant, NodeCertificate, DeleteUser, DeleteToken, DeleteJoinGrant, DeleteCertificate>;

class AccessBook {
 public:
  void Apply(const std::vector<AccessChange>& changes);

  // The next functions find only entries that are valid at `now`.
  std::optional<User> UserOfToken(const std::string& digest, Nanos now) const;
  std::optional<JoinGrant> FindJoinGrant(const std::string& digest, Nanos now) const;
  std::optional<NodeCertificate> FindCertificate(const std::string& serial, Nanos now) const;
  std::vector<NodeCertificate> CertificatesOf(const std::string& node, Nanos now) const;

  std::optional<User> FindUser(const std::string& name) const;
  std::optional<UserToken> FindToken(const std::string& id) const;
  std::vector<User> Users() const;  // all users, by name
  std::vector<UserToken> TokensOf(const std::string& user) const;
  std::vector<JoinGrant> JoinGrants() const;
  // Number of valid admin tokens that would remain after the tokens of `user` and the token `token_id` are deleted.
  int AdminTokensWithout(const std::string& user, const std::string& token_id, Nanos now) const;
  // The changes that delete the join tokens and certificates that have expired by `now`.
  std::vector<AccessChange> Expired(Nanos now) const;

 private:
  mutable std::shared_mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, User> users_;                    // the key is the name
  std::map<std::string, UserToken> tokens_;              // the key is the digest of the token
  std::map<std::string, JoinGrant> grants_;              // the key is the digest of the join token
  std::map<std::string, NodeCertificate> certificates_;  // the key is the serial number
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_ACCESS_H_
