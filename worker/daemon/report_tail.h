// ReportTail delivers a rank's report file to the server. It numbers and parses the lines, and holds the reports until the
// server has acknowledged them. After a reconnection it returns again all reports that were not acknowledged.
//
//   file --Read--> [ unacknowledged: sent | not yet sent ] --Acknowledge--> dropped
//
// When ReportTail holds kWindow or more reports, it stops reading until the server acknowledges some; the rest stays in the
// file. So a rank can train for any time without its server. LogTail delivers the rank's standard error in the same way, but
// without acknowledgement. If lines are written faster than they are read or taken, LogTail drops the oldest ones and adds a
// line that says how much it dropped.
//
// Not thread-safe.
#ifndef LYNX_WORKER_DAEMON_REPORT_TAIL_H_
#define LYNX_WORKER_DAEMON_REPORT_TAIL_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/rank_key.h"
#include "worker/contract/rank_report.h"
#include "worker/daemon/file_tail.h"

namespace lynx::worker {

struct NumberedReport {
  int64_t sequence = 0;  // number of the report's line in the file, counted from 1
  RankReport report;
};

class ReportTail {
 public:
  ReportTail(std::string path, RankKey key) : file_(std::move(path)), key_(std::move(key)) {}

  // Reads new complete lines and returns their reports. A line that does not parse is logged and not returned, but it keeps its
  // number.
  std::vector<RankReport> Read();
  // Call it when the server has durably stored all reports up to `sequence`.
  void Acknowledge(int64_t sequence);
  // After this call, Next returns again the reports that are not acknowledged.
  void Rewind() { sent_ = 0; }
  // Returns the next report to send, or nullptr if there is none now. The pointer is valid until the next call of a member.
  const NumberedReport* Next();
  bool HasNext() const { return sent_ < held_.size(); }
  // True if every report in the file so far has been returned by Next or acknowledged. If the file cannot be read, true if
  // every report that is held has been returned.
  bool Drained() const { return !HasNext() && (file_.Unread() == 0 || file_.stuck()); }

  static constexpr size_t kWindow = 20'000;

 private:
  FileTail file_;
  const RankKey key_;
  int64_t lines_ = 0;  // lines read so far
  int64_t acknowledged_ = 0;
  std::deque<NumberedReport> held_;  // the reports that are not acknowledged
  size_t sent_ = 0;                  // how many reports of held_ were returned, counted from its front
};

// Returns the first `limit` bytes of a line as valid UTF-8. Replaces bytes that are not UTF-8 by '?', because the protocol
// cannot carry them.
std::string CleanLine(const std::string& line, size_t limit = 4096);

// Returns the last report in the file that says that the rank is done, gave way or failed.
std::optional<RankReport> FinalReport(const std::string& path);

class LogTail {
 public:
  explicit LogTail(std::string path) : file_(std::move(path)) {}

  // Starts at the file's end. Call it for a rank that an earlier daemon started, because that daemon has sent the existing
  // lines.
  void SkipExisting() { file_.SkipTo(0); }
  void Read();
  // Call it after the writing process has ended. An incomplete last line then counts as a line. Lines that cannot be read are
  // skipped, and a line that says so is added.
  void Finish();
  bool HasLines() const { return !lines_.empty(); }
  // Returns at most `limit` lines, oldest first, each in the form that CleanLine returns.
  std::vector<std::string> Take(size_t limit);

 private:
  void Add(std::string line);

  FileTail file_;
  std::deque<std::string> lines_;
  // What was skipped since the last Take.
  int64_t lost_lines_ = 0;
  int64_t lost_bytes_ = 0;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_REPORT_TAIL_H_
