// AdminService: the RPCs of proto/lynx/v1/admin.proto. The owner thread checks a change and writes it with its audit record, in
// a separate transaction, before the change takes effect. It runs on the owner thread so that each change sees all earlier
// ones. Such changes are rare, so they delay the owner thread little. Thread-safe; must not outlive the core.
#ifndef LYNX_SERVER_SERVICES_ADMIN_SERVICE_H_
#define LYNX_SERVER_SERVICES_ADMIN_SERVICE_H_

#include <functional>
#include <string>
#include <vector>

#include "lynx/v1/admin.pb.h"
#include "server/access/guard.h"
#include "server/access/server_tls.h"
#include "server/loop/core.h"
#include "server/values/access.h"
#include "server/values/server_identity.h"

namespace lynx::server {

struct AdminOptions {
  const ServerTls* tls = nullptr;  // null: no TLS
  Nanos node_certificate_life;
  // Returns HOST:PORT by which other machines reach the server, or several with commas: this server's first, then those that
  // may lead after it. Empty: they cannot reach it, or its address is unknown. Thread-safe.
  std::function<std::string()> reached_at;
  // The servers of this store, this one among them. Thread-safe.
  std::function<std::vector<KnownServer>()> servers;
};

// A new token of a user: the part that the store keeps, and the secret, which is shown to a person only once.
struct NewToken {
  UserToken token;
  std::string secret;
};
NewToken MakeToken(const std::string& user, Nanos now, Nanos life);

class AdminService {
 public:
  AdminService(ServerCore& core, AccessBook& book, AdminOptions options) : core_(core), book_(book), options_(options) {}

  void WhoAmI(const Call& call, const v1::WhoAmIRequest* request, v1::WhoAmIResponse* response);
  void CreateJoinToken(const Call& call, const v1::CreateJoinTokenRequest* request, v1::CreateJoinTokenResponse* response);
  void RevokeJoinTokens(const Call& call, const v1::RevokeJoinTokensRequest* request, v1::RevokeJoinTokensResponse* response);
  void Join(const Call& call, const v1::JoinRequest* request, v1::JoinResponse* response);
  void RotateCertificate(const Call& call, const v1::RotateCertificateRequest* request,
                         v1::RotateCertificateResponse* response);
  void RevokeNode(const Call& call, const v1::RevokeNodeRequest* request, v1::RevokeNodeResponse* response);
  void AddUser(const Call& call, const v1::AddUserRequest* request, v1::AddUserResponse* response);
  void ListUsers(const Call& call, const v1::ListUsersRequest* request, v1::ListUsersResponse* response);
  void RevokeUser(const Call& call, const v1::RevokeUserRequest* request, v1::RevokeUserResponse* response);
  void AddToken(const Call& call, const v1::AddTokenRequest* request, v1::AddTokenResponse* response);
  void RevokeToken(const Call& call, const v1::RevokeTokenRequest* request, v1::RevokeTokenResponse* response);
  void ListAudit(const Call& call, const v1::ListAuditRequest* request, v1::ListAuditResponse* response);
  void ListServers(const Call& call, const v1::ListServersRequest* request, v1::ListServersResponse* response);

 private:
  // Checks a requested change and returns what it consists of. Runs on the owner thread. If it returns an error, the error is
  // recorded, and nothing is changed.
  using Decide = std::function<absl::StatusOr<std::vector<AccessChange>>(Nanos now)>;
  void Change(const Call& call, const std::string& target, Decide decide);
  void Read(const Call& call, std::function<absl::Status()> read);

  // Issues the certificate for the request. Returns the changes that enter it into the AccessBook.
  absl::StatusOr<std::vector<AccessChange>> Certify(const std::string& request, const std::string& node, Nanos now,
                                                    std::string* certificate) const;
  absl::StatusOr<std::vector<AccessChange>> DecideJoin(const v1::JoinRequest& request, Nanos now,
                                                       std::string* certificate) const;

  ServerCore& core_;
  AccessBook& book_;
  const AdminOptions options_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_ADMIN_SERVICE_H_
