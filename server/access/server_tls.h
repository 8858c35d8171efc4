// ServerTls: the cluster's authority and the server's own certificate. The certificate is new at each start and is renewed
// after two thirds of its lifetime. The directory holds ca.key, ca.pem and an IdentityDirectory; only its owner may read them.
//
// A thread of its own renews the certificate. Thread-safe.
#ifndef LYNX_SERVER_ACCESS_SERVER_TLS_H_
#define LYNX_SERVER_ACCESS_SERVER_TLS_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
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
  // Opens the authority in `directory` and issues the server's certificate. `names`: the names by which clients reach the
  // server. `life`: the lifetime of the certificate. Errors are those of Authority::Open and IssueServer.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Open(const std::string& directory, std::vector<std::string> names,
                                                         Nanos life, const Clock& clock);
  ~ServerTls();

  const Authority& authority() const { return authority_; }
  // Nodes prove who they are with a certificate. People use tokens instead, so their clients need no certificate.
  std::shared_ptr<grpc::ServerCredentials> credentials() const;

 private:
  ServerTls(Authority authority, IdentityDirectory directory, std::vector<std::string> names, Nanos life, const Clock& clock)
      : authority_(std::move(authority)), directory_(std::move(directory)), names_(std::move(names)), life_(life),
        clock_(clock) {}

  absl::Status Renew();
  void RenewForever();

  const Authority authority_;
  const IdentityDirectory directory_;
  const std::vector<std::string> names_;
  const Nanos life_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

// The names by which clients may reach a server that listens on this numeric address. They are the address itself, the
// machine's name, and loopback. The unspecified address stands for all addresses of this machine.
std::vector<std::string> NamesOf(const std::string& listen_host);

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_SERVER_TLS_H_
