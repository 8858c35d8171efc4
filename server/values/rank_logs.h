// RankLogs: the last lines that the ranks of each job wrote, in memory. Bounded: kLinesPerRank lines a rank, kLineBytes a
// line, kJobs jobs (the ones that wrote last). Not thread-safe; owned by the controller.
//
// Each line has a sequence: larger than that of every line before, of all jobs; and no smaller than the wall clock's
// nanoseconds when it came, so that those of a server that is started again are larger than those of the one before.
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

namespace lynx {

struct LogLine {
  int32_t rank = 0;
  Generation generation;
  std::string text;
  int64_t sequence = 0;
};

// Which lines; all conditions hold.
struct LogQuery {
  int32_t rank = -1;      // -1: of all ranks
  Generation generation;  // 0: of all
  int64_t after = 0;      // only larger sequences
  size_t limit = 0;       // the newest so many of each rank
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

  // `wall`: when they came.
  void Add(const RankLogLines& lines, Nanos wall);
  // By rank, oldest first.
  std::vector<LogLine> Last(const JobId& job, const LogQuery& query) const;
  // The newest lines of one rank of one generation.
  std::vector<std::string> LastOf(const RankKey& key, size_t limit) const;
  // The rank whose failure explains those of the others, in place of that of an earlier generation. Known as long as the job's
  // lines.
  void NoteFailure(const RankKey& key);
  std::optional<FailedRank> FirstFailure(const JobId& job) const;

 private:
  struct JobLogs {
    int64_t touched = 0;  // its newest sequence
    std::optional<FailedRank> failure;
    std::map<int32_t, std::deque<LogLine>> ranks;
  };
  void ForgetOldest();

  int64_t last_sequence_ = 0;
  std::map<JobId, JobLogs> jobs_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_VALUES_RANK_LOGS_H_
