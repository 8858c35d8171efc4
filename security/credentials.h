// Creates gRPC credentials from files. A channel reads the files once, so newer files need a new channel; servers reload
// changed files. Thread-safe.
//
// For connections between nodes, a daemon listens with ListenCredentials(directory, ClientCertificate::kRequired), and others
// connect with PeerChannelCredentials(directory). Then both ends know that the other end is a node of the cluster. A client
// that names a node also knows that it has reached that node. NodeIdentity provides the credentials of both ends as
// PeerCredentials.
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
  kOptional,  // a client may have no certificate; if it presents one, this must be from the authority
  kRequired,
};
// Reloads the directory's files within a second of a change.
std::shared_ptr<grpc::ServerCredentials> ListenCredentials(const IdentityDirectory& directory, ClientCertificate clients);

// Credentials for calls to the server as the node. The server's certificate must be from the directory's authority and name the
// host in the address.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> NodeChannelCredentials(const IdentityDirectory& directory);
// Credentials for calls to the server without a certificate: a person's token is sent with each call.
std::shared_ptr<grpc::ChannelCredentials> AuthorityChannelCredentials(const std::string& authority_pem);
// Credentials for calls to another node's daemon as this node. The other end must be the node with the name `node`, or any node
// of the cluster if `node` is empty. The address of the other end does not matter.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> PeerChannelCredentials(const IdentityDirectory& directory,
                                                                                 const std::string& node = "");

// The certificate that the other end of a connection has presented and gRPC has verified; nullopt: there is no such
// certificate.
std::optional<CertificateFacts> PeerCertificate(const grpc::AuthContext& connection);

}  // namespace lynx

#endif  // LYNX_SECURITY_CREDENTIALS_H_
