#include "worker/daemon/report_tail.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_split.h"
#include "node/log.h"

namespace lynx::worker {
namespace {

constexpr int64_t kReadBytes = 1 << 20;
constexpr int64_t kFinalReportBytes = 256 << 10;
constexpr size_t kLogLinesHeld = 1000;
constexpr int64_t kLogBacklogBytes = 256 << 10;
constexpr int64_t kLogKeptBytes = 64 << 10;

// Returns the length of the UTF-8 character at `i`, or 0 if there is no valid character. As in protobuf, overlong forms and
// surrogates are not valid.
size_t Utf8Length(const std::string& text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 && lead <= 0xF4 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (length == 0 || lead > 0xF4 || i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(i + 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) || (lead == 0xF0 && second < 0x90) ||
      (lead == 0xF4 && second >= 0x90)) {
    return 0;
  }
  return length;
}

}  // namespace

std::string CleanLine(const std::string& line, size_t limit) {
  std::string clean;
  for (size_t i = 0; i < line.size() && clean.size() < limit;) {
    const size_t length = Utf8Length(line, i);
    if (length == 0) {
      clean += '?';
      ++i;
      continue;
    }
    if (clean.size() + length > limit) break;
    clean.append(line, i, length);
    i += length;
  }
  return clean;
}

std::vector<RankReport> ReportTail::Read() {
  std::vector<RankReport> fresh;
  if (held_.size() >= kWindow) return fresh;
  const bool was_stuck = file_.stuck();
  for (const std::string& line : file_.Read(kReadBytes)) {
    ++lines_;
    absl::StatusOr<RankReport> report = ParseRankReport(line);
    if (!report.ok()) {
      LogWarn("{}: line {} of its reports is damaged and passed over: {}", RankKeyText(key_), lines_,
              std::string(report.status().message()));
      continue;
    }
    fresh.push_back(*report);
    if (lines_ > acknowledged_) held_.push_back({lines_, *std::move(report)});
  }
  if (file_.stuck() && !was_stuck) {
    LogError("{}: {} bytes of its reports cannot be read; see the disk of --data-dir", RankKeyText(key_), file_.Unread());
  }
  return fresh;
}

void ReportTail::Acknowledge(int64_t sequence) {
  acknowledged_ = std::max(acknowledged_, sequence);
  while (!held_.empty() && held_.front().sequence <= acknowledged_) {
    held_.pop_front();
    if (sent_ > 0) --sent_;
  }
}

const NumberedReport* ReportTail::Next() { return HasNext() ? &held_[sent_++] : nullptr; }

std::optional<RankReport> FinalReport(const std::string& path) {
  std::vector<std::string> lines = absl::StrSplit(FileEnd(path, kFinalReportBytes), '\n');
  lines.pop_back();  // removes the text after the last line end: it is empty, or a line that was never completed
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    absl::StatusOr<RankReport> report = ParseRankReport(*line);
    if (!report.ok()) continue;
    if (std::holds_alternative<RankDone>(*report) || std::holds_alternative<RankYielded>(*report) ||
        std::holds_alternative<RankFailure>(*report)) {
      return *report;
    }
  }
  return std::nullopt;
}

void LogTail::Add(std::string line) {
  // Drops the oldest line if there are too many, because the newest lines tell why a rank failed.
  if (lines_.size() >= kLogLinesHeld) {
    lines_.pop_front();
    ++lost_lines_;
  }
  lines_.push_back(CleanLine(line));
}

void LogTail::Read() {
  if (file_.Unread() > kLogBacklogBytes) lost_bytes_ += file_.SkipTo(kLogKeptBytes);
  for (std::string& line : file_.Read(kLogKeptBytes)) Add(std::move(line));
}

void LogTail::Finish() {
  do {
    Read();
  } while (file_.Unread() > 0 && !file_.stuck());
  if (file_.stuck()) Add(absl::StrCat("[", file_.SkipTo(0), " bytes of output could not be read]"));
  std::string rest = file_.TakeRest();
  if (!rest.empty()) Add(std::move(rest));
}

std::vector<std::string> LogTail::Take(size_t limit) {
  if (lost_lines_ > 0 || lost_bytes_ > 0) {
    if (lines_.size() >= kLogLinesHeld) lines_.pop_front();
    lines_.push_front(absl::StrCat("[", lost_lines_, " lines and ", lost_bytes_, " bytes of output were passed over]"));
    lost_lines_ = lost_bytes_ = 0;
  }
  const size_t count = std::min(limit, lines_.size());
  const auto end = lines_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<std::string> taken(std::make_move_iterator(lines_.begin()), std::make_move_iterator(end));
  lines_.erase(lines_.begin(), end);
  return taken;
}

}  // namespace lynx::worker
