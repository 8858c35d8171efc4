// Certificates as values: reading them, and creating the keys and requests for them. Pure except for randomness; thread-safe.
#ifndef LYNX_SECURITY_CERTIFICATE_H_
#define LYNX_SECURITY_CERTIFICATE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

struct CertificateFacts {
  std::string serial;             // hexadecimal, lower case
  std::vector<std::string> uris;  // from its alternative names
  Nanos begins;                   // Unix
  Nanos ends;
  bool authority = false;  // it may sign other certificates
};
// InvalidArgument: the text is not one or more certificates in PEM form. Reads the first certificate.
absl::StatusOr<CertificateFacts> ReadCertificate(const std::string& pem);
// SHA-256 of the certificate's DER form.
absl::StatusOr<std::string> CertificateDigest(const std::string& pem);

// The name in a node's certificate, "lynx://node/NAME"; nullopt: it is not the certificate of one node.
std::string NodeUri(const std::string& node);
std::optional<std::string> NodeOf(const CertificateFacts& facts);

// The time when a certificate is renewed: after two thirds of its lifetime.
Nanos RotationTime(const CertificateFacts& facts);

// A new private key, PKCS #8, PEM.
absl::StatusOr<std::string> NewPrivateKey();
// A certificate request for this key, PKCS #10, PEM. It contains no name, because the requester is identified in another way.
absl::StatusOr<std::string> NewRequest(const std::string& private_key);
// InvalidArgument unless the key belongs to the certificate.
absl::Status CheckKeyFits(const std::string& certificate, const std::string& private_key);

}  // namespace lynx

#endif  // LYNX_SECURITY_CERTIFICATE_H_
