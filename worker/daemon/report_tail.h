// ReportTail: a rank's report file on its way to the server. It numbers the lines, parses them, and holds them until
// the server has acknowledged them; after a new attachment it hands out again whatever has not been.
//
//   file --Read--> [ unacknowledged: sent | not yet sent ] --Acknowledge--> dropped
//
// At most kWindow reports are held; reading then pauses until the server acknowledges (the file keeps the rest), so a
// rank trains on for any time without its server. LogTail: the same for its standard error, without acknowledgement:
// what was written while nobody listened for long is passed over, with a line that says how much.
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

namespace lynx {

struct NumberedReport {
  int64_t sequence = 0;  // 1-based number of its line
  RankReport report;
};

class ReportTail {
 public:
  ReportTail(std::string path, RankKey key) : file_(std::move(path)), key_(std::move(key)) {}

  // Takes in new complete lines and returns them. A line that does not parse is logged, keeps its number and is left
  // out.
  std::vector<RankReport> Read();
  // Everything up to `sequence` is durable at the server.
  void Acknowledge(int64_t sequence);
  // What is not acknowledged will be handed out again.
  void Rewind() { sent_ = 0; }
  // The next report to send; nullptr when there is none now. Valid until the next call of a member.
  const NumberedReport* Next();
  bool HasNext() const { return sent_ < held_.size(); }
  // Every report in the file so far has been handed out (or acknowledged). Of a file that cannot be read: all that is
  // held.
  bool Drained() const { return !HasNext() && (file_.Unread() == 0 || file_.stuck()); }

  static constexpr size_t kWindow = 20'000;

 private:
  FileTail file_;
  const RankKey key_;
  int64_t lines_ = 0;  // taken in
  int64_t acknowledged_ = 0;
  std::deque<NumberedReport> held_;  // unacknowledged
  size_t sent_ = 0;                  // of held_, from its front
};

// At most `limit` bytes of a line, as valid UTF-8: other bytes become '?', for they could not cross the wire.
std::string CleanLine(const std::string& line, size_t limit = 4096);

// The last done or failure report of a file.
std::optional<RankReport> FinalReport(const std::string& path);

class LogTail {
 public:
  explicit LogTail(std::string path) : file_(std::move(path)) {}

  // Starts at the file's end: for a rank that was adopted, whose earlier lines an earlier daemon has sent.
  void SkipExisting() { file_.SkipTo(0); }
  void Read();
  // The writer has ended: an incomplete last line counts, and what cannot be read is passed over with a line that
  // says so.
  void Finish();
  bool HasLines() const { return !lines_.empty(); }
  // At most `limit`, oldest first; each as CleanLine makes it.
  std::vector<std::string> Take(size_t limit);

 private:
  void Add(std::string line);

  FileTail file_;
  std::deque<std::string> lines_;
  // Passed over since the last Take.
  int64_t lost_lines_ = 0;
  int64_t lost_bytes_ = 0;
};

}  // namespace lynx

#endif  // LYNX_WORKER_DAEMON_REPORT_TAIL_H_
