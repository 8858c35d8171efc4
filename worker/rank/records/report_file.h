// ReportFile writes a rank's reports to a file, one JSON object per line. Each line is appended with one write. It is a file
// and not a pipe for two reasons. The rank continues if the worker daemon is killed. And a new daemon can read on from where
// the old one stopped.
//
// The rank's compute thread owns it.
#ifndef LYNX_WORKER_RANK_RECORDS_REPORT_FILE_H_
#define LYNX_WORKER_RANK_RECORDS_REPORT_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/contract/rank_report.h"

namespace lynx::worker {

class ReportFile {
 public:
  // Opens `path` for appending, or creates it. Returns InvalidArgument if this fails.
  static absl::StatusOr<ReportFile> Open(const std::string& path);
  ReportFile(ReportFile&& other) noexcept;
  ReportFile& operator=(ReportFile&&) = delete;
  ~ReportFile();

  // If a report cannot be written (the disk is full), it is named on stderr and dropped, because training is more important. If
  // only a part of a report was written, this part stays as an invalid line, and the next report begins on a new line.
  void Append(const RankReport& report);

 private:
  ReportFile(std::string path, int fd);

  std::string path_;
  int fd_ = -1;
  bool torn_ = false;  // the last line is incomplete
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_RECORDS_REPORT_FILE_H_
