// ReportTail: delivers a rank's report file to the server. It numbers and parses the lines, and holds them until the server has
// acknowledged them. After a reconnection it returns again whatever was not acknowledged.
//
//   file --Read--> [ unacknowledged: sent | not yet sent ] --Acknowledge--> dropped
//
// It holds at most kWindow reports. It then stops reading until the server acknowledges some (the file keeps the rest), so a
// rank can train for any time without its server. LogTail does the same for the rank's standard error, but without
// acknowledgement: if nobody has read for long, it skips what was written in that time and adds a line that says how much.
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
  int64_t sequence = 0;  // 1-based number of its line
  RankReport report;
};

class ReportTail {
 public:
  ReportTail(std::string path, RankKey key) : file_(std::move(path)), key_(std::move(key)) {}

  // Reads new complete lines and returns their reports. A line that does not parse is logged and left out, but it keeps its
  // number.
  std::vector<RankReport> Read();
  // Call it when the server has durably stored all reports up to `sequence`.
  void Acknowledge(int64_t sequence);
  // After this call, Next returns again the reports that are not acknowledged.
  void Rewind() { sent_ = 0; }
  // The next report to send; nullptr when there is none now. Valid until the next call of a member.
  const NumberedReport* Next();
  bool HasNext() const { return sent_ < held_.size(); }
  // True if every report in the file so far has been returned by Next or acknowledged. For a file that cannot be read: every
  // report that is held.
  bool Drained() const { return !HasNext() && (file_.Unread() == 0 || file_.stuck()); }

  static constexpr size_t kWindow = 20'000;

 private:
  FileTail file_;
  const RankKey key_;
  int64_t lines_ = 0;  // lines read so far
  int64_t acknowledged_ = 0;
  std::deque<NumberedReport> held_;  // unacknowledged
  size_t sent_ = 0;                  // how many of held_ were returned, counted from its front
};

// The first `limit` bytes of a line, as valid UTF-8. Other bytes become '?', because the protocol cannot carry them.
std::string CleanLine(const std::string& line, size_t limit = 4096);

// The last report of the file that says that the rank is done, has yielded or has failed.
std::optional<RankReport> FinalReport(const std::string& path);

class LogTail {
 public:
  explicit LogTail(std::string path) : file_(std::move(path)) {}

  // Starts at the file's end. For an adopted rank, whose earlier lines the earlier daemon has sent.
  void SkipExisting() { file_.SkipTo(0); }
  void Read();
  // Call it when the writer has ended. An incomplete last line then counts as a line. Lines that cannot be read are skipped,
  // and a line that says so is added.
  void Finish();
  bool HasLines() const { return !lines_.empty(); }
  // At most `limit` lines, oldest first; each as CleanLine returns it.
  std::vector<std::string> Take(size_t limit);

 private:
  void Add(std::string line);

  FileTail file_;
  std::deque<std::string> lines_;
  // Lines that were skipped since the last Take.
  int64_t lost_lines_ = 0;
  int64_t lost_bytes_ = 0;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_REPORT_TAIL_H_
