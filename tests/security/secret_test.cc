#include "security/secret.h"

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node/file.h"
#include "security/context_file.h"
#include "security/join_token.h"
#include "tests/security/folder.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SecretTest, IsNewEachTime) {
  EXPECT_EQ(NewSecret().size(), 64u);
  EXPECT_NE(NewSecret(), NewSecret());
  EXPECT_EQ(NewRandomId(7).size(), 7u);
}

TEST(SecretTest, AFileOfOneIsForItsOwnerAlone) {
  Folder folder;
  const std::string path = folder.path + "/secret";
  // The file is written as secret.new first. If this file exists already, the secret must not get its permissions.
  ASSERT_TRUE(WriteFileDurably(path + ".new", "old").ok());
  ASSERT_TRUE(WriteSecretFile(path, " secret\n").ok());
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_EQ(ReadSecretFile(path).value(), "secret");
  ASSERT_EQ(::chmod(path.c_str(), 0604), 0);
  EXPECT_EQ(ReadSecretFile(path).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(WriteSecretFile(path, "\n").ok());
  EXPECT_EQ(ReadSecretFile(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadSecretFile(path + "x").status().code(), absl::StatusCode::kNotFound);
}

TEST(JoinTokenTest, SurvivesBeingText) {
  const JoinToken token{NewSecret(), SecretDigest("authority")};
  const JoinToken parsed = ParseJoinToken(JoinTokenText(token)).value();
  EXPECT_EQ(parsed.secret, token.secret);
  EXPECT_EQ(parsed.authority_digest, token.authority_digest);
}

TEST(JoinTokenTest, AnErrorDoesNotTellTheSecret) {
  const std::string text = JoinTokenText({NewSecret(), SecretDigest("authority")});
  for (const std::string& bad : {text.substr(1), text + "0", text.substr(0, 80), std::string("lynx-join-1"), std::string()}) {
    const absl::Status status = ParseJoinToken(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    if (bad.size() <= 20) continue;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(bad.substr(13, 20))));
  }
}

TEST(ContextFileTest, SurvivesBeingWritten) {
  Folder folder;
  const std::string path = folder.path + "/context.json";
  ASSERT_TRUE(WriteContextFile(path, {.server = "h:1", .authority = "pem\nlines", .token = "t"}).ok());
  const ClientContext read = ReadContextFile(path).value();
  EXPECT_EQ(read.server, "h:1");
  EXPECT_EQ(read.authority, "pem\nlines");
  EXPECT_EQ(read.token, "t");
  for (const char* bad : {"[]", "{", R"({"server": 1, "authority": "", "token": ""})", R"({"server": ""})"}) {
    ASSERT_TRUE(WriteSecretFile(path, bad).ok());
    EXPECT_EQ(ReadContextFile(path).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace lynx
