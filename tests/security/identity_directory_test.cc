#include "security/identity_directory.h"

#include <sys/stat.h>

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "security/authority.h"
#include "security/certificate.h"
#include "tests/security/folder.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kNow{1'800'000'000'000'000'000};
constexpr Nanos kDay{86'400'000'000'000};

class IdentityDirectoryTest : public ::testing::Test {
 protected:
  IdentityDirectoryTest()
      : authority_(Authority::Open(folder_.path + "/tls", kNow).value()), directory_(folder_.path + "/identity") {}

  Identity Make(const std::string& node) {
    const std::string key = NewPrivateKey().value();
    return {.authority = authority_.certificate(),
            .certificate = authority_.IssueNode(NewRequest(key).value(), node, kNow, kDay)->pem,
            .private_key = key};
  }

  Folder folder_;
  const Authority authority_;
  const IdentityDirectory directory_;
};

TEST_F(IdentityDirectoryTest, IsEmptyAtFirst) { EXPECT_EQ(directory_.Read().status().code(), absl::StatusCode::kNotFound); }

TEST_F(IdentityDirectoryTest, HoldsThePairThatWasPutLast) {
  for (const char* node : {"n0", "n1", "n2", "n3"}) {
    const Identity identity = Make(node);
    ASSERT_TRUE(directory_.Replace(identity).ok());
    const Identity read = directory_.Read().value();
    EXPECT_EQ(read.certificate, identity.certificate);
    EXPECT_EQ(read.authority, identity.authority);
  }
  // Only the current identity and the previous one are kept, so old private keys do not accumulate.
  int pairs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    pairs += entry.path().filename().string().rfind("identity-", 0) == 0;
  }
  EXPECT_EQ(pairs, 2);
}

TEST_F(IdentityDirectoryTest, OnlyItsOwnerReadsTheKey) {
  ASSERT_TRUE(directory_.Replace(Make("n0")).ok());
  struct stat file {};
  ASSERT_EQ(::stat(directory_.private_key_path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(directory_.path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0700u);
  ASSERT_EQ(::chmod(directory_.private_key_path().c_str(), 0644), 0);
  EXPECT_EQ(directory_.Read().status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(IdentityDirectoryTest, AKeyOfAnotherCertificateIsRefused) {
  Identity wrong = Make("n0");
  wrong.private_key = Make("n0").private_key;
  const absl::Status replaced = directory_.Replace(wrong);
  EXPECT_EQ(replaced.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(directory_.Read().status().code(), absl::StatusCode::kNotFound) << "nothing was changed";
}

// A reader must find the key and the certificate of one pair, even while another process replaces them. It may get the previous
// pair. Read checks that key and certificate match.
TEST_F(IdentityDirectoryTest, AReaderFindsAPairAtAnyTime) {
  std::vector<Identity> identities;
  for (int i = 0; i < 20; ++i) identities.push_back(Make("n0"));
  ASSERT_TRUE(directory_.Replace(identities[0]).ok());
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (const Identity& identity : identities) ASSERT_TRUE(directory_.Replace(identity).ok());
    over = true;
  });
  int pairs = 0;
  while (!over) pairs += directory_.Read().ok();
  writer.join();
  EXPECT_TRUE(directory_.Read().ok());
  EXPECT_EQ(directory_.Read()->certificate, identities.back().certificate);
}

TEST_F(IdentityDirectoryTest, OneLocksItAtATime) {
  absl::StatusOr<UniqueFd> first = directory_.Lock(Nanos(0));
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = directory_.Lock(Nanos(0)).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("is locked by process"));
  first->Reset();
  EXPECT_TRUE(directory_.Lock(Nanos(0)).ok());
}

}  // namespace
}  // namespace lynx
