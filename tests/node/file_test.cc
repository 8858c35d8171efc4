#include "node/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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

TEST_F(FileTest, WhatIsNoFileStays) {
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(folder_ + "/pipe", folder_ + "/link");
  std::filesystem::create_symlink("/dev/null", folder_ + "/device");
  for (const char* name : {"/pipe", "/link", "/device", ""}) {
    const absl::Status refused = WriteFileDurably(folder_ + name, "x");
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_NE(std::string(refused.message()).find(folder_ + name + " is no regular file"), std::string::npos) << refused;
  }
  EXPECT_TRUE(std::filesystem::is_fifo(folder_ + "/pipe"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ + "/link") && std::filesystem::is_symlink(folder_ + "/device"));
}

TEST_F(FileTest, LastLinesAreReadFromTheEnd) {
  const std::string path = folder_ + "/log";
  EXPECT_EQ(LastLines(path, 3), "");
  ASSERT_TRUE(WriteFileDurably(path, "").ok());
  EXPECT_EQ(LastLines(path, 3), "");
  ASSERT_TRUE(WriteFileDurably(path, "one\ntwo\n\nfour\n").ok());
  EXPECT_EQ(LastLines(path, 2), "\nfour");
  EXPECT_EQ(LastLines(path, 9), "one\ntwo\n\nfour");
  // The file is far larger than the memory, but it takes no space on the disk.
  ASSERT_EQ(::truncate(path.c_str(), int64_t{1} << 42), 0);
  std::ofstream(path, std::ios::app) << "\nlast but one\nlast";
  EXPECT_EQ(LastLines(path, 9), "last but one\nlast");
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

// No file of this process can become larger, as on a full disk.
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
