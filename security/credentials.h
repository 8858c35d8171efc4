// From files to gRPC's credentials. Channels read the files once: make a new channel to use newer ones. Servers follow them.
// Thread-safe.
//
// Between nodes: a daemon listens with ListenCredentials(directory, ClientCertificate::kRequired) and is dialled with
// PeerChannelCredentials(directory); both ends then know that the other is a node of the cluster, and where the dialling one
// names a node, that it has reached just that one. NodeIdentity has both as PeerCredentials.
#ifndef LYNX_SECURITY_CREDENTIALS_H_
#define LYNX_SECURITY_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "security/certificate.h"
#include "security/identity_directory.h"

namespace lynx {

enum class ClientCertificate : uint8_t {
  kOptional,  // one that is shown must be of the authority
  kRequired,
};
// Follows the directory's files, within a second.
std::shared_ptr<grpc::ServerCredentials> ListenCredentials(const IdentityDirectory& directory, ClientCertificate clients);

// To the server, as the node. The server's certificate must be of the directory's authority and name the host that is dialled.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> NodeChannelCredentials(const IdentityDirectory& directory);
// To the server, as nobody: people's token goes with each call.
std::shared_ptr<grpc::ChannelCredentials> AuthorityChannelCredentials(const std::string& authority_pem);
// To another node's daemon, as this node. The other end must be that node ("" = any node of the cluster), at whatever address.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> PeerChannelCredentials(const IdentityDirectory& directory,
                                                                                 const std::string& node = "");

// The certificate that the other end of a connection has shown and that gRPC has verified; nullopt: none.
std::optional<CertificateFacts> PeerCertificate(const grpc::AuthContext& connection);

}  // namespace lynx

#endif  // LYNX_SECURITY_CREDENTIALS_H_
