#include "node/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/lynx-file-test-XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(FileTest, WritesReplaceTheWholeFileAndLeaveNothingElse) {
  const std::string path = folder_ + "/a";
  ASSERT_TRUE(WriteFileDurably(path, "a long first content").ok());
  ASSERT_TRUE(WriteFileDurably(path, "second").ok());
  EXPECT_EQ(*ReadFile(path), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, ErrorsNameTheFile) {
  const absl::Status no_folder = WriteFileDurably(folder_ + "/missing/a", "x");
  EXPECT_EQ(no_folder.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(no_folder.message()).find("/missing/a"), std::string::npos);
  EXPECT_EQ(ReadFile(folder_ + "/b").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileDurably(folder_ + "/c", "12345").ok());
  EXPECT_EQ(ReadFile(folder_ + "/c", 4).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(FileTest, FullDiskIsResourceExhausted) {
  // Every write to /dev/full fails with ENOSPC.
  std::filesystem::create_symlink("/dev/full", folder_ + "/full.new");
  EXPECT_EQ(WriteFileDurably(folder_ + "/full", "x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/full"));
}

TEST_F(FileTest, LockKeepsASecondHolderOffAndNamesTheFirst) {
  absl::StatusOr<UniqueFd> lock = LockFile(folder_ + "/lock");
  ASSERT_TRUE(lock.ok());
  const absl::Status second = LockFile(folder_ + "/lock").status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(second.message()).find(absl::StrCat("process ", ::getpid())), std::string::npos);
  lock->Reset();
  EXPECT_TRUE(LockFile(folder_ + "/lock").ok());
}

// As on a disk that is full: no file may grow.
TEST_F(FileTest, LockHoldsWhereNothingCanBeWritten) {
  ASSERT_NE(::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const absl::StatusOr<UniqueFd> lock = LockFile(folder_ + "/lock");
  const absl::Status second = LockFile(folder_ + "/lock").status();
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(second.message()).find("process (unknown)"), std::string::npos) << second;
}

}  // namespace
}  // namespace lynx
