// See authority.h.
#include "security/authority.h"

#include <arpa/inet.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"
#include "node/daemon.h"
#include "node/file.h"
#include "security/certificate.h"
#include "security/openssl.h"
#include "security/secret.h"

namespace lynx {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
// The validity of a certificate begins this long before it is issued, because the clocks of other machines may be behind, but
// at most a tenth of the lifetime before.
constexpr Nanos kClockSkew{300 * kNanosPerSecond};
constexpr int kSerialBytes = 16;
constexpr size_t kMaxEarlier = 3;  // number of earlier certificates of the authority that ca.pem keeps
constexpr int kWeakestEcBits = 256;
constexpr int kWeakestRsaBits = 2048;

struct Extension {
  int nid;
  std::string value;
};

struct Contents {
  std::string common_name;
  std::vector<Extension> extensions;
  Nanos begins, ends;
};

bool AddExtension(X509* certificate, X509* issuer, const Extension& extension) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* made = X509V3_EXT_conf_nid(nullptr, &context, extension.nid, extension.value.c_str());
  const bool added = made != nullptr && X509_add_ext(certificate, made, -1) == 1;
  X509_EXTENSION_free(made);
  return added;
}

bool SetSerial(X509* certificate) {
  unsigned char bytes[kSerialBytes];
  LYNX_CHECK(RAND_bytes(bytes, sizeof(bytes)) == 1);
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7F) | 0x40);  // makes the number positive and of constant length
  BIGNUM* number = BN_bin2bn(bytes, sizeof(bytes), nullptr);
  const bool set = BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set;
}

// Signs a certificate with these contents. If `issuer` is null, the certificate is self-signed.
absl::StatusOr<std::string> Sign(const Contents& contents, EVP_PKEY* subject_key, X509* issuer, EVP_PKEY* key) {
  const X509Handle certificate(X509_new());
  const auto seconds = [](Nanos time) { return static_cast<time_t>(time.value / kNanosPerSecond); };
  X509_NAME* name = certificate == nullptr ? nullptr : X509_get_subject_name(certificate.get());
  bool ok = name != nullptr && X509_set_version(certificate.get(), X509_VERSION_3) == 1 && SetSerial(certificate.get()) &&
            ASN1_TIME_set(X509_getm_notBefore(certificate.get()), seconds(contents.begins)) != nullptr &&
            ASN1_TIME_set(X509_getm_notAfter(certificate.get()), seconds(contents.ends)) != nullptr &&
            X509_set_pubkey(certificate.get(), subject_key) == 1 &&
            X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                       reinterpret_cast<const unsigned char*>(contents.common_name.c_str()), -1, -1, 0) == 1;
  X509* parent = issuer == nullptr ? certificate.get() : issuer;
  ok = ok && X509_set_issuer_name(certificate.get(), X509_get_subject_name(parent)) == 1;
  for (const Extension& extension : contents.extensions) ok = ok && AddExtension(certificate.get(), parent, extension);
  if (!ok || X509_sign(certificate.get(), key, EVP_sha256()) <= 0) return OpensslError("sign a certificate");
  return PemOf(certificate.get());
}

absl::StatusOr<std::string> SelfSigned(EVP_PKEY* key, const std::string& name, Nanos now, Nanos life) {
  return Sign({.common_name = name,
               .extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                              {NID_key_usage, "critical,keyCertSign,cRLSign"},
                              {NID_subject_key_identifier, "hash"}},
               .begins = now - std::min(kClockSkew, Nanos(life.value / 10)),
               .ends = now + life},
              key, nullptr, key);
}

std::string NewName() { return absl::StrCat("lynx cluster ", NewRandomId(8)); }

// The common name of the certificate's subject.
absl::StatusOr<std::string> CommonNameOf(const std::string& pem) {
  LYNX_ASSIGN_OR_RETURN(const X509Handle certificate, ParseCertificate(pem));
  char name[256] = "";
  if (X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name, sizeof(name)) <= 0) {
    return OpensslError("read the name of a certificate");
  }
  return name;
}

absl::StatusOr<KeyHandle> KeyOfRequest(const std::string& pem) {
  LYNX_ASSIGN_OR_RETURN(const RequestHandle request, ParseRequest(pem));
  KeyHandle key(X509_REQ_get_pubkey(request.get()));
  if (key == nullptr || X509_REQ_verify(request.get(), key.get()) != 1) {
    OpensslError("verify").IgnoreError();
    return absl::InvalidArgumentError("the certificate request is not signed by its own key");
  }
  const int bits = EVP_PKEY_get_bits(key.get());
  const int type = EVP_PKEY_get_base_id(key.get());
  const bool strong = (type == EVP_PKEY_EC && bits >= kWeakestEcBits) || (type == EVP_PKEY_RSA && bits >= kWeakestRsaBits) ||
                      type == EVP_PKEY_ED25519;
  if (strong) return key;
  return absl::InvalidArgumentError(absl::StrCat("the key of the certificate request has ", bits,
                                                 " bits of its kind: use P-256, RSA of 2048 bits, or Ed25519"));
}

// The alternative names in OpenSSL's text form. Refuses characters that could end one name and begin another.
absl::StatusOr<std::string> NamesText(const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    in6_addr address{};
    const bool numeric = inet_pton(AF_INET, name.c_str(), &address) == 1 || inet_pton(AF_INET6, name.c_str(), &address) == 1;
    const bool plain = !name.empty() && name.size() <= 253 && std::all_of(name.begin(), name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
    });
    if (!numeric && !plain) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is neither a host name nor a numeric address"));
    }
    const std::string part = absl::StrCat(numeric ? "IP:" : "DNS:", name);
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return absl::StrJoin(parts, ",");
}

absl::Status Unusable(const std::string& directory, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the certificate authority in ", directory, " cannot be used: ", what,
      "; restore the directory from a backup, or move it aside: a new one is made, and every node and person joins again"));
}

// `chain`: the certificate of the authority, followed by earlier certificates of it.
absl::StatusOr<std::string> IssueFrom(const std::string& request, Contents contents, const std::string& chain,
                                      const std::string& authority_key, Nanos now, Nanos life) {
  LYNX_ASSIGN_OR_RETURN(const KeyHandle subject, KeyOfRequest(request));
  LYNX_ASSIGN_OR_RETURN(const X509Handle issuer, ParseCertificate(chain));
  LYNX_ASSIGN_OR_RETURN(const KeyHandle key, ParsePrivateKey(authority_key));
  contents.extensions.push_back({NID_basic_constraints, "critical,CA:FALSE"});
  contents.extensions.push_back({NID_key_usage, "critical,digitalSignature"});
  contents.extensions.push_back({NID_subject_key_identifier, "hash"});
  contents.extensions.push_back({NID_authority_key_identifier, "keyid"});
  contents.begins = now - std::min(kClockSkew, Nanos(life.value / 10));
  contents.ends = now + life;
  LYNX_ASSIGN_OR_RETURN(const std::string pem, Sign(contents, subject.get(), issuer.get(), key.get()));
  return pem + chain;
}

absl::StatusOr<Authority::Issued> IssuedOf(const absl::StatusOr<std::string>& pem) {
  if (!pem.ok()) return pem.status();
  LYNX_ASSIGN_OR_RETURN(const CertificateFacts facts, ReadCertificate(*pem));
  return Authority::Issued{*pem, facts.serial, facts.ends};
}

}  // namespace

absl::StatusOr<Authority> Authority::Open(const std::string& directory, Nanos now, Nanos life) {
  const std::string key_path = directory + "/ca.key";
  const std::string certificate_path = directory + "/ca.pem";
  LYNX_RETURN_IF_ERROR(MakeDirectories(directory));
  const bool has_key = std::filesystem::exists(key_path);
  const bool has_certificate = std::filesystem::exists(certificate_path);
  if (!has_key && !has_certificate) {
    LYNX_ASSIGN_OR_RETURN(const KeyHandle key, GenerateKey());
    LYNX_ASSIGN_OR_RETURN(const std::string certificate, SelfSigned(key.get(), NewName(), now, life));
    // The certificate is written last. If the server is killed before that, nobody trusts the authority yet, and the next start
    // makes the certificate from the key.
    LYNX_RETURN_IF_ERROR(WriteSecretFile(key_path, PemOf(key.get())));
    LYNX_RETURN_IF_ERROR(WriteFileDurably(certificate_path, certificate));
  } else if (!has_certificate) {
    LYNX_ASSIGN_OR_RETURN(const std::string key_text, ReadSecretFile(key_path));
    const absl::StatusOr<KeyHandle> key = ParsePrivateKey(key_text);
    if (!key.ok()) return Unusable(directory, absl::StrCat("ca.key: ", std::string(key.status().message())));
    LYNX_ASSIGN_OR_RETURN(const std::string certificate, SelfSigned(key->get(), NewName(), now, life));
    LYNX_RETURN_IF_ERROR(WriteFileDurably(certificate_path, certificate));
  } else if (!has_key) {
    return Unusable(directory, "ca.key is missing");
  }
  Authority authority;
  absl::StatusOr<std::string> key = ReadSecretFile(key_path);
  if (!key.ok()) return Unusable(directory, std::string(key.status().message()));
  authority.key_ = *std::move(key);
  LYNX_ASSIGN_OR_RETURN(authority.chain_, ReadFile(certificate_path, 64 << 10));
  const std::vector<std::string> certificates = CertificatesIn(authority.chain_);
  authority.certificate_ = certificates.empty() ? authority.chain_ : certificates.front();
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(authority.certificate_);
  if (!facts.ok()) return Unusable(directory, absl::StrCat("ca.pem: ", std::string(facts.status().message())));
  if (!facts->authority) return Unusable(directory, "ca.pem is not an authority's certificate");
  if (facts->ends <= now) return Unusable(directory, "its certificate has ended");
  const absl::Status fits = CheckKeyFits(authority.certificate_, authority.key_);
  if (!fits.ok()) return Unusable(directory, std::string(fits.message()));
  LYNX_ASSIGN_OR_RETURN(authority.digest_, CertificateDigest(authority.certificate_));
  return authority;
}

bool Authority::IsDue(Nanos now) const {
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(certificate_);
  LYNX_CHECK(facts.ok());  // Open or Renew has already read this certificate
  return RotationTime(*facts) <= now;
}

absl::StatusOr<Authority> Authority::Renew(const std::string& directory, Nanos now, Nanos life) const {
  LYNX_ASSIGN_OR_RETURN(const KeyHandle key, ParsePrivateKey(key_));
  LYNX_ASSIGN_OR_RETURN(const std::string name, CommonNameOf(certificate_));
  Authority renewed;
  renewed.key_ = key_;
  LYNX_ASSIGN_OR_RETURN(renewed.certificate_, SelfSigned(key.get(), name, now, life));
  LYNX_ASSIGN_OR_RETURN(renewed.digest_, CertificateDigest(renewed.certificate_));
  renewed.chain_ = renewed.certificate_;
  size_t earlier = 0;
  for (const std::string& pem : CertificatesIn(chain_)) {
    LYNX_ASSIGN_OR_RETURN(const CertificateFacts facts, ReadCertificate(pem));
    if (facts.ends > now && ++earlier <= kMaxEarlier) renewed.chain_ += pem;
  }
  LYNX_RETURN_IF_ERROR(WriteFileDurably(directory + "/ca.pem", renewed.chain_));
  return renewed;
}

absl::StatusOr<Authority::Issued> Authority::IssueServer(const std::string& request, const std::vector<std::string>& names,
                                                         Nanos now, Nanos life) const {
  LYNX_ASSIGN_OR_RETURN(const std::string text, NamesText(names));
  return IssuedOf(IssueFrom(
      request, {.common_name = "lynx server", .extensions = {{NID_ext_key_usage, "serverAuth"}, {NID_subject_alt_name, text}}},
      chain_, key_, now, life));
}

absl::StatusOr<Authority::Issued> Authority::IssueNode(const std::string& request, const std::string& node, Nanos now,
                                                       Nanos life) const {
  LYNX_RETURN_IF_ERROR(CheckNodeName(node));
  // The common name is not a host name, so that no client mistakes a node for the server.
  return IssuedOf(IssueFrom(request,
                            {.common_name = "lynx node",
                             .extensions = {{NID_ext_key_usage, "clientAuth,serverAuth"},
                                            {NID_subject_alt_name, absl::StrCat("URI:", NodeUri(node))}}},
                            chain_, key_, now, life));
}

}  // namespace lynx
