// RankLogs: the last lines that the ranks of each job wrote, in memory. Bounded: kLinesPerRank lines per rank, kLineBytes bytes
// per line, and the kJobs jobs that wrote last. Not thread-safe; owned by the controller.
//
// Each line has a sequence number. It is larger than the number of every earlier line of any job, and at least the wall clock's
// nanoseconds at the line's arrival. So the numbers keep growing after a restart of the server.
#ifndef LYNX_SERVER_VALUES_RANK_LOGS_H_
#define LYNX_SERVER_VALUES_RANK_LOGS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "server/values/node_state.h"

namespace lynx::server {

struct LogLine {
  int32_t rank = 0;
  Generation generation;
  std::string text;
  int64_t sequence = 0;
};

// Selects lines; all conditions must hold.
struct LogQuery {
  int32_t rank = -1;      // -1: all ranks
  Generation generation;  // 0: all generations
  int64_t after = 0;      // only lines with a larger sequence
  size_t limit = 0;       // at most this many lines of each rank, the newest
};

struct FailedRank {
  int32_t rank = 0;
  Generation generation;
};

class RankLogs {
 public:
  static constexpr size_t kLinesPerRank = 1000;
  static constexpr size_t kLineBytes = 4096;
  static constexpr size_t kJobs = 64;

  // `wall`: when the lines came.
  void Add(const RankLogLines& lines, Nanos wall);
  // The lines are sorted by rank; the lines of a rank come with the oldest first.
  std::vector<LogLine> Last(const JobId& job, const LogQuery& query) const;
  // The newest lines of one rank of one generation.
  std::vector<std::string> LastOf(const RankKey& key, size_t limit) const;
  // Records the rank whose failure explains the failures of the other ranks. Replaces the record of an earlier generation.
  // Does nothing if there is a record of this generation or a later one. The record stays as long as the job's lines.
  void NoteFailure(const RankKey& key);
  std::optional<FailedRank> FirstFailure(const JobId& job) const;

 private:
  struct JobLogs {
    int64_t touched = 0;  // sequence of the job's newest line or noted failure
    std::optional<FailedRank> failure;
    std::map<int32_t, std::deque<LogLine>> ranks;
  };
  void ForgetOldest();

  int64_t last_sequence_ = 0;
  std::map<JobId, JobLogs> jobs_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_VALUES_RANK_LOGS_H_
