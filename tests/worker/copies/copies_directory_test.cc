#include "worker/copies/copies_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/worker/test_folder.h"

namespace lynx::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CopiesDirectoryTest, EachDataDirectoryHasOneInMemory) {
  EXPECT_THAT(DefaultCopiesDirectory("/var/lib/lynx/worker"), testing::StartsWith("/dev/shm/lynx-copies-"));
  EXPECT_NE(DefaultCopiesDirectory("/a"), DefaultCopiesDirectory("/b"));
  EXPECT_EQ(DefaultCopiesDirectory("/a"), DefaultCopiesDirectory("/a"));
}

TEST(CopiesDirectoryTest, IsForTheUserAlone) {
  const TestFolder folder;
  const std::string directory = folder.Path("deep/copies");
  ASSERT_TRUE(MakeCopiesDirectory(directory).ok());
  ASSERT_TRUE(MakeCopiesDirectory(directory).ok());  // the directory exists already
  struct stat made {};
  ASSERT_EQ(::stat(directory.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0700u);
}

TEST(CopiesDirectoryTest, NothingElseIsTakenForIt) {
  const TestFolder folder;
  const std::string file = folder.Write("file", "");
  const absl::Status not_a_directory = MakeCopiesDirectory(file);
  EXPECT_EQ(not_a_directory.code(), absl::StatusCode::kPermissionDenied);
  std::filesystem::create_directory(folder.Path("elsewhere"));
  std::filesystem::create_directory_symlink(folder.Path("elsewhere"), folder.Path("link"));
  EXPECT_EQ(MakeCopiesDirectory(folder.Path("link")).code(), absl::StatusCode::kPermissionDenied);
  const absl::Status below = MakeCopiesDirectory(file + "/copies");
  EXPECT_EQ(below.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(below.message()), HasSubstr(file + "/copies"));
}

TEST(CopiesDirectoryTest, JobsComeAndGo) {
  const TestFolder folder;
  EXPECT_THAT(JobsWithCopies(folder.Path("absent")), IsEmpty());
  std::filesystem::create_directories(folder.Path("b"));
  folder.Write("b/shard", "");
  std::filesystem::create_directories(folder.Path("a"));
  EXPECT_THAT(JobsWithCopies(folder.path()), ElementsAre(JobId("a"), JobId("b")));
  RemoveCopies(folder.path(), JobId("b"));
  RemoveCopies(folder.path(), JobId("never"));
  EXPECT_THAT(JobsWithCopies(folder.path()), ElementsAre(JobId("a")));
}

}  // namespace
}  // namespace lynx::worker
