#include "worker/checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/status.h"
#include "worker/contract/rank_progress.h"

namespace lynx::worker {
namespace {

// The largest number of bytes of one system call, so that a slow disk shows progress.
constexpr size_t kMaxCallBytes = size_t{64} << 20;
constexpr Nanos kMaxRemoval{600'000'000'000};
constexpr Nanos kFolderSync{120'000'000'000};

absl::Status ErrnoStatus(int error, const std::string& what) {
  const bool full = error == ENOSPC || error == EDQUOT;
  const absl::Status status = absl::ErrnoToStatus(
      error, full ? absl::StrCat(what, " (free space there, or set checkpoint.directory to a larger disk)") : what);
  const bool known = absl::IsNotFound(status) || absl::IsPermissionDenied(status) || absl::IsResourceExhausted(status);
  return known ? status : absl::InternalError(status.message());
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  absl::Status Append(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxCallBytes));
      if (written < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(errno, absl::StrCat("cannot write ", path_));
      }
      OwnProgress().Made();
      unsynced_ += Bytes(written);
      bytes.remove_prefix(static_cast<size_t>(written));
      if (unsynced_ - asked_ >= Bytes(kMaxCallBytes)) AskToWrite();
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    const QuietWork sync(TimeFor(unsynced_, kSlowDiskPerSecond));
    begin_ += std::exchange(unsynced_, Bytes(0));
    asked_ = Bytes(0);
    if (::fsync(fd_.get()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot sync ", path_));
    // Asks the kernel to drop the file from the page cache, so that verification reads the file from the disk. The kernel may
    // ignore the request.
    ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
    return absl::OkStatus();
  }

 private:
  // Asks the kernel to write to the disk what was written to the file since the last call. Waits until the disk has what the
  // last call asked for. So Sync has little to wait for, and each part on the disk counts as progress. Errors are ignored,
  // because Sync returns them.
  void AskToWrite() {
    const QuietWork wait(TimeFor(Bytes(kMaxCallBytes), kSlowDiskPerSecond));
    constexpr unsigned kWait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (asked_ > Bytes(0)) ::sync_file_range(fd_.get(), begin_.value, asked_.value, kWait);
    begin_ += asked_;
    unsynced_ -= asked_;
    asked_ = unsynced_;
    ::sync_file_range(fd_.get(), begin_.value, asked_.value, SYNC_FILE_RANGE_WRITE);
  }

  FileDescriptor fd_;
  std::string path_;
  Bytes begin_;     // the disk has everything before this place
  Bytes unsynced_;  // written behind it
  Bytes asked_;     // the first part of unsynced_, which the kernel was asked to write
};

class PosixReadableFile : public ReadableFile {
 public:
  PosixReadableFile(FileDescriptor fd, Bytes size, std::string path)
      : fd_(std::move(fd)), size_(size), path_(std::move(path)) {}

  Bytes size() const override { return size_; }

  absl::Status Read(std::span<char> out) override {
    while (!out.empty()) {
      const ssize_t got = ::read(fd_.get(), out.data(), std::min(out.size(), kMaxCallBytes));
      if (got < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(errno, absl::StrCat("cannot read ", path_));
      }
      if (got == 0) return absl::DataLossError(absl::StrCat(path_, " is cut short: ", out.size(), " bytes are missing"));
      OwnProgress().Made();
      out = out.subspan(static_cast<size_t>(got));
    }
    return absl::OkStatus();
  }

  absl::Status Skip(int64_t bytes) override {
    const off_t at = ::lseek(fd_.get(), bytes, SEEK_CUR);
    if (at < 0) return ErrnoStatus(errno, absl::StrCat("cannot seek in ", path_));
    if (at > size_.value) {
      return absl::DataLossError(absl::StrCat(path_, " is cut short: ", at - size_.value, " bytes are missing"));
    }
    return absl::OkStatus();
  }

 private:
  FileDescriptor fd_;
  Bytes size_;
  std::string path_;
};

class PosixFiles : public FileSystem {
 public:
  absl::Status CreateFolders(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) == 0) return SyncFolder(ParentOf(path));
    const int error = errno;
    if (error == EEXIST) return absl::OkStatus();
    const std::string parent = ParentOf(path);
    if (error != ENOENT || parent == path) return ErrnoStatus(error, absl::StrCat("cannot create folder ", path));
    LYNX_RETURN_IF_ERROR(CreateFolders(parent));
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, absl::StrCat("cannot create folder ", path));
    }
    return SyncFolder(parent);
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override {
    FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
    return std::make_unique<PosixWritableFile>(std::move(fd), path);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) override {
    // O_NONBLOCK: if there is a named pipe instead of a checkpoint's file, opening the pipe must not block the caller.
    FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info = {};
    if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
    if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, " is not a regular file"));
    return std::make_unique<PosixReadableFile>(std::move(fd), Bytes(info.st_size), path);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("cannot rename ", from, " to ", to));
  }

  absl::Status RemoveTree(const std::string& path) override {
    const QuietWork removal(kMaxRemoval);  // a file system can take long for large files, and tells nothing meanwhile
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? ErrnoStatus(error.value(), absl::StrCat("cannot remove ", path)) : absl::OkStatus();
  }

  absl::Status SyncFolder(const std::string& path) override {
    const QuietWork sync(kFolderSync);  // a file system may write the data of other files first
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // EINVAL means that the file system cannot sync folders. This is not an error.
    if (fd.get() < 0 || (::fsync(fd.get()) != 0 && errno != EINVAL)) {
      return ErrnoStatus(errno, absl::StrCat("cannot sync folder ", path));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator at(path, error);
    while (!error && at != std::filesystem::directory_iterator()) {
      names.push_back(at->path().filename());
      at.increment(error);
    }
    if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot list ", path));
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static std::string ParentOf(const std::string& path) {
    const std::string parent = std::filesystem::path(path).parent_path();
    return parent.empty() ? "." : parent;
  }
};

}  // namespace

FileSystem& PosixFileSystem() {
  static PosixFiles* const files = new PosixFiles;  // Never destroyed: threads may use it until the process ends.
  return *files;
}

absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path, Bytes limit) {
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files.OpenFile(path));
  if (file->size() > limit) {
    return absl::DataLossError(
        absl::StrCat(path, " has ", file->size().value, " bytes, more than the ", limit.value, " that it may have"));
  }
  std::string content(static_cast<size_t>(file->size().value), '\0');
  LYNX_RETURN_IF_ERROR(file->Read(content));
  return content;
}

absl::Status WriteWholeFile(FileSystem& files, const std::string& path, std::string_view content) {
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.CreateFile(path));
  LYNX_RETURN_IF_ERROR(file->Append(content));
  return file->Sync();
}

}  // namespace lynx::worker
