// See rank_logs.h.
#include "server/rank_logs.h"

#include <algorithm>

namespace lynx {
namespace {

// At most `limit` bytes, and no half of a UTF-8 character at the end: protobuf refuses such text.
std::string Cut(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return text.substr(0, limit);
}

}  // namespace

void RankLogs::Add(const RankLogLines& lines) {
  if (lines.lines.empty()) return;
  JobLogs& job = jobs_[lines.key.job];
  job.touched = ++clock_;
  std::deque<LogLine>& rank = job.ranks[lines.key.rank];
  for (const std::string& text : lines.lines) {
    rank.push_back({lines.key.rank, lines.key.generation, Cut(text, kLineBytes)});
    if (rank.size() > kLinesPerRank) rank.pop_front();
  }
  if (jobs_.size() > kJobs) ForgetOldest();
}

void RankLogs::ForgetOldest() {
  const auto oldest = std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
    return a.second.touched < b.second.touched;
  });
  jobs_.erase(oldest);
}

std::vector<LogLine> RankLogs::Last(const JobId& job, int32_t rank, size_t limit) const {
  std::vector<LogLine> lines;
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return lines;
  for (const auto& [number, log] : found->second.ranks) {
    if (rank >= 0 && number != rank) continue;
    const size_t count = std::min(limit, log.size());
    lines.insert(lines.end(), log.end() - static_cast<std::ptrdiff_t>(count), log.end());
  }
  return lines;
}

std::vector<std::string> RankLogs::LastOf(const RankKey& key, size_t limit) const {
  std::vector<std::string> lines;
  for (const LogLine& line : Last(key.job, key.rank, kLinesPerRank)) {
    if (line.generation == key.generation) lines.push_back(line.text);
  }
  if (lines.size() > limit) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(limit));
  return lines;
}

}  // namespace lynx
