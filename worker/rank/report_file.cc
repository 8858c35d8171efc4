#include "worker/rank/report_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/status.h"

namespace lynx {

absl::StatusOr<ReportFile> ReportFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) return ReportFile(path, fd);
  return absl::InvalidArgumentError(absl::StrCat("cannot open the report file ", path, ": ", std::strerror(errno)));
}

ReportFile::ReportFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

ReportFile::ReportFile(ReportFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

ReportFile::~ReportFile() {
  if (fd_ >= 0) close(fd_);
}

void ReportFile::Append(const RankReport& report) {
  const std::string line = RankReportLine(report) + "\n";
  ssize_t written = 0;
  do {
    written = write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return;
  const char* const reason = written < 0 ? std::strerror(errno) : "the disk is full";
  std::fprintf(stderr, "cannot append to %s: %s; the report is lost: %s", path_.c_str(), reason, line.c_str());
}

}  // namespace lynx
