// NodeIdentity: the certificate by which the server knows this node. It is got once, with a join token, and renewed when two
// thirds of its life are over, by a call that the old one vouches for. The agent and the worker daemon of a node share it: who
// comes first gets or renews it, the other finds it.
//
// Opening blocks on the network; then one thread renews. Thread-safe.
#ifndef LYNX_SECURITY_NODE_IDENTITY_H_
#define LYNX_SECURITY_NODE_IDENTITY_H_

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "node/channel.h"
#include "node/flags.h"
#include "security/certificate.h"
#include "security/identity_directory.h"

namespace lynx {

// What the command line of a node's daemon says of it.
struct IdentityFlags {
  std::string directory;        // "" = none: calls go in plain text
  std::string join_token_file;  // "" = $LYNX_JOIN_TOKEN, if set
  std::vector<Flag> All();
};

class NodeIdentity {
 public:
  // The node's certificate, got with the join token if the directory has none that still holds. The token is taken out of the
  // environment, so that no rank inherits it. nullptr: `flags` name no directory. FailedPrecondition: no certificate and no
  // token, or the certificate of another node; Unavailable: the server does not answer; else what the server says.
  static absl::StatusOr<std::unique_ptr<NodeIdentity>> Open(const IdentityFlags& flags, const std::string& node,
                                                            const std::string& server, const Clock& clock);
  ~NodeIdentity();

  const IdentityDirectory& directory() const { return directory_; }

 private:
  NodeIdentity(IdentityDirectory directory, std::string node, std::string server, const Clock& clock)
      : directory_(std::move(directory)), node_(std::move(node)), server_(std::move(server)), clock_(clock) {}

  absl::Status GetCertificate(const std::string& join_token);
  absl::Status Join(const std::string& join_token);
  absl::StatusOr<CertificateFacts> Check(const Identity& identity) const;
  void RenewForever();
  absl::Status RenewIfDue();

  const IdentityDirectory directory_;
  const std::string node_, server_;
  const Clock& clock_;
  std::atomic<bool> stop_{false};  // written under the lock
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

// For Dial: reads the identity anew for each connection; null without one.
CredentialSource CredentialsOf(const NodeIdentity* identity);

// For a daemon that other nodes' daemons dial, and that dials them: only nodes of the cluster, both ways.
struct PeerCredentials {
  std::shared_ptr<grpc::ServerCredentials> listen = grpc::InsecureServerCredentials();
  CredentialSource dial;  // null: plain text
};
// Plain text without an identity.
PeerCredentials PeerCredentialsOf(const NodeIdentity* identity);

}  // namespace lynx

#endif  // LYNX_SECURITY_NODE_IDENTITY_H_
