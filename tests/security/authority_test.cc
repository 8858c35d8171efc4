#include "security/authority.h"

#include <openssl/evp.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node/file.h"
#include "security/certificate.h"
#include "security/openssl.h"
#include "tests/security/folder.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kSecond{1'000'000'000};
constexpr Nanos kNow{1'800'000'000 * kSecond.value};  // 2027
constexpr Nanos kDay{86'400 * kSecond.value};

std::string Request() { return NewRequest(NewPrivateKey().value()).value(); }

// Returns OpenSSL's verdict on the chain at the time `at`: X509_V_OK or the number of an error.
int Verify(const std::string& leaf, const std::string& authority, Nanos at, int purpose) {
  const X509Handle certificate = ParseCertificate(leaf).value();
  const X509Handle root = ParseCertificate(authority).value();
  X509_STORE* store = X509_STORE_new();
  X509_STORE_add_cert(store, root.get());
  X509_STORE_CTX* context = X509_STORE_CTX_new();
  X509_STORE_CTX_init(context, store, certificate.get(), nullptr);
  X509_STORE_CTX_set_time(context, 0, static_cast<time_t>(at.value / kSecond.value));
  X509_STORE_CTX_set_purpose(context, purpose);
  X509_verify_cert(context);
  const int error = X509_STORE_CTX_get_error(context);
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  return error;
}

class AuthorityTest : public ::testing::Test {
 protected:
  absl::StatusOr<Authority> Open() { return Authority::Open(folder_.path + "/tls", kNow); }
  std::string Path(const std::string& name) { return folder_.path + "/tls/" + name; }

  Folder folder_;
};

TEST_F(AuthorityTest, IsTheSameAfterARestart) {
  const Authority first = Open().value();
  const Authority again = Open().value();
  EXPECT_EQ(first.certificate(), again.certificate());
  EXPECT_EQ(first.digest(), CertificateDigest(again.certificate()).value());
  EXPECT_TRUE(ReadCertificate(first.certificate())->authority);
  Folder other;
  EXPECT_NE(Authority::Open(other.path, kNow)->digest(), first.digest());
}

TEST_F(AuthorityTest, ItsKeyIsForItsOwnerAlone) {
  ASSERT_TRUE(Open().ok());
  struct stat file {};
  ASSERT_EQ(::stat(Path("ca.key").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  ASSERT_EQ(::chmod(Path("ca.key").c_str(), 0640), 0);
  const absl::Status open = Open().status();
  EXPECT_EQ(open.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(open.message()), HasSubstr("chmod 600"));
}

TEST_F(AuthorityTest, ANodesCertificateNamesTheNodeAndNobodyElse) {
  const Authority authority = Open().value();
  const auto issued = authority.IssueNode(Request(), "n0", kNow, kDay).value();
  const CertificateFacts facts = ReadCertificate(issued.pem).value();
  EXPECT_EQ(facts.uris, std::vector<std::string>{"lynx://node/n0"});
  EXPECT_EQ(NodeOf(facts), "n0");
  EXPECT_EQ(facts.serial, issued.serial);
  EXPECT_EQ(facts.ends, kNow + kDay);
  EXPECT_FALSE(facts.authority);
  EXPECT_EQ(Verify(issued.pem, authority.certificate(), kNow, X509_PURPOSE_SSL_CLIENT), X509_V_OK);
  EXPECT_EQ(Verify(issued.pem, authority.certificate(), kNow + kDay + kSecond, X509_PURPOSE_SSL_CLIENT),
            X509_V_ERR_CERT_HAS_EXPIRED);
  // The certificate must match no host name that a client may expect.
  const X509Handle certificate = ParseCertificate(issued.pem).value();
  for (const char* host : {"n0", "lynx", "node"}) EXPECT_NE(X509_check_host(certificate.get(), host, 0, 0, nullptr), 1);
  EXPECT_EQ(authority.IssueNode(Request(), "n0,URI:lynx://node/n1", kNow, kDay).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_NE(authority.IssueNode(Request(), "n0", kNow, kDay)->serial, issued.serial);
}

TEST_F(AuthorityTest, AServersCertificateNamesItsHosts) {
  const Authority authority = Open().value();
  const auto issued = authority.IssueServer(Request(), {"lynx.example", "10.0.0.7", "::1", "10.0.0.7"}, kNow, kDay).value();
  const X509Handle certificate = ParseCertificate(issued.pem).value();
  EXPECT_EQ(X509_check_host(certificate.get(), "lynx.example", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "10.0.0.7", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "::1", 0), 1);
  EXPECT_NE(X509_check_host(certificate.get(), "other.example", 0, 0, nullptr), 1);
  EXPECT_EQ(Verify(issued.pem, authority.certificate(), kNow, X509_PURPOSE_SSL_SERVER), X509_V_OK);
  EXPECT_NE(Verify(issued.pem, authority.certificate(), kNow, X509_PURPOSE_SSL_CLIENT), X509_V_OK);
  EXPECT_EQ(NodeOf(*ReadCertificate(issued.pem)), std::nullopt);
  for (const char* bad : {"a,DNS:b", "", "a b", "a\nb"}) {
    EXPECT_EQ(authority.IssueServer(Request(), {bad}, kNow, kDay).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(AuthorityTest, AnotherAuthoritysCertificateDoesNotVerify) {
  Folder other;
  const auto issued = Authority::Open(other.path, kNow)->IssueNode(Request(), "n0", kNow, kDay).value();
  EXPECT_NE(Verify(issued.pem, Open()->certificate(), kNow, X509_PURPOSE_SSL_CLIENT), X509_V_OK);
}

TEST_F(AuthorityTest, ARequestIsRefusedUnlessItsOwnKeyHasSignedIt) {
  const Authority authority = Open().value();
  const RequestHandle request = ParseRequest(Request()).value();
  const KeyHandle other = GenerateKey().value();
  X509_REQ_set_pubkey(request.get(), other.get());  // the signature does not match this key
  const absl::Status swapped = authority.IssueNode(PemOf(request.get()), "n0", kNow, kDay).status();
  EXPECT_EQ(swapped.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(swapped.message()), HasSubstr("not signed by its own key"));
  EXPECT_EQ(authority.IssueNode("nonsense", "n0", kNow, kDay).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AuthorityTest, AWeakKeyIsRefused) {
  const KeyHandle weak(EVP_RSA_gen(1024));
  const std::string request = NewRequest(PemOf(weak.get())).value();
  const absl::Status status = Open()->IssueNode(request, "n0", kNow, kDay).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1024 bits"));
}

TEST_F(AuthorityTest, WhatIsMissingOrDamagedIsNamed) {
  ASSERT_TRUE(Open().ok());
  const std::string key = ReadFile(Path("ca.key")).value();
  std::filesystem::remove(Path("ca.key"));
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("ca.key is missing"));
  ASSERT_TRUE(WriteFileDurably(Path("ca.key"), NewPrivateKey().value(), 0600).ok());
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("not the certificate's"));
  ASSERT_TRUE(WriteFileDurably(Path("ca.key"), key, 0600).ok());
  EXPECT_TRUE(Open().ok());
  ASSERT_TRUE(WriteFileDurably(Path("ca.pem"), "nonsense").ok());
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("ca.pem"));
}

// The key is written before the certificate. If a start was interrupted, the next start must go on with this key.
TEST_F(AuthorityTest, AStartThatWasCutShortGoesOn) {
  ASSERT_TRUE(Open().ok());
  std::filesystem::remove(Path("ca.pem"));
  const absl::StatusOr<Authority> again = Open();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->IssueNode(Request(), "n0", kNow, kDay).ok());
}

TEST_F(AuthorityTest, ItsEndIsSaid) {
  ASSERT_TRUE(Open().ok());
  const absl::Status late = Authority::Open(folder_.path + "/tls", kNow + Nanos(kDay.value * 3651)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.message()), HasSubstr("has ended"));
}

TEST(CertificateTest, IsRenewedAfterTwoThirdsOfItsLife) {
  EXPECT_EQ(RotationTime({.begins = Nanos(100), .ends = Nanos(400)}), Nanos(300));
}

TEST_F(AuthorityTest, IsDueAfterTwoThirdsOfItsLife) {
  const Authority authority = Authority::Open(folder_.path + "/tls", kNow, kDay * 300).value();
  EXPECT_FALSE(authority.IsDue(kNow + kDay * 199));
  EXPECT_TRUE(authority.IsDue(kNow + kDay * 201));
  EXPECT_FALSE(Open()->IsDue(kNow)) << "a new one is for ten years, but this one exists";
}

// A program that trusts only the new certificate must accept what was issued before the renewal. One that trusts only the old
// certificate must accept what is issued after it.
TEST_F(AuthorityTest, ARenewedOneHasTheSameKeyAndNameAndBothVerifyTheSame) {
  const Authority old = Authority::Open(folder_.path + "/tls", kNow, kDay * 300).value();
  const Nanos then = kNow + kDay * 250;
  const auto before = old.IssueNode(Request(), "n0", then, kDay * 100).value();
  const Authority renewed = old.Renew(folder_.path + "/tls", then, kDay * 300).value();
  const auto after = renewed.IssueNode(Request(), "n0", then, kDay * 100).value();
  EXPECT_NE(renewed.digest(), old.digest());
  EXPECT_FALSE(renewed.IsDue(then));
  const auto verify = [&](const std::string& leaf, const Authority& by, int days) {
    return Verify(leaf, by.certificate(), kNow + kDay * days, X509_PURPOSE_SSL_CLIENT);
  };
  for (const std::string& leaf : {before.pem, after.pem}) {
    EXPECT_EQ(verify(leaf, old, 260), X509_V_OK);
    EXPECT_EQ(verify(leaf, renewed, 260), X509_V_OK);
    EXPECT_EQ(verify(leaf, old, 310), X509_V_ERR_CERT_HAS_EXPIRED);
    EXPECT_EQ(verify(leaf, renewed, 310), X509_V_OK) << "the old certificate has ended";
  }
  EXPECT_EQ(CertificatesIn(after.pem),
            (std::vector<std::string>{CertificatesIn(after.pem)[0], renewed.certificate(), old.certificate()}))
      << "the server presents both, so that a node recognizes it by the digest of either";
  const Authority again = Authority::Open(folder_.path + "/tls", then).value();
  EXPECT_EQ(again.certificate(), renewed.certificate());
  EXPECT_EQ(again.chain(), renewed.chain());
  const Authority third = again.Renew(folder_.path + "/tls", kNow + kDay * 310, kDay * 300).value();
  EXPECT_EQ(third.chain(), third.certificate() + renewed.certificate()) << "one that has ended is of no use";
}

TEST_F(AuthorityTest, ASuccessorHasTheSameKeyAndEndsLater) {
  const Authority old = Open().value();
  const Authority renewed = old.Renew(folder_.path + "/tls", kNow + kDay, Authority::kLife).value();
  const auto leaf = renewed.IssueNode(Request(), "n0", kNow, kDay).value();
  EXPECT_EQ(SuccessorOf(old.certificate(), leaf.pem), renewed.certificate());
  EXPECT_EQ(SuccessorOf(renewed.certificate(), leaf.pem), std::nullopt) << "the old one ends before it";
  EXPECT_EQ(SuccessorOf(old.certificate(), ""), std::nullopt);
  EXPECT_EQ(SuccessorOf("nonsense", leaf.pem), std::nullopt);
  Folder folder;
  const Authority other = Authority::Open(folder.path, kNow + kDay, Authority::kLife * 2).value();
  EXPECT_EQ(SuccessorOf(old.certificate(), other.certificate()), std::nullopt) << "somebody else's";
  // A certificate for the authority's name and key that another key has signed.
  const X509Handle forged = ParseCertificate(renewed.certificate()).value();
  const KeyHandle key = GenerateKey().value();
  ASSERT_GT(X509_sign(forged.get(), key.get(), EVP_sha256()), 0);
  EXPECT_EQ(SuccessorOf(old.certificate(), PemOf(forged.get())), std::nullopt);
}

}  // namespace
}  // namespace lynx
