// See queue_order.h.
#include "server/scheduling/queue_order.h"

#include <optional>

namespace lynx::server {
namespace {

struct Line {
  const QueueConfig* config;
  const std::vector<WaitingJob>* jobs;
  size_t next = 0;
  int64_t used = 0;
  std::vector<WaitingJob> beyond;  // jobs that must wait because of the quota

  bool empty() const { return next == jobs->size(); }
};

// Takes jobs from all lines in turn until no job is left.
template <class Take>
void InTurn(std::vector<Line>& lines, const Take& take) {
  while (true) {
    Line* least = nullptr;
    for (Line& line : lines) {
      if (line.empty()) continue;
      const auto share = [](const Line& l, const Line& other) { return l.used * other.config->weight; };
      if (least == nullptr || share(line, *least) < share(*least, line)) least = &line;
    }
    if (least == nullptr) return;
    take(*least, (*least->jobs)[least->next++]);
  }
}

}  // namespace

std::vector<Turn> OrderOfTurns(const std::map<std::string, std::vector<WaitingJob>>& waiting,
                               const std::map<std::string, int32_t>& used, const std::map<std::string, QueueConfig>& configs) {
  static const QueueConfig& plain = *new QueueConfig();
  std::vector<Line> lines;
  for (const auto& [name, jobs] : waiting) {
    const auto config = configs.find(name);
    const auto has = used.find(name);
    lines.push_back({.config = config == configs.end() ? &plain : &config->second,
                     .jobs = &jobs,
                     .used = has == used.end() ? 0 : has->second});
  }
  std::vector<Turn> turns, over;
  InTurn(lines, [&](Line& line, const WaitingJob& job) {
    const int32_t quota = line.config->quota;
    if (quota > 0 && !line.config->may_borrow && job.devices > quota) {  // the job can never begin, whatever the other jobs do
      over.push_back({job.submission, Standing::kOverQuota});
      return;
    }
    // The job, or an earlier job of its queue, must wait for the quota. Later jobs do not pass it.
    if (quota > 0 && (!line.beyond.empty() || line.used + job.devices > quota)) {
      line.beyond.push_back(job);
      return;
    }
    line.used += job.devices;
    turns.push_back({job.submission, Standing::kWithinQuota});
  });
  for (Line& line : lines) {
    line.jobs = &line.beyond;
    line.next = 0;
  }
  InTurn(lines, [&](Line& line, const WaitingJob& job) {
    if (!line.config->may_borrow) {
      over.push_back({job.submission, Standing::kOverQuota});
      return;
    }
    line.used += job.devices;
    turns.push_back({job.submission, Standing::kBorrows});
  });
  turns.insert(turns.end(), over.begin(), over.end());
  return turns;
}

}  // namespace lynx::server
