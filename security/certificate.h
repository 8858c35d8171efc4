// Certificates as values: what one says, and what a node needs to get one. Pure but for randomness; thread-safe.
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
  std::vector<std::string> uris;  // of its alternative names
  Nanos begins;                   // Unix
  Nanos ends;
  bool authority = false;  // it may sign others
};
// InvalidArgument where it is not one certificate, or more, in PEM form; the first is read.
absl::StatusOr<CertificateFacts> ReadCertificate(const std::string& pem);
// SHA-256 of its DER form.
absl::StatusOr<std::string> CertificateDigest(const std::string& pem);

// The name that a node's certificate has, as "lynx://node/NAME"; nullopt: it is not one node's.
std::string NodeUri(const std::string& node);
std::optional<std::string> NodeOf(const CertificateFacts& facts);

// When the one whose certificate it is gets the next: when two thirds of its life are over.
Nanos RotationTime(const CertificateFacts& facts);

// A private key, PKCS #8, PEM.
absl::StatusOr<std::string> NewPrivateKey();
// A request for a certificate of that key, PKCS #10, PEM. It names nobody: who asks is known by other means.
absl::StatusOr<std::string> NewRequest(const std::string& private_key);
// InvalidArgument unless the key is the certificate's.
absl::Status CheckKeyFits(const std::string& certificate, const std::string& private_key);

}  // namespace lynx

#endif  // LYNX_SECURITY_CERTIFICATE_H_
