#include "worker/contract/progress_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/worker/test_folder.h"

namespace lynx {
namespace {

using testing::HasSubstr;

class ProgressFileTest : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/progress"; }
  worker::TestFolder folder_;
};

TEST_F(ProgressFileTest, TheNewestIsReadAndOutlivesTheWriter) {
  EXPECT_EQ(ReadToldProgress(path()), std::nullopt);
  std::optional<ProgressFile> writer = ProgressFile::OpenToWrite(path()).value();
  EXPECT_EQ(ReadToldProgress(path()), std::nullopt) << "nothing is told yet";
  writer->Tell({.made = 7, .quiet = Nanos(3)});
  writer->Tell({.made = 8, .quiet = Nanos(0)});
  EXPECT_EQ(ReadToldProgress(path()), (ToldProgress{8, Nanos(0)}));
  writer.reset();
  EXPECT_EQ(ReadToldProgress(path()), (ToldProgress{8, Nanos(0)}));
}

TEST_F(ProgressFileTest, AFileThatCannotBeWrittenTellsNothing) {
  const ProgressFile writer = ProgressFile::OpenToWrite(path()).value();
  writer.Tell({.made = 7});
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit little { 8, before.rlim_max };  // stands for a disk that is full
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  writer.Tell({.made = 8});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, ignored);
  EXPECT_EQ(ReadToldProgress(path()), std::nullopt);
  writer.Tell({.made = 9});
  EXPECT_EQ(ReadToldProgress(path()), (ToldProgress{9, Nanos(0)}));
}

TEST_F(ProgressFileTest, SaysWhichFileCannotBeOpened) {
  const absl::Status failure = ProgressFile::OpenToWrite(folder_.path() + "/no/progress").status();
  EXPECT_EQ(failure.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(failure.message()), HasSubstr("/no/progress: No such file"));
}

TEST_F(ProgressFileTest, TheReaderFollowsNoLinkAndWaitsForNoPipe) {
  ProgressFile::OpenToWrite(folder_.path() + "/other").value().Tell({.made = 7});
  std::filesystem::create_symlink(folder_.path() + "/other", path());
  EXPECT_EQ(ReadToldProgress(path()), std::nullopt);
  std::filesystem::remove(path());
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_EQ(ReadToldProgress(path()), std::nullopt);
}

}  // namespace
}  // namespace lynx
