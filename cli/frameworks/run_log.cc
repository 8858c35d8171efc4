#include "cli/frameworks/run_log.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lynx::cli {
namespace {

// Steps at the beginning that are left out.
constexpr size_t kWarmupSteps = 2;

// The number after `mark`, blanks between them left out. Commas inside numbers ("1,234") are left out. nullopt: none is there.
std::optional<double> NumberAfter(absl::string_view line, absl::string_view mark) {
  const size_t at = line.find(mark);
  if (at == absl::string_view::npos) return std::nullopt;
  std::string digits;
  for (size_t i = at + mark.size(); i < line.size(); ++i) {
    const char c = line[i];
    if (digits.empty() && (c == ' ' || c == '\t')) continue;
    if (c == ',' && !digits.empty() && i + 1 < line.size() && absl::ascii_isdigit(static_cast<unsigned char>(line[i + 1])))
      continue;
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c)) && c != '.' && c != 'e' && c != 'E' && c != '+' && c != '-') break;
    digits += c;
  }
  while (!digits.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(digits.back()))) digits.pop_back();
  double value = 0;
  if (!absl::SimpleAtod(digits, &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Times and sizes of a log that are plausible; others are taken for noise in the text.
std::optional<Nanos> TimeOf(std::optional<double> seconds) {
  constexpr double kMaxSeconds = 1e6;
  if (!seconds || !(*seconds > 0) || *seconds > kMaxSeconds) return std::nullopt;
  return Nanos(std::llround(*seconds * 1e9));
}
Bytes SizeOf(std::optional<double> count, double unit) {
  constexpr double kMaxBytes = 1e15;
  if (!count || !(*count > 0) || *count * unit > kMaxBytes) return Bytes(0);
  return Bytes(std::llround(*count * unit));
}

// The text without the sequences that colour it on a terminal.
std::string WithoutColours(absl::string_view line) {
  std::string plain;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      plain += line[i];
      continue;
    }
    while (i < line.size() && !absl::ascii_isalpha(static_cast<unsigned char>(line[i]))) ++i;
  }
  return plain;
}

class LogReader {
 public:
  explicit LogReader(const ImportedRun& run) : run_(run) {}

  // Returns false if the framework's logs are not read.
  bool Line(const std::string& line) {
    switch (run_.framework) {
      case Framework::kMegatron: Megatron(line); return true;
      case Framework::kDeepspeed: Deepspeed(line); return true;
      case Framework::kTorchtitan: Torchtitan(line); return true;
      case Framework::kNemo: Nemo(line); return true;
      default: return false;
    }
  }

  RunLog Finish() {
    if (!tflops_.empty()) {
      std::nth_element(tflops_.begin(), tflops_.begin() + static_cast<ptrdiff_t>(tflops_.size() / 2), tflops_.end());
      log_.tflops = tflops_[tflops_.size() / 2];
    }
    return std::move(log_);
  }

 private:
  void Step(std::optional<double> step, std::optional<Nanos> time) {
    if (!time) return;
    const int64_t number = step && *step >= 0 && *step < 1e12 ? static_cast<int64_t>(*step) : 0;
    log_.steps.push_back({number > 0 ? number : static_cast<int64_t>(log_.steps.size()) + 1, *time});
  }
  void Memory(Bytes bytes) { log_.most_allocated = std::max(log_.most_allocated, bytes); }
  void Flops(std::optional<double> tflops) {
    if (tflops && *tflops > 0) tflops_.push_back(*tflops);
  }

  void Megatron(const std::string& line) {
    if (absl::StrContains(line, "memory (MB)")) {
      constexpr double kMegabyte = 1 << 20;
      Memory(SizeOf(NumberAfter(line, "max allocated:"), kMegabyte));
      return;
    }
    const std::optional<double> milliseconds = NumberAfter(line, "elapsed time per iteration (ms):");
    if (!milliseconds) return;
    Step(NumberAfter(line, "iteration "), TimeOf(*milliseconds / 1e3));
    Flops(NumberAfter(line, "throughput per GPU (TFLOP/s/GPU):"));
    const std::optional<double> batch = NumberAfter(line, "global batch size:");
    if (batch && *batch >= 1 && *batch < 1e9) log_.global_batch = static_cast<int64_t>(*batch);
  }

  // Samples of all replicas in a second; the running average is not used.
  void Deepspeed(const std::string& line) {
    constexpr double kGibibyte = 1 << 30;
    Memory(SizeOf(NumberAfter(line, "MaxMemAllocated="), kGibibyte));
    if (const std::optional<double> seconds = NumberAfter(line, "iter time (s):")) {
      Step(NumberAfter(line, "steps:"), TimeOf(seconds));
      return;
    }
    const std::optional<double> rate = NumberAfter(line, "CurrSamplesPerSec=");
    if (rate && *rate > 0) Step(NumberAfter(line, "global_step="), TimeOf(run_.job.train.global_batch / *rate));
  }

  // Tokens of one device in a second. The memory is what the allocator has reserved.
  void Torchtitan(const std::string& line) {
    if (absl::StrContains(line, "validate step:")) return;
    const std::optional<double> rate = NumberAfter(line, " tps:");
    if (!rate || !(*rate > 0)) return;
    constexpr double kGibibyte = 1 << 30;
    const double tokens = static_cast<double>(run_.job.train.global_batch) * run_.job.model.seq / run_.devices;
    Step(NumberAfter(line, "step:"), TimeOf(tokens / *rate));
    Memory(SizeOf(NumberAfter(line, "memory:"), kGibibyte));
    Flops(NumberAfter(line, "tflops:"));
  }

  // Lightning's progress bar writes many states into one line; the last of them counts.
  void Nemo(const std::string& line) {
    const char mark[] = "train_step_timing in s";
    const size_t at = line.rfind(mark);
    if (at == std::string::npos) return;
    const absl::string_view rest = absl::string_view(line).substr(at + sizeof(mark) - 1);
    if (rest.empty()) return;
    const size_t steps = line.rfind("global_step", at);
    const absl::string_view before =
        steps == std::string::npos ? absl::string_view() : absl::string_view(line).substr(steps + 12);
    Step(NumberAfter(before, ""), TimeOf(NumberAfter(rest.substr(1), "")));
  }

  const ImportedRun& run_;
  RunLog log_;
  std::vector<double> tflops_;
};

}  // namespace

absl::StatusOr<RunLog> ReadRunLog(const ImportedRun& run, const std::string& text, const std::string& file) {
  LogReader reader(run);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!reader.Line(WithoutColours(line))) {
      return absl::InvalidArgumentError(absl::StrCat("logs of ", EnumName(run.framework), " are not read"));
    }
  }
  RunLog log = reader.Finish();
  if (log.steps.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": found no line of ", EnumName(run.framework),
                                                   " with the time of a step; give the output of the rank that logs"));
  }
  return log;
}

StepTimes TimesOf(const RunLog& log) {
  const size_t skipped = log.steps.size() > 2 * kWarmupSteps ? kWarmupSteps : 0;
  std::vector<Nanos> times;
  for (size_t i = skipped; i < log.steps.size(); ++i) times.push_back(log.steps[i].time);
  StepTimes result;
  result.count = times.size();
  if (times.empty()) return result;
  std::sort(times.begin(), times.end());
  result.median = times[times.size() / 2];
  result.shortest = times.front();
  result.longest = times.back();
  result.first = log.steps[skipped].step;
  result.last = log.steps.back().step;
  return result;
}

}  // namespace lynx::cli
