#include "worker/checkpoint/file_system.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "tests/worker/checkpoint/faulty_file_system.h"
#include "tests/worker/test_folder.h"
#include "worker/contract/rank_progress.h"

namespace {

// A range that the kernel was asked to write to the disk.
struct AskedRange {
  int64_t begin = 0, bytes = 0;
  unsigned flags = 0;
  bool operator==(const AskedRange&) const = default;
};
std::vector<AskedRange>* asked_ranges = nullptr;  // null: no test needs the ranges

}  // namespace

// Replaces the function of the C library in this program.
extern "C" int sync_file_range(int fd, off64_t begin, off64_t bytes, unsigned flags) {
  if (asked_ranges != nullptr) asked_ranges->push_back({begin, bytes, flags});
  return static_cast<int>(::syscall(SYS_sync_file_range, fd, begin, bytes, flags));
}

namespace lynx::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Checks what checkpoints need from a file system. PosixFileSystem and FaultyFileSystem must both pass.
void ExpectContract(FileSystem& files, const std::string& root) {
  ASSERT_EQ(files.CreateFolders(root + "/a/b"), absl::OkStatus());
  ASSERT_EQ(files.CreateFolders(root + "/a/b"), absl::OkStatus());
  ASSERT_EQ(WriteWholeFile(files, root + "/a/b/file", "first"), absl::OkStatus());
  ASSERT_EQ(WriteWholeFile(files, root + "/a/b/file", "again"), absl::OkStatus());
  ASSERT_EQ(files.SyncFolder(root + "/a/b"), absl::OkStatus());
  EXPECT_EQ(ReadWholeFile(files, root + "/a/b/file", Bytes(5)).value_or(""), "again");
  EXPECT_TRUE(absl::IsDataLoss(ReadWholeFile(files, root + "/a/b/file", Bytes(4)).status()));

  auto file = files.OpenFile(root + "/a/b/file").value();
  EXPECT_EQ(file->size(), Bytes(5));
  std::string part(3, '\0');
  EXPECT_EQ(file->Read(part), absl::OkStatus());
  EXPECT_EQ(part, "aga");
  EXPECT_TRUE(absl::IsDataLoss(file->Read(part)));

  ASSERT_EQ(files.CreateFolders(root + "/a/c"), absl::OkStatus());
  EXPECT_THAT(files.List(root + "/a").value(), ElementsAre("b", "c"));
  EXPECT_FALSE(files.Rename(root + "/a/c", root + "/a/b").ok());
  EXPECT_TRUE(absl::IsNotFound(files.Rename(root + "/a/absent", root + "/a/d")));
  EXPECT_EQ(files.Rename(root + "/a/b", root + "/a/d"), absl::OkStatus());
  EXPECT_THAT(files.List(root + "/a").value(), ElementsAre("c", "d"));
  EXPECT_EQ(ReadWholeFile(files, root + "/a/d/file", Bytes(5)).value_or(""), "again");

  EXPECT_EQ(files.RemoveTree(root + "/a/d"), absl::OkStatus());
  EXPECT_EQ(files.RemoveTree(root + "/a/d"), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(files.List(root + "/a/d").status()));
  EXPECT_TRUE(absl::IsNotFound(files.OpenFile(root + "/a/d/file").status()));
  EXPECT_TRUE(absl::IsNotFound(files.SyncFolder(root + "/a/d")));
  EXPECT_TRUE(absl::IsNotFound(files.CreateFile(root + "/a/d/file").status()));
}

TEST(FileSystem, PosixKeepsTheContract) {
  const TestFolder folder;
  ExpectContract(PosixFileSystem(), folder.path());
}

TEST(FileSystem, TheFaultyOneKeepsItToo) {
  FaultyFileSystem files;
  ExpectContract(files, "");
}

// Each written part counts as progress. So the peers of a rank with a slow disk see that the rank works.
TEST(FileSystem, EachPartOfAFileIsProgress) {
  const TestFolder folder;
  FileSystem& files = PosixFileSystem();
  const auto made_by = [](const std::function<absl::Status()>& work) {
    const int64_t before = OwnProgress().made();
    EXPECT_EQ(work(), absl::OkStatus());
    return OwnProgress().made() - before;
  };
  const auto written = files.CreateFile(folder.Path("file")).value();
  std::string content(70 << 20, 'x');  // needs more than one system call
  EXPECT_GE(made_by([&] { return written->Append(content); }), 2);
  EXPECT_GE(made_by([&] { return written->Sync(); }), 1);
  const auto read = files.OpenFile(folder.Path("file")).value();
  EXPECT_GE(made_by([&] { return read->Read(content); }), 2);
  EXPECT_GE(made_by([&] { return files.RemoveTree(folder.Path("file")); }), 1);
  EXPECT_EQ(OwnProgress().quiet(), Nanos(0));
}

// If the disk were not asked earlier, all of a large file would be written in Sync, and peers would see no progress meanwhile.
TEST(FileSystem, TheDiskIsAskedToWriteWhileAFileGrows) {
  constexpr int64_t kPart = 64 << 20;
  const TestFolder folder;
  std::vector<AskedRange> asked;
  asked_ranges = &asked;
  const auto file = PosixFileSystem().CreateFile(folder.Path("file")).value();
  const std::string half(kPart / 2, 'x');
  EXPECT_EQ(file->Append(half), absl::OkStatus());
  EXPECT_THAT(asked, testing::IsEmpty()) << "little waits for Sync";
  for (int n = 0; n < 3; ++n) EXPECT_EQ(file->Append(half), absl::OkStatus());
  asked_ranges = nullptr;
  constexpr unsigned kWait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  EXPECT_THAT(asked, ElementsAre(AskedRange{0, kPart, SYNC_FILE_RANGE_WRITE}, AskedRange{0, kPart, kWait},
                                 AskedRange{kPart, kPart, SYNC_FILE_RANGE_WRITE}))
      << "each part is waited for when the next one is there";
  EXPECT_EQ(file->Sync(), absl::OkStatus());
}

TEST(FileSystem, QuietWorkSaysHowLongItMayTake) {
  RankProgress progress;
  {
    const QuietWork sync(TimeFor(kGiB, kSlowDiskPerSecond), progress);
    const QuietWork other(Nanos(5), progress);
    EXPECT_EQ(progress.quiet(), Nanos(32'000'000'005));
    EXPECT_EQ(progress.made(), 0);
  }
  EXPECT_EQ(progress.quiet(), Nanos(0));
  EXPECT_EQ(progress.made(), 2);
}

TEST(FileSystem, PosixErrorsNameThePath) {
  const TestFolder folder;
  folder.Write("file", "");
  const absl::Status status = PosixFileSystem().CreateFolders(folder.Path("file/below"));
  // The code must be Internal. The code that follows from errno would be wrong: the writer of a checkpoint would conclude from
  // it that a checkpoint of another run is in the way.
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("file/below"));
  EXPECT_TRUE(absl::IsDataLoss(PosixFileSystem().OpenFile(folder.path()).status()));
}

}  // namespace
}  // namespace lynx::worker
