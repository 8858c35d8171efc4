// A thin C++ layer over OpenSSL's C interface, with owning handles and statuses. Threads may use it at the same time, but must
// not share objects.
#ifndef LYNX_SECURITY_OPENSSL_H_
#define LYNX_SECURITY_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx {

template <auto Free>
struct OpensslFree {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using KeyHandle = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using X509Handle = std::unique_ptr<X509, OpensslFree<X509_free>>;
using RequestHandle = std::unique_ptr<X509_REQ, OpensslFree<X509_REQ_free>>;
using BioHandle = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;

// Returns an Internal error with `doing` and OpenSSL's error text, and empties OpenSSL's error queue.
absl::Status OpensslError(const std::string& doing);

// Parses PEM text. InvalidArgument: the text is not PEM, or contains another kind of object.
absl::StatusOr<X509Handle> ParseCertificate(const std::string& pem);
absl::StatusOr<KeyHandle> ParsePrivateKey(const std::string& pem);
absl::StatusOr<RequestHandle> ParseRequest(const std::string& pem);
std::string PemOf(X509* certificate);
std::string PemOf(X509_REQ* request);
std::string PemOf(EVP_PKEY* private_key);

// Creates a new key on the curve P-256.
absl::StatusOr<KeyHandle> GenerateKey();

}  // namespace lynx

#endif  // LYNX_SECURITY_OPENSSL_H_
