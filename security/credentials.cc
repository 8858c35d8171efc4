// See credentials.h.
#include "security/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "common/status.h"

namespace lynx {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kFollowSeconds = 1;

// gRPC has already verified that the other end's certificate is from the authority. This class checks which node the
// certificate names.
class NodeVerifier : public tls::ExternalCertificateVerifier {
 public:
  // `node`: the node that the certificate must name; empty: any node.
  explicit NodeVerifier(const std::string& node) : any_(node.empty()), uri_(NodeUri(node)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const std::vector<grpc::string_ref> uris = request->uri_names();
    const std::string uri = uris.size() == 1 ? std::string(uris[0].data(), uris[0].size()) : "";
    const bool is_it = any_ ? absl::StartsWith(uri, uri_) : uri == uri_;
    *status = is_it ? grpc::Status::OK
                    : grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                   absl::StrCat("who answers there is not ", any_ ? "a node" : uri_));
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const bool any_;
  const std::string uri_;  // the URI that the certificate must have; if any_, only the beginning of the URI
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ListenCredentials(const IdentityDirectory& directory, ClientCertificate clients) {
  tls::TlsServerCredentialsOptions options(std::make_shared<tls::FileWatcherCertificateProvider>(
      directory.private_key_path(), directory.certificate_path(), directory.authority_path(), kFollowSeconds));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(clients == ClientCertificate::kRequired
                                    ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                    : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> NodeChannelCredentials(const IdentityDirectory& directory) {
  LYNX_ASSIGN_OR_RETURN(const Identity identity, directory.Read());
  return grpc::SslCredentials(
      {.pem_root_certs = identity.authority, .pem_private_key = identity.private_key, .pem_cert_chain = identity.certificate});
}

std::shared_ptr<grpc::ChannelCredentials> AuthorityChannelCredentials(const std::string& authority_pem) {
  return grpc::SslCredentials({.pem_root_certs = authority_pem, .pem_private_key = "", .pem_cert_chain = ""});
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> PeerChannelCredentials(const IdentityDirectory& directory,
                                                                                 const std::string& node) {
  LYNX_ASSIGN_OR_RETURN(const Identity identity, directory.Read());
  const std::vector<tls::IdentityKeyCertPair> pairs = {
      {.private_key = identity.private_key, .certificate_chain = identity.certificate}};
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls::StaticDataCertificateProvider>(identity.authority, pairs));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<NodeVerifier>(node));
  options.set_check_call_host(false);  // a node's certificate contains the node's name, not its addresses
  return tls::TlsCredentials(options);
}

std::optional<CertificateFacts> PeerCertificate(const grpc::AuthContext& connection) {
  const std::vector<grpc::string_ref> shown = connection.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (shown.size() != 1) return std::nullopt;
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(std::string(shown[0].data(), shown[0].size()));
  if (!facts.ok()) return std::nullopt;
  return *facts;
}

}  // namespace lynx
