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
  std::vector<std::string> uris;  // the URIs among the certificate's alternative names
  Nanos begins;                   // Unix time
  Nanos ends;
  bool authority = false;  // the certificate may sign other certificates
};
// Reads the first certificate of the text. InvalidArgument: the text contains no certificate in PEM form.
absl::StatusOr<CertificateFacts> ReadCertificate(const std::string& pem);
// SHA-256 of the certificate's DER form.
absl::StatusOr<std::string> CertificateDigest(const std::string& pem);

// Returns each certificate of the text by itself, in PEM form.
std::vector<std::string> CertificatesIn(const std::string& pem);
// Finds the renewed certificate of an authority among the certificates of `presented`: it is an authority's, has the same name
// and key, is signed with this key, and is the one that ends last. nullopt: none ends later than `authority`. `authority` and
// `presented` are in PEM form; texts that contain no certificate have no successor.
std::optional<std::string> SuccessorOf(const std::string& authority, const std::string& presented);

// NodeUri: the name in a node's certificate, "lynx://node/NAME". NodeOf: the node that the certificate names; nullopt: it is
// not the certificate of one node.
std::string NodeUri(const std::string& node);
std::optional<std::string> NodeOf(const CertificateFacts& facts);

// The time when a certificate is renewed: after two thirds of its lifetime.
Nanos RotationTime(const CertificateFacts& facts);

// Makes a new private key, in PKCS #8 and PEM form.
absl::StatusOr<std::string> NewPrivateKey();
// Makes a certificate request for this key, in PKCS #10 and PEM form. The request contains no name, because the requester is
// identified in another way.
absl::StatusOr<std::string> NewRequest(const std::string& private_key);
// Checks that the key belongs to the certificate. If not, returns InvalidArgument.
absl::Status CheckKeyFits(const std::string& certificate, const std::string& private_key);

}  // namespace lynx

#endif  // LYNX_SECURITY_CERTIFICATE_H_
