// ReportFile: where a rank's reports go, one JSON object a line, appended to a file with one write each. A file and
// not a pipe, so that the worker daemon may be killed and come back: the rank goes on, and the new daemon reads on
// from where the old one was.
//
// Owned by the rank's compute thread.
#ifndef LYNX_WORKER_RANK_RECORDS_REPORT_FILE_H_
#define LYNX_WORKER_RANK_RECORDS_REPORT_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/contract/rank_report.h"

namespace lynx {

class ReportFile {
 public:
  // Opens `path` for appending, or creates it. The status says what errno does.
  static absl::StatusOr<ReportFile> Open(const std::string& path);
  ReportFile(ReportFile&& other) noexcept;
  ReportFile& operator=(ReportFile&&) = delete;
  ~ReportFile();

  // A report that cannot be written (a full disk) is named on stderr and dropped: training matters more. One that was
  // written in part stays as a line that is no report; the next begins a line of its own.
  void Append(const RankReport& report);

 private:
  ReportFile(std::string path, int fd);

  std::string path_;
  int fd_ = -1;
  bool torn_ = false;  // the last line has no end
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_RECORDS_REPORT_FILE_H_
