// RankLogs: the last lines that the ranks of each job wrote, in memory. Bounded: kLinesPerRank lines a rank, kLineBytes a
// line, kJobs jobs (the ones that wrote last). Not thread-safe; owned by the controller.
#ifndef LYNX_SERVER_RANK_LOGS_H_
#define LYNX_SERVER_RANK_LOGS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/ids.h"
#include "server/node_state.h"

namespace lynx {

struct LogLine {
  int32_t rank = 0;
  Generation generation;
  std::string text;
};

class RankLogs {
 public:
  static constexpr size_t kLinesPerRank = 1000;
  static constexpr size_t kLineBytes = 4096;
  static constexpr size_t kJobs = 64;

  void Add(const RankLogLines& lines);
  // The newest `limit` lines of each rank, oldest first; `rank` -1 = all ranks, in their order.
  std::vector<LogLine> Last(const JobId& job, int32_t rank, size_t limit) const;
  // The newest lines of one rank of one generation.
  std::vector<std::string> LastOf(const RankKey& key, size_t limit) const;

 private:
  struct JobLogs {
    int64_t touched = 0;
    std::map<int32_t, std::deque<LogLine>> ranks;
  };
  void ForgetOldest();

  int64_t clock_ = 0;  // counts Adds
  std::map<JobId, JobLogs> jobs_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_RANK_LOGS_H_
