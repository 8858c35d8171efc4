// ServerTls: the cluster's authority and the server's own certificate. The certificate is new at each start. It and the
// authority's certificate are renewed after two thirds of their lifetimes. The directory holds ca.key, ca.pem and an
// IdentityDirectory; only its owner may read them.
//
// A thread of its own renews the certificates. Thread-safe.
#ifndef LYNX_SERVER_ACCESS_SERVER_TLS_H_
#define LYNX_SERVER_ACCESS_SERVER_TLS_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "security/authority.h"
#include "security/identity_directory.h"

namespace lynx::server {

class ServerTls {
 public:
  // The lifetimes of new certificates.
  struct Lives {
    Nanos server, authority;
  };
  // Opens the authority in `directory`, renews its certificate if that is due, and issues the server's certificate. `names`:
  // the names by which clients reach the server. `renews`: asked whether this server renews the authority's certificate, which
  // only one of several may do; null: it does. Errors are those of Authority::Open, Renew and IssueServer.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Open(const std::string& directory, std::vector<std::string> names,
                                                         Lives lives, const Clock& clock,
                                                         std::function<bool()> renews = nullptr);
  ~ServerTls();

  // The authority with its present certificate.
  std::shared_ptr<const Authority> authority() const;
  // Reads the authority's certificate again, which was replaced in the directory. The server's own certificate follows.
  absl::Status Reload();
  // Nodes prove who they are with a certificate. People use tokens instead, so their clients need no certificate.
  std::shared_ptr<grpc::ServerCredentials> credentials() const;

 private:
  ServerTls(Authority authority, IdentityDirectory directory, std::vector<std::string> names, Lives lives, const Clock& clock,
            std::function<bool()> renews)
      : directory_(std::move(directory)), names_(std::move(names)), lives_(lives), clock_(clock), renews_(std::move(renews)),
        authority_(std::make_shared<const Authority>(std::move(authority))) {}

  // Renews the authority's certificate if that is due.
  absl::Status RenewAuthority();
  absl::Status Renew();
  void RenewForever();

  const IdentityDirectory directory_;
  const std::vector<std::string> names_;
  const Lives lives_;
  const Clock& clock_;
  const std::function<bool()> renews_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Authority> authority_;  // guarded by mutex_
  std::condition_variable changed_;
  bool stop_ = false;      // guarded by mutex_
  bool reloaded_ = false;  // guarded by mutex_
  std::thread thread_;
};

// The names by which clients may reach a server that listens on this numeric address. They are the address itself, the
// machine's name, and loopback. The unspecified address stands for all addresses of this machine.
std::vector<std::string> NamesOf(const std::string& listen_host);

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_SERVER_TLS_H_
