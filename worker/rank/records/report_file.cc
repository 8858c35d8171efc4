#include "worker/rank/records/report_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/status.h"

namespace lynx::worker {

absl::StatusOr<ReportFile> ReportFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) return ReportFile(path, fd);
  return absl::InvalidArgumentError(absl::StrCat("cannot open the report file ", path, ": ", std::strerror(errno)));
}

ReportFile::ReportFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

ReportFile::ReportFile(ReportFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), torn_(other.torn_) {}

ReportFile::~ReportFile() {
  if (fd_ >= 0) close(fd_);
}

void ReportFile::Append(const RankReport& report) {
  // If the last write left an incomplete line, the line stays in the file, because the daemon may have read it already.
  const std::string text = absl::StrCat(torn_ ? "\n" : "", RankReportLine(report), "\n");
  ssize_t written = 0;
  do {
    written = write(fd_, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  if (written > 0) torn_ = text[static_cast<size_t>(written) - 1] != '\n';
  if (written == static_cast<ssize_t>(text.size())) return;
  const char* const reason = written < 0 ? std::strerror(errno) : "the disk is full";
  std::fprintf(stderr, "cannot append to %s: %s; the report is lost: %s", path_.c_str(), reason, text.c_str());
}

}  // namespace lynx::worker
