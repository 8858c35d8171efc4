#include "worker/daemon/file_tail.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/fd.h"

namespace lynx::worker {
namespace {

int64_t FileSize(const std::string& path) {
  struct stat file {};
  return ::stat(path.c_str(), &file) == 0 ? static_cast<int64_t>(file.st_size) : 0;
}

// Returns the bytes [offset, offset + limit_bytes) of the file.
std::string ReadAt(const std::string& path, int64_t offset, int64_t limit_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  if (!fd.valid() || limit_bytes <= 0) return content;
  content.resize(static_cast<size_t>(limit_bytes));
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = ::pread(fd.get(), content.data() + done, content.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

}  // namespace

std::vector<std::string> FileTail::Read(int64_t limit_bytes) {
  std::vector<std::string> lines;
  const int64_t unread = Unread();
  stuck_ = false;
  if (unread == 0) return lines;
  const std::string content = ReadAt(path_, offset_, std::min(limit_bytes, unread));
  stuck_ = content.empty();
  offset_ += static_cast<int64_t>(content.size());
  size_t begin = 0;
  while (begin < content.size()) {
    const size_t end = content.find('\n', begin);
    const bool complete = end != std::string::npos;
    partial_.append(content, begin, complete ? end - begin : std::string::npos);
    if (partial_.size() > kMaxLineBytes) partial_.resize(kMaxLineBytes);
    if (!complete) break;
    lines.push_back(std::exchange(partial_, ""));
    begin = end + 1;
  }
  return lines;
}

int64_t FileTail::Unread() const { return std::max<int64_t>(0, FileSize(path_) - offset_); }

int64_t FileTail::SkipTo(int64_t keep_bytes) {
  const int64_t skipped = std::max<int64_t>(0, Unread() - keep_bytes);
  if (skipped == 0) return 0;
  offset_ += skipped;
  partial_.clear();
  return skipped;
}

std::string FileTail::TakeRest() { return std::exchange(partial_, ""); }

std::string FileEnd(const std::string& path, int64_t limit_bytes) {
  const int64_t size = FileSize(path);
  const int64_t length = std::min(size, limit_bytes);
  return ReadAt(path, size - length, length);
}

}  // namespace lynx::worker
