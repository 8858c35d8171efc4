#include "node/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace lynx {
namespace {

absl::Status ErrnoStatus(int error, const std::string& doing) {
  const std::string text = absl::StrCat("cannot ", doing, ": ", std::string(::strerror(error)));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  if (error == EIO) return absl::DataLossError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::InternalError(text);
}

absl::Status WriteAll(int fd, const std::string& content, const std::string& path) {
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t wrote = ::write(fd, content.data() + done, content.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

absl::Status WriteAndSync(const std::string& path, const std::string& content, mode_t mode) {
  // If a file with this name is left from an earlier attempt, other users may be allowed to read it. So it is removed first.
  if ((mode & 077) == 0) ::unlink(path.c_str());
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path));
  LYNX_RETURN_IF_ERROR(WriteAll(fd.get(), content, path));
  if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path));
  return absl::OkStatus();
}

}  // namespace

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("make the directory ", path));
  return absl::OkStatus();
}

absl::Status WriteFileDurably(const std::string& path, const std::string& content, mode_t mode) {
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no regular file, and nothing is put in its place; name another"));
  }
  const std::string beside = path + ".new";
  const absl::Status written = WriteAndSync(beside, content, mode);
  if (!written.ok()) {
    ::unlink(beside.c_str());
    return written;
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("rename to ", path));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  UniqueFd directory(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() || ::fsync(directory.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", folder));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  std::string content;
  char buffer[64 * 1024];
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
    if (static_cast<int64_t>(content.size()) > limit_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(path, " is longer than ", limit_bytes, " bytes"));
    }
  }
}

std::string LastLines(const std::string& path, size_t lines) {
  constexpr off_t kLongest = 64 * 1024;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const off_t size = fd.valid() ? ::lseek(fd.get(), 0, SEEK_END) : 0;
  if (size <= 0) return "";
  const off_t begin = size > kLongest ? size - kLongest : 0;
  std::string text(static_cast<size_t>(size - begin), '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), begin);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  std::vector<std::string> all = absl::StrSplit(text, '\n');
  if (begin > 0) all.erase(all.begin());  // removes the end of a line that begins earlier
  if (!all.empty() && all.back().empty()) all.pop_back();
  if (all.size() > lines) all.erase(all.begin(), all.end() - static_cast<ptrdiff_t>(lines));
  return absl::StrJoin(all, "\n");
}

absl::StatusOr<UniqueFd> LockFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", path));
    const absl::StatusOr<std::string> holder = ReadFile(path, 64);
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is locked by process ",
                     holder.ok() && !holder->empty() ? std::string(absl::StripAsciiWhitespace(*holder)) : "(unknown)"));
  }
  // Only a process that does not get the lock reads the id. So an error here is ignored: a full disk must not keep a daemon
  // from stopping its ranks.
  if (::ftruncate(fd.get(), 0) == 0) WriteAll(fd.get(), absl::StrCat(::getpid(), "\n"), path).IgnoreError();
  return fd;
}

}  // namespace lynx
