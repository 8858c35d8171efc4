// See rank_logs.h.
#include "server/values/rank_logs.h"

#include <algorithm>

namespace lynx::server {
namespace {

// Returns at most the first `limit` bytes, without a partial UTF-8 character at the end, which protobuf would refuse.
std::string Cut(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return text.substr(0, limit);
}

}  // namespace

void RankLogs::Add(const RankLogLines& lines, Nanos wall) {
  if (lines.lines.empty()) return;
  JobLogs& job = jobs_[lines.key.job];
  std::deque<LogLine>& rank = job.ranks[lines.key.rank];
  for (const std::string& text : lines.lines) {
    last_sequence_ = std::max(last_sequence_ + 1, wall.value);
    rank.push_back({lines.key.rank, lines.key.generation, Cut(text, kLineBytes), last_sequence_});
    if (rank.size() > kLinesPerRank) rank.pop_front();
  }
  job.touched = last_sequence_;
  if (jobs_.size() > kJobs) ForgetOldest();
}

void RankLogs::NoteFailure(const RankKey& key) {
  JobLogs& job = jobs_[key.job];
  if (job.failure.has_value() && job.failure->generation >= key.generation) return;
  job.failure = {key.rank, key.generation};
  job.touched = ++last_sequence_;
  if (jobs_.size() > kJobs) ForgetOldest();
}

std::optional<FailedRank> RankLogs::FirstFailure(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? std::nullopt : found->second.failure;
}

void RankLogs::ForgetOldest() {
  const auto oldest = std::min_element(jobs_.begin(), jobs_.end(),
                                       [](const auto& a, const auto& b) { return a.second.touched < b.second.touched; });
  jobs_.erase(oldest);
}

std::vector<LogLine> RankLogs::Last(const JobId& job, const LogQuery& query) const {
  std::vector<LogLine> lines;
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return lines;
  for (const auto& [number, log] : found->second.ranks) {
    if (query.rank >= 0 && number != query.rank) continue;
    const size_t before = lines.size();
    for (auto line = log.rbegin(); line != log.rend() && lines.size() - before < query.limit && line->sequence > query.after;
         ++line) {
      if (query.generation == Generation() || line->generation == query.generation) lines.push_back(*line);
    }
    std::reverse(lines.begin() + static_cast<std::ptrdiff_t>(before), lines.end());
  }
  return lines;
}

std::vector<std::string> RankLogs::LastOf(const RankKey& key, size_t limit) const {
  std::vector<std::string> lines;
  for (const LogLine& line : Last(key.job, {.rank = key.rank, .generation = key.generation, .limit = limit}))
    lines.push_back(line.text);
  return lines;
}

}  // namespace lynx::server
