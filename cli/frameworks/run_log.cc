#include "cli/frameworks/run_log.h"

#include <algorithm>
#include <cmath>
#include <map>
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

// The number of steps at the beginning that are left out of `count`.
size_t Skipped(size_t count) { return count > 4 ? 2 : count > 1 ? 1 : 0; }

// The median of sorted values. If their number is even, it is the mean of the two middle values.
template <typename T>
T MedianOf(const std::vector<T>& sorted) {
  const T low = sorted[(sorted.size() - 1) / 2], high = sorted[sorted.size() / 2];
  return low + (high - low) / 2;
}

// Returns the number after `mark`. Skips blanks before the number, and commas inside it ("1,234"). nullopt: there is no number.
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

// Converts times and sizes of a log. Values that no run can have are errors in the text of the log, and are ignored.
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

// Returns the text without the escape sequences that give it colours on a terminal.
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

  // Reads one line. Returns false if this program cannot read logs of the framework.
  bool Line(const std::string& line) {
    switch (run_.framework) {
      case Framework::kMegatron: Megatron(line); return true;
      case Framework::kDeepspeed: Deepspeed(line); return true;
      case Framework::kTorchtitan: Torchtitan(line); return true;
      case Framework::kNemo: Nemo(line); return true;
      default: return false;
    }
  }

  // A run may increase its batch during the first steps. Only the steps with the last batch are used.
  RunLog Finish() {
    std::vector<LoggedStep>& steps = log_.steps;
    if (steps.empty()) return std::move(log_);
    log_.global_batch = steps.back().batch;
    log_.other_batches = static_cast<size_t>(
        std::erase_if(steps, [batch = log_.global_batch](const LoggedStep& step) { return step.batch != batch; }));
    std::vector<double> tflops;
    for (size_t i = Skipped(steps.size()); i < steps.size(); ++i) {
      if (steps[i].tflops > 0) tflops.push_back(steps[i].tflops);
    }
    std::sort(tflops.begin(), tflops.end());
    if (!tflops.empty()) log_.tflops = MedianOf(tflops);
    return std::move(log_);
  }

 private:
  // What to do with the time of a step if an earlier line already gave the time of the step with this number.
  enum class Again : uint8_t { kAdd, kReplace, kDrop };

  // Adds a step, and returns it. nullptr if the line adds no step.
  LoggedStep* Step(std::optional<double> step, std::optional<Nanos> time, Again again = Again::kAdd) {
    if (!time) return nullptr;
    const int64_t number = step && *step >= 0 && *step < 1e12 ? static_cast<int64_t>(*step) : 0;
    if (number > 0 && again != Again::kAdd) {
      const auto [at, is_new] = places_.emplace(number, log_.steps.size());
      if (!is_new) {
        if (again == Again::kReplace) log_.steps[at->second].time = *time;
        return nullptr;
      }
    }
    log_.steps.push_back({.step = number > 0 ? number : static_cast<int64_t>(log_.steps.size()) + 1, .time = *time});
    return &log_.steps.back();
  }
  void Memory(Bytes bytes) { log_.most_allocated = std::max(log_.most_allocated, bytes); }
  static void Flops(std::optional<double> tflops, LoggedStep* step) {
    if (step != nullptr && tflops && *tflops > 0) step->tflops = *tflops;
  }

  void Megatron(const std::string& line) {
    if (absl::StrContains(line, "memory (MB)")) {
      constexpr double kMegabyte = 1 << 20;
      Memory(SizeOf(NumberAfter(line, "max allocated:"), kMegabyte));
      return;
    }
    const std::optional<double> milliseconds = NumberAfter(line, "elapsed time per iteration (ms):");
    if (!milliseconds) return;
    LoggedStep* step = Step(NumberAfter(line, "iteration "), TimeOf(*milliseconds / 1e3));
    Flops(NumberAfter(line, "throughput per GPU (TFLOP/s/GPU):"), step);
    const std::optional<double> batch = NumberAfter(line, "global batch size:");
    if (step != nullptr && batch && *batch >= 1 && *batch < 1e9) step->batch = static_cast<int64_t>(*batch);
  }

  // The rate counts samples of all replicas per second; the log's average is ignored. With a pipeline, the log has two lines
  // for each step, and the time in "iter time (s)" is the more exact one.
  void Deepspeed(const std::string& line) {
    constexpr double kGibibyte = 1 << 30;
    Memory(SizeOf(NumberAfter(line, "MaxMemAllocated="), kGibibyte));
    if (const std::optional<double> seconds = NumberAfter(line, "iter time (s):")) {
      Step(NumberAfter(line, "steps:"), TimeOf(seconds), Again::kReplace);
      return;
    }
    const std::optional<double> rate = NumberAfter(line, "CurrSamplesPerSec=");
    if (!rate || !(*rate > 0)) return;
    Step(NumberAfter(line, "global_step="), TimeOf(run_.job.train.global_batch / *rate), Again::kDrop);
  }

  // The log gives tokens per second of one device, and the memory that the allocator has reserved.
  void Torchtitan(const std::string& line) {
    if (absl::StrContains(line, "validate step:")) return;
    const std::optional<double> rate = NumberAfter(line, " tps:");
    if (!rate || !(*rate > 0)) return;
    constexpr double kGibibyte = 1 << 30;
    const double tokens = static_cast<double>(run_.job.train.global_batch) * run_.job.model.seq / run_.devices;
    LoggedStep* step = Step(NumberAfter(line, "step:"), TimeOf(tokens / *rate));
    Memory(SizeOf(NumberAfter(line, "memory:"), kGibibyte));
    Flops(NumberAfter(line, "tflops:"), step);
  }

  // Lightning's progress bar writes several states of a step into one line. The last state is used.
  void Nemo(const std::string& line) {
    const char mark[] = "train_step_timing in s";
    const size_t at = line.rfind(mark);
    if (at == std::string::npos) return;
    const absl::string_view rest = absl::string_view(line).substr(at + sizeof(mark) - 1);
    if (rest.empty()) return;
    const size_t steps = line.rfind("global_step", at);
    const absl::string_view before =
        steps == std::string::npos ? absl::string_view() : absl::string_view(line).substr(steps + 12);
    Step(NumberAfter(before, ""), TimeOf(NumberAfter(rest.substr(1), "")), Again::kReplace);
  }

  const ImportedRun& run_;
  RunLog log_;
  std::map<int64_t, size_t> places_;  // step number -> index in log_.steps
};

}  // namespace

absl::StatusOr<RunLog> ReadRunLog(const ImportedRun& run, const std::string& text, const std::string& file) {
  LogReader reader(run);
  for (const absl::string_view line : absl::StrSplit(text, absl::ByAnyChar("\r\n"))) {
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
  const size_t skipped = Skipped(log.steps.size());
  std::vector<Nanos> times;
  for (size_t i = skipped; i < log.steps.size(); ++i) times.push_back(log.steps[i].time);
  StepTimes result;
  result.count = times.size();
  if (times.empty()) return result;
  std::sort(times.begin(), times.end());
  result.median = MedianOf(times);
  result.shortest = times.front();
  result.longest = times.back();
  result.first = log.steps[skipped].step;
  result.last = log.steps.back().step;
  return result;
}

}  // namespace lynx::cli
