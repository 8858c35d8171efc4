#include "worker/rank/records/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "common/status.h"
#include "worker/rank/records/event_file.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = "step,loss,learning_rate,gradient_norm,validation_loss\n";

// Returns the shortest text that gives the same number when it is read.
std::string NumberText(double value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// Returns the file's header, and the lines that earlier generations wrote about the first `steps` steps.
std::string LinesUpTo(const fs::path& path, int64_t steps) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::string kept(kHeader);
  if (!text.starts_with(kHeader)) return kept;
  for (size_t at = kHeader.size(), end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    int64_t step = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, step);
    if (error != std::errc() || *stop != ',' || step > steps) continue;
    kept.append(text, at, end + 1 - at);
  }
  return kept;
}

absl::Status WriteAll(int fd, std::string_view text, const std::string& what) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::InternalError(absl::StrCat("cannot write ", what, ": ", std::strerror(errno)));
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> OpenNew(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return absl::InternalError(absl::StrCat("cannot create ", path, ": ", std::strerror(errno)));
  return fd;
}

}  // namespace

std::string RunLogPath(const std::string& checkpoint_directory, const JobId& job) {
  return absl::StrCat(checkpoint_directory, "/metrics-", job.value);
}

RunLog::RunLog(const RankConfig& config, int64_t first, const Clock& clock)
    : clock_(clock), folder_(RunLogPath(config.checkpoint_directory, config.job)) {
  if (const absl::Status opened = Open(config, first); !opened.ok()) GiveUp(opened);
}

RunLog::~RunLog() {
  if (csv_fd_ >= 0) close(csv_fd_);
  if (events_fd_ >= 0) close(events_fd_);
}

absl::Status RunLog::Open(const RankConfig& config, int64_t first) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return absl::InternalError(absl::StrCat("cannot create ", folder_, ": ", error.message()));
  // A new file replaces the old one. So an older generation that still runs somewhere continues to write to the old file.
  const std::string csv = folder_ + "/metrics.csv", fresh = csv + ".new";
  LYNX_ASSIGN_OR_RETURN(csv_fd_, OpenNew(fresh));
  const std::string kept = LinesUpTo(csv, first);
  LYNX_RETURN_IF_ERROR(WriteAll(csv_fd_, kept, fresh));
  csv_bytes_ = static_cast<int64_t>(kept.size());
  fs::rename(fresh, csv, error);
  if (error) return absl::InternalError(absl::StrCat("cannot rename ", fresh, ": ", error.message()));

  const Nanos wall = clock_.Wall();
  const std::string events = absl::StrCat(folder_, "/events.out.tfevents.", wall.value / 1'000'000'000, ".", config.job.value,
                                          ".g", config.generation.value);
  LYNX_ASSIGN_OR_RETURN(events_fd_, OpenNew(events));
  return WriteAll(events_fd_, EventRecord(VersionEvent(wall)) + EventRecord(StartEvent(wall, first + 1)), events);
}

void RunLog::Add(const StepReport& step, const std::optional<EvaluationReport>& evaluation) {
  if (csv_fd_ < 0) return;
  const int64_t done = step.step + 1;
  const std::string line =
      absl::StrCat(done, ",", NumberText(step.loss), ",", NumberText(step.lr), ",", NumberText(step.gradient_norm), ",",
                   evaluation ? NumberText(evaluation->loss) : "", "\n");
  std::vector<Scalar> scalars = {{"loss", step.loss}, {"learning_rate", step.lr}, {"gradient_norm", step.gradient_norm}};
  if (evaluation) scalars.push_back({"validation_loss", evaluation->loss});
  absl::Status written = WriteAll(csv_fd_, line, folder_ + "/metrics.csv");
  if (written.ok()) {
    csv_bytes_ += static_cast<int64_t>(line.size());
    written = WriteAll(events_fd_, EventRecord(ScalarsEvent(clock_.Wall(), done, scalars)), folder_ + "/events.out");
  }
  if (!written.ok()) GiveUp(written);
}

void RunLog::GiveUp(const absl::Status& reason) {
  std::fprintf(stderr, "the run's metrics are no longer written: %s\n", std::string(reason.message()).c_str());
  // Removes an incomplete last line, because a program could read it as a whole line with wrong numbers.
  if (csv_fd_ >= 0 && ftruncate(csv_fd_, csv_bytes_) != 0) std::fprintf(stderr, "metrics.csv may end in half a line\n");
  if (csv_fd_ >= 0) close(std::exchange(csv_fd_, -1));
  if (events_fd_ >= 0) close(std::exchange(events_fd_, -1));
}

}  // namespace lynx::worker
