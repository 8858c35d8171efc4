// See certificate.h.
#include "security/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/status.h"
#include "security/openssl.h"

namespace lynx {
namespace {

constexpr char kNodeUri[] = "lynx://node/";
constexpr int64_t kNanosPerSecond = 1'000'000'000;

Nanos UnixTime(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return Nanos(0);
  return Nanos(static_cast<int64_t>(::timegm(&parts)) * kNanosPerSecond);
}

std::string SerialText(const X509* certificate) {
  BIGNUM* number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr);
  char* text = BN_bn2hex(number);
  std::string serial = text == nullptr ? "" : absl::AsciiStrToLower(text);
  OPENSSL_free(text);
  BN_free(number);
  return serial;
}

std::vector<std::string> UrisOf(X509* certificate) {
  std::vector<std::string> uris;
  auto* names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)), static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  GENERAL_NAMES_free(names);
  return uris;
}

}  // namespace

absl::StatusOr<CertificateFacts> ReadCertificate(const std::string& pem) {
  LYNX_ASSIGN_OR_RETURN(const X509Handle certificate, ParseCertificate(pem));
  return CertificateFacts{.serial = SerialText(certificate.get()),
                          .uris = UrisOf(certificate.get()),
                          .begins = UnixTime(X509_get0_notBefore(certificate.get())),
                          .ends = UnixTime(X509_get0_notAfter(certificate.get())),
                          .authority = X509_check_ca(certificate.get()) == 1};
}

std::vector<std::string> CertificatesIn(const std::string& pem) {
  std::vector<std::string> found;
  const BioHandle text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (true) {
    const X509Handle certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) break;
    found.push_back(PemOf(certificate.get()));
  }
  ERR_clear_error();  // the end of the text counts as an error
  return found;
}

std::optional<std::string> SuccessorOf(const std::string& authority, const std::string& presented) {
  const absl::StatusOr<X509Handle> old = ParseCertificate(authority);
  if (!old.ok()) return std::nullopt;
  EVP_PKEY* key = X509_get0_pubkey(old->get());
  Nanos ends = UnixTime(X509_get0_notAfter(old->get()));
  std::optional<std::string> successor;
  for (const std::string& pem : CertificatesIn(presented)) {
    const absl::StatusOr<X509Handle> other = ParseCertificate(pem);
    if (!other.ok() || X509_check_ca(other->get()) != 1) continue;
    const bool same_name = X509_NAME_cmp(X509_get_subject_name(old->get()), X509_get_subject_name(other->get())) == 0;
    const bool same_key = EVP_PKEY_eq(key, X509_get0_pubkey(other->get())) == 1 && X509_verify(other->get(), key) == 1;
    const Nanos other_ends = UnixTime(X509_get0_notAfter(other->get()));
    if (!same_name || !same_key || other_ends <= ends) continue;
    ends = other_ends;
    successor = pem;
  }
  ERR_clear_error();
  return successor;
}

absl::StatusOr<std::string> CertificateDigest(const std::string& pem) {
  LYNX_ASSIGN_OR_RETURN(const X509Handle certificate, ParseCertificate(pem));
  unsigned char* der = nullptr;
  const int size = i2d_X509(certificate.get(), &der);
  if (size < 0) return OpensslError("encode a certificate");
  std::string digest = Sha256Hex(std::string(reinterpret_cast<char*>(der), static_cast<size_t>(size)));
  OPENSSL_free(der);
  return digest;
}

std::string NodeUri(const std::string& node) { return absl::StrCat(kNodeUri, node); }

std::optional<std::string> NodeOf(const CertificateFacts& facts) {
  if (facts.authority || facts.uris.size() != 1 || !absl::StartsWith(facts.uris[0], kNodeUri)) return std::nullopt;
  return facts.uris[0].substr(sizeof(kNodeUri) - 1);
}

Nanos RotationTime(const CertificateFacts& facts) { return facts.begins + Nanos((facts.ends - facts.begins).value / 3 * 2); }

absl::StatusOr<std::string> NewPrivateKey() {
  LYNX_ASSIGN_OR_RETURN(const KeyHandle key, GenerateKey());
  return PemOf(key.get());
}

absl::StatusOr<std::string> NewRequest(const std::string& private_key) {
  LYNX_ASSIGN_OR_RETURN(const KeyHandle key, ParsePrivateKey(private_key));
  const RequestHandle request(X509_REQ_new());
  if (request == nullptr || X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) <= 0) {
    return OpensslError("make a certificate request");
  }
  return PemOf(request.get());
}

absl::Status CheckKeyFits(const std::string& certificate, const std::string& private_key) {
  LYNX_ASSIGN_OR_RETURN(const X509Handle parsed, ParseCertificate(certificate));
  LYNX_ASSIGN_OR_RETURN(const KeyHandle key, ParsePrivateKey(private_key));
  if (X509_check_private_key(parsed.get(), key.get()) == 1) return absl::OkStatus();
  return absl::InvalidArgumentError("the private key is not the certificate's");
}

}  // namespace lynx
