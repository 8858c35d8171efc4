// See queue_order.h.
#include "server/scheduling/queue_order.h"

#include <map>
#include <set>
#include <string>

namespace lynx::server {
namespace {

// A job that must wait because of a quota.
struct Beyond {
  WaitingJob job;
  bool by_user = false;
};

struct Line {
  const QueueConfig* config;
  const std::vector<WaitingJob>* jobs;
  size_t next = 0;
  int64_t used = 0;
  std::map<std::string, int64_t> used_by_user = {};
  bool queue_waits = false;               // a job waits for the queue's quota
  std::set<std::string> users_wait = {};  // users of whom a job waits for their quota
  std::vector<Beyond> beyond = {};

  bool empty(bool borrows) const { return next == (borrows ? beyond.size() : jobs->size()); }
  void Take(const WaitingJob& job) {
    used += job.devices;
    used_by_user[job.user] += job.devices;
  }
  // True if the job, or an earlier job of its user, must wait for the user's quota.
  bool WaitsForUser(const WaitingJob& job) {
    if (config->user_quota == 0) return false;
    const bool waits = users_wait.contains(job.user) || used_by_user[job.user] + job.devices > config->user_quota;
    if (waits) users_wait.insert(job.user);
    return waits;
  }
  // True if the job, or an earlier job, must wait for the queue's quota. Later jobs do not pass it.
  bool WaitsForQueue(const WaitingJob& job) {
    queue_waits = queue_waits || (config->quota > 0 && used + job.devices > config->quota);
    return queue_waits;
  }
};

// Takes jobs from all queues in turn until no job is left. If `borrows`, takes the jobs beyond a quota, and otherwise the
// others.
template <class Take>
void InTurn(std::vector<Line>& lines, bool borrows, const Take& take) {
  while (true) {
    Line* least = nullptr;
    for (Line& line : lines) {
      if (line.empty(borrows)) continue;
      const auto share = [](const Line& l, const Line& other) { return l.used * other.config->weight; };
      if (least == nullptr || share(line, *least) < share(*least, line)) least = &line;
    }
    if (least == nullptr) return;
    take(*least, least->next++);
  }
}

// A job that needs more than this quota can never begin, whatever the other jobs do.
bool IsNever(int32_t quota, const QueueConfig& config, const WaitingJob& job) {
  return quota > 0 && !config.may_borrow && job.devices > quota;
}

}  // namespace

std::vector<Turn> OrderOfTurns(const std::map<std::string, std::vector<WaitingJob>>& waiting, const UsedDevices& used,
                               const std::map<std::string, QueueConfig>& configs) {
  static const QueueConfig& plain = *new QueueConfig();
  std::vector<Line> lines;
  for (const auto& [name, jobs] : waiting) {
    const auto config = configs.find(name);
    const auto has = used.by_queue.find(name);
    lines.push_back({.config = config == configs.end() ? &plain : &config->second,
                     .jobs = &jobs,
                     .used = has == used.by_queue.end() ? 0 : has->second});
    for (auto user = used.by_user.lower_bound({name, ""}); user != used.by_user.end() && user->first.first == name; ++user) {
      lines.back().used_by_user[user->first.second] = user->second;
    }
  }
  std::vector<Turn> turns, over;
  InTurn(lines, false, [&](Line& line, size_t at) {
    const WaitingJob& job = (*line.jobs)[at];
    const QueueConfig& config = *line.config;
    if (const bool by_queue = IsNever(config.quota, config, job); by_queue || IsNever(config.user_quota, config, job)) {
      over.push_back({job.submission, Standing::kOverQuota, !by_queue});
    } else if (line.WaitsForUser(job)) {
      line.beyond.push_back({job, true});
    } else if (line.WaitsForQueue(job)) {
      line.beyond.push_back({job, false});
    } else {
      line.Take(job);
      turns.push_back({job.submission, Standing::kWithinQuota});
    }
  });
  for (Line& line : lines) line.next = 0;
  InTurn(lines, true, [&](Line& line, size_t at) {
    const Beyond& beyond = line.beyond[at];
    const bool borrows = line.config->may_borrow;
    if (borrows) line.Take(beyond.job);
    (borrows ? turns : over)
        .push_back({beyond.job.submission, borrows ? Standing::kBorrows : Standing::kOverQuota, beyond.by_user});
  });
  turns.insert(turns.end(), over.begin(), over.end());
  return turns;
}

}  // namespace lynx::server
