// NodeIdentity: the certificate by which the server knows this node. The node gets it once, with a join token. It is renewed
// after two thirds of its lifetime, by a call that the old certificate authenticates. The agent and the worker daemon of a node
// share the certificate: the first of them gets or renews it, and the other finds it.
//
// Open blocks on the network; after that, one thread renews the certificate. Thread-safe.
#ifndef LYNX_SECURITY_NODE_IDENTITY_H_
#define LYNX_SECURITY_NODE_IDENTITY_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "lynx/v1/admin.pb.h"
#include "node/channel.h"
#include "node/flags.h"
#include "node/server_addresses.h"
#include "security/certificate.h"
#include "security/identity_directory.h"
#include "security/join_token.h"

namespace lynx {

// The flags of a node's daemon that concern its identity.
struct IdentityFlags {
  std::string directory;        // empty: no identity, so calls use plain text
  std::string join_token_file;  // empty: the token is in $LYNX_JOIN_TOKEN, if that is set
  std::vector<Flag> All();
};

class NodeIdentity {
 public:
  // Opens the identity of this node. If the directory has no valid certificate, gets one with the join token. Removes the token
  // from the environment, so that ranks do not inherit it. nullptr: `flags` name no directory. FailedPrecondition: there is
  // neither a certificate nor a token, or the certificate is for another node. Unavailable: no server that leads answers. Other
  // errors come from a server.
  static absl::StatusOr<std::unique_ptr<NodeIdentity>> Open(const IdentityFlags& flags, const std::string& node,
                                                            const ServerAddresses& servers, const Clock& clock);
  ~NodeIdentity();

  const IdentityDirectory& directory() const { return directory_; }

 private:
  NodeIdentity(IdentityDirectory directory, std::string node, ServerAddresses servers, const Clock& clock)
      : directory_(std::move(directory)), node_(std::move(node)), servers_(std::move(servers)), clock_(clock) {}

  // How a call to one server ended.
  struct Attempt {
    absl::Status status;
    // The server that leads has read the call, so another address would not do better.
    bool final = false;
    std::string leader = {};  // whom a server that stands by has named; "": nobody
  };
  // Calls `ask` for the addresses in turn, until one attempt succeeds or is final. If none is, the error names all addresses
  // that were tried, and it is Unavailable if a later round may do better.
  absl::Status AskLeader(const std::function<Attempt(const std::string& server)>& ask);
  // Time limit for a connection to one address.
  Nanos ConnectLimit() const;
  Attempt AttemptOf(const std::string& server, const grpc::Status& status, const grpc::ClientContext& context) const;
  absl::Status GetCertificate(const std::string& join_token);
  Attempt JoinAt(const std::string& server, const JoinToken& token);
  Attempt RotateAt(const std::string& server, const v1::RotateCertificateRequest& request,
                   v1::RotateCertificateResponse& response);
  absl::StatusOr<CertificateFacts> Check(const Identity& identity) const;
  void RenewForever();
  absl::Status RenewIfDue();

  const IdentityDirectory directory_;
  const std::string node_;
  ServerAddresses servers_;  // used by Open, and later only by thread_
  const Clock& clock_;
  std::atomic<bool> stop_{false};  // written only while mutex_ is held
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

// The source of credentials for Dial. It reads the identity again for each connection. Null if there is no identity.
CredentialSource CredentialsOf(const NodeIdentity* identity);

// Credentials for a daemon that connects to other nodes' daemons and accepts their connections. In both directions, the other
// end must be a node of the cluster.
struct PeerCredentials {
  std::shared_ptr<grpc::ServerCredentials> listen = grpc::InsecureServerCredentials();
  CredentialSource dial;  // null: plain text
};
// If there is no identity, the credentials of both directions use plain text.
PeerCredentials PeerCredentialsOf(const NodeIdentity* identity);

}  // namespace lynx

#endif  // LYNX_SECURITY_NODE_IDENTITY_H_
