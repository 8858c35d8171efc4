#include "server/wire/connection_key.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/connection_secret.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

class ConnectionKeyTest : public ::testing::Test {
 protected:
  ConnectionKeyTest() {
    std::string pattern = ::testing::TempDir() + "lynx_key_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/connections.key";
  }
  ~ConnectionKeyTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_, path_;
};

TEST_F(ConnectionKeyTest, EveryGenerationHasItsOwnSecretAndKeepsItOverARestart) {
  const JobId job("a1"), other("a11");
  std::set<std::string> secrets;
  {
    const ConnectionKey key = ConnectionKey::Open(path_).value();
    for (const auto& [of, generation] : {std::pair{job, 1}, {job, 2}, {job, 11}, {other, 1}}) {
      const std::string secret = key.SecretOf(of, Generation(generation));
      EXPECT_TRUE(IsConnectionSecret(secret));
      EXPECT_TRUE(secrets.insert(secret).second) << generation;
    }
  }
  EXPECT_TRUE(secrets.contains(ConnectionKey::Open(path_)->SecretOf(job, Generation(2))));
  EXPECT_FALSE(secrets.contains(ConnectionKey::Open(folder_ + "/another")->SecretOf(job, Generation(2))));
}

TEST_F(ConnectionKeyTest, IsForItsOwnerAlone) {
  ASSERT_TRUE(ConnectionKey::Open(path_).ok());
  struct stat file {};
  ASSERT_EQ(::stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  EXPECT_EQ(ConnectionKey::Open(path_).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(ConnectionKeyTest, ADamagedFileIsNamedAndNotTold) {
  ASSERT_TRUE(ConnectionKey::Open(path_).ok());
  std::ofstream(path_) << "deadbeef";
  const absl::Status status = ConnectionKey::Open(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_ + " is damaged"));
  EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("deadbeef")));
}

}  // namespace
}  // namespace lynx::server
