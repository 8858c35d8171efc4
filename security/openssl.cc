// See openssl.h.
#include "security/openssl.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "common/check.h"
#include "common/status.h"

namespace lynx {
namespace {

BioHandle Reader(const std::string& text) { return BioHandle(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

template <class Write>
std::string Written(Write write) {
  BioHandle bio(BIO_new(BIO_s_mem()));
  LYNX_CHECK(bio != nullptr && write(bio.get()) == 1);
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

// Prevents OpenSSL from asking on a terminal for the passphrase of an encrypted key.
int NoPassphrase(char*, int, int, void*) { return -1; }

}  // namespace

absl::Status OpensslError(const std::string& doing) {
  char text[256] = "unknown error";
  if (const auto code = ERR_peek_last_error(); code != 0) ERR_error_string_n(code, text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("cannot ", doing, ": ", text));
}

absl::StatusOr<X509Handle> ParseCertificate(const std::string& pem) {
  X509Handle certificate(PEM_read_bio_X509(Reader(pem).get(), nullptr, NoPassphrase, nullptr));
  if (certificate != nullptr) return certificate;
  ERR_clear_error();
  return absl::InvalidArgumentError("it holds no certificate in PEM form");
}

absl::StatusOr<KeyHandle> ParsePrivateKey(const std::string& pem) {
  KeyHandle key(PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, NoPassphrase, nullptr));
  if (key != nullptr) return key;
  ERR_clear_error();
  return absl::InvalidArgumentError("it holds no private key in PEM form");
}

absl::StatusOr<RequestHandle> ParseRequest(const std::string& pem) {
  RequestHandle request(PEM_read_bio_X509_REQ(Reader(pem).get(), nullptr, NoPassphrase, nullptr));
  if (request != nullptr) return request;
  ERR_clear_error();
  return absl::InvalidArgumentError("it holds no certificate request in PEM form");
}

std::string PemOf(X509* certificate) {
  return Written([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}
std::string PemOf(X509_REQ* request) {
  return Written([&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request); });
}
std::string PemOf(EVP_PKEY* private_key) {
  return Written(
      [&](BIO* bio) { return PEM_write_bio_PKCS8PrivateKey(bio, private_key, nullptr, nullptr, 0, nullptr, nullptr); });
}

absl::StatusOr<KeyHandle> GenerateKey() {
  KeyHandle key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslError("make a key");
  return key;
}

}  // namespace lynx
