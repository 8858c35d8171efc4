// gpu_step_bench: what a training step costs on one device. It trains models with one rank under several recomputation
// policies, and with PyTorch where it is installed, and prints a Markdown page: times of the steps and of their ops, beside the
// device's rates and the planner's predictions, and memory beside the plan. It needs no server: only lynx-rank, which it
// starts.
//
//   gpu_step_bench --rank-binary build/bin/lynx-rank --device cuda --json gpu_step.json > gpu_step.md
//
// Exit codes: 0: every case has figures, or did not fit into the time or the memory, or PyTorch is not installed. 1: a case
// failed, or an argument is wrong. 77: this machine has no such device.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/gpu_step/benchmark.h"
#include "common/rng.h"
#include "common/status.h"
#include "node/file.h"
#include "node/process.h"

namespace lynx::bench {
namespace {

constexpr int kExitNoDevice = 77;
constexpr size_t kDataBytes = 1 << 20;
constexpr char kPytorchSide[] = "bench/throughput/pytorch_train.py";

struct Options {
  StepBenchOptions bench;
  std::string device = "cuda";
  std::vector<std::string> models;
  std::string json;
  double peak_teraflops = 0;
  int64_t memory_mib = 0;
  bool no_pytorch = false;
  // Values that replace those of all models, to try the program on a machine for which the models are too large; 0: no
  // replacement.
  int32_t layers = 0, hidden = 0, heads = 0, seq = 0, vocab = 0, micro_batch = 0, microbatches = 0;
};

void Replace(int32_t with, int32_t& value) {
  if (with > 0) value = with;
}

absl::StatusOr<BenchModel> ModelOf(const Options& options, const std::string& name) {
  LYNX_ASSIGN_OR_RETURN(BenchModel model, FindBenchModel(name));
  const BenchModel own = model;
  if (options.hidden > 0) model.model.ffn = 0;  // the family's default
  if (options.heads > 0) model.model.kv_heads = 0;
  Replace(options.layers, model.model.layers);
  Replace(options.hidden, model.model.hidden);
  Replace(options.heads, model.model.heads);
  Replace(options.seq, model.model.seq);
  Replace(options.vocab, model.model.vocab);
  Replace(options.micro_batch, model.micro_batch);
  Replace(options.microbatches, model.microbatches);
  if (model.model != own.model) model.title = absl::StrCat(name, " with other values");
  if (model.model.hidden % model.model.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": --heads ", model.model.heads, " does not divide --hidden ", model.model.hidden));
  }
  if (kDataBytes < static_cast<size_t>(2 * model.model.seq)) {
    return absl::InvalidArgumentError(absl::StrCat("--seq ", model.model.seq, ": at most ", kDataBytes / 2));
  }
  return model;
}

// A text of random bytes: with it, the program needs no file with training data.
std::string RandomText() {
  std::string text;
  for (uint32_t i = 0; text.size() < kDataBytes; ++i) {
    for (const uint32_t word : Philox({i, 0, 0, 0}, {7, 7})) text.push_back(static_cast<char>(word));
  }
  return text;
}

// Returns the path of the PyTorch script. Looks in the current folder, and in the source folder from which this program was
// built.
std::string FindPytorchSide() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& folder : {std::filesystem::path("."), self, self / "..", self / "../.."}) {
    if (std::filesystem::exists(folder / kPytorchSide, error)) return (folder / kPytorchSide).lexically_normal().string();
  }
  std::fprintf(stderr, "gpu_step_bench: %s is not here: PyTorch is left out\n", kPytorchSide);
  return "";
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d", std::gmtime(&now));
  return text;
}

// The signals that people and the program `timeout` send to end a program.
sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

std::atomic<bool> ending{false};

// After a signal, this function never returns. So the next case does not begin after the ranks of the present case were killed.
void WaitIfEnding() {
  while (ending) ::pause();
}

// When one of these signals arrives, ends this program and all programs that it has started. All threads must block the
// signals. Without this, a rank would continue, because it has its own session. The folder is removed again and again until it
// stays empty, because a program may just be starting.
void EndOnSignals(const std::string& folder) {
  std::thread([folder] {
    constexpr int kQuietTurns = 10;
    const sigset_t signals = EndingSignals();
    int signal = 0;
    ::sigwait(&signals, &signal);
    ending = true;
    std::error_code ignored;
    const auto patience_ends = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (int quiet = 0; quiet < kQuietTurns && std::chrono::steady_clock::now() < patience_ends;) {
      const std::vector<pid_t> left = FindProcessesBelow(folder);
      for (const pid_t pid : left) ::kill(pid, SIGKILL);
      const bool gone = left.empty() && !std::filesystem::exists(folder, ignored);
      std::filesystem::remove_all(folder, ignored);
      quiet = gone ? quiet + 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::_Exit(128 + signal);
  }).detach();
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "gpu_step_bench: %s\n", std::string(status.message()).c_str());
  return code;
}

int RunAll(Options& options, const std::string& command) {
  const auto began = std::chrono::steady_clock::now();
  StepBenchResult result{.command = command,
                         .date = Today(),
                         .rounds = options.bench.rounds,
                         .steps = options.bench.steps,
                         .warmup = options.bench.warmup};
  for (const std::string& name : options.models) {
    const absl::StatusOr<BenchModel> model = ModelOf(options, name);
    if (!model.ok()) return Fail(model.status(), 1);
    result.models.push_back({.model = *model});
  }
  const absl::StatusOr<BenchDevice> device = FindDevice(options.device, kMiB * options.memory_mib, options.bench.rank_binary);
  if (!device.ok()) return Fail(device.status(), absl::IsInvalidArgument(device.status()) ? 1 : kExitNoDevice);
  result.device = device->device;
  result.driver = device->driver;
  result.peak = options.peak_teraflops > 0 ? StatedPeak{options.peak_teraflops, "--peak-tflops"} : PeakOf(device->device.model);

  std::string folder = "/tmp/lynx-gpu-step-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return Fail(absl::InternalError("cannot make a folder in /tmp"), 1);
  const auto remove = [&](void*) { std::filesystem::remove_all(folder); };
  const std::unique_ptr<void, decltype(remove)> removed(&folder, remove);
  options.bench.folder = folder;
  options.bench.may_start = WaitIfEnding;
  EndOnSignals(folder);
  // All programs get the data under a name in the folder. EndOnSignals finds the programs by this name.
  const std::string given = std::exchange(options.bench.data, folder + "/data");
  if (given.empty()) {
    std::ofstream(options.bench.data, std::ios::binary) << RandomText();
  } else {
    std::error_code error;
    std::filesystem::create_symlink(std::filesystem::absolute(given), options.bench.data, error);
    if (error)
      return Fail(absl::InternalError(absl::StrCat("cannot link ", given, " into ", folder, ": ", error.message())), 1);
  }
  if (options.no_pytorch) {
    options.bench.pytorch = "";
  } else if (options.bench.pytorch.empty()) {
    options.bench.pytorch = FindPytorchSide();
  }
  const absl::StatusOr<std::unique_ptr<RankNetwork>> network = RankNetwork::Make(1, true);
  if (!network.ok()) return Fail(network.status(), 1);
  absl::Status written;
  StepBenchmark(options.bench, *device, **network, began).Run(result, [&] {
    // Writes the file after each case, so that the results are there even if the program is killed later.
    if (!options.json.empty()) written = WriteFileDurably(options.json, Json(result));
  });
  WaitIfEnding();
  std::fputs(Page(result).c_str(), stdout);
  if (!written.ok()) return Fail(written, 1);
  for (const ModelResult& model : result.models) {
    for (const CaseResult& row : model.cases) {
      if (!row.error.empty() && !row.left_out) return 1;
    }
  }
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  StepBenchOptions& bench = options.bench;
  bench.rank_binary = "build/bin/lynx-rank";
  bench.python = "python3";
  for (const BenchModel& model : BenchModels()) options.models.push_back(model.name);
  CLI::App app("Trains models on one device, and prints a Markdown page: what a step costs, and why");
  app.add_option("--rank-binary", bench.rank_binary, "lynx-rank")->check(CLI::ExistingFile)->capture_default_str();
  app.add_option("--device", options.device, "cpu (one core), cuda (the first GPU that can be used) or cuda:N")
      ->capture_default_str();
  app.add_option("--models", options.models)->delimiter(',')->capture_default_str();
  app.add_option("--json", options.json, "A file for all numbers, written anew after each case");
  app.add_option("--budget", bench.budget_seconds, "Seconds after which no case is begun or goes on; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--case-seconds", bench.case_seconds, "The longest time of one case in one round")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--measure-seconds", bench.measure_seconds, "After which no further op is measured")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  const auto count = CLI::Range(1, 4096);
  app.add_option("--rounds", bench.rounds)->check(count)->capture_default_str();
  app.add_option("--steps", bench.steps, "Of each case in each round, after those to warm up")
      ->check(count)
      ->capture_default_str();
  app.add_option("--warmup", bench.warmup, "Steps that do not count")->check(count)->capture_default_str();
  app.add_option("--limit-percent", bench.limit_percents, "Activation memory of Lynx (HEU), of what full recomputation needs")
      ->delimiter(',')
      ->check(CLI::Range(100, 10000))
      ->capture_default_str();
  app.add_option("--peak-tflops", options.peak_teraflops, "The device's stated rate; otherwise from a table of known devices")
      ->check(CLI::PositiveNumber);
  app.add_option("--memory-mib", options.memory_mib, "Of the device, for a rank; 0: what the agent would offer")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--data", bench.data, "A text file to train on; otherwise random bytes")->check(CLI::ExistingFile);
  app.add_option("--python", bench.python, "Python with PyTorch")->capture_default_str();
  app.add_option("--pytorch", bench.pytorch, absl::StrCat("PyTorch's side; otherwise ", kPytorchSide))
      ->check(CLI::ExistingFile);
  app.add_flag("--no-pytorch", options.no_pytorch, "Do not train with PyTorch");
  const auto replaced = [&](const char* name, int32_t& value, int32_t most, int32_t least = 1) {
    app.add_option(name, value, "Instead of each model's own value")->check(CLI::Range(least, most));
  };
  replaced("--layers", options.layers, 1000);
  replaced("--hidden", options.hidden, 65536);
  replaced("--heads", options.heads, 1024);
  replaced("--seq", options.seq, 65536);
  replaced("--vocab", options.vocab, 1 << 20, 256);  // the tokens are bytes, so there are at least 256
  replaced("--micro-batch", options.micro_batch, 4096);
  replaced("--microbatches", options.microbatches, 4096);
  CLI11_PARSE(app, argc, argv);
  const sigset_t signals = EndingSignals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return RunAll(options, absl::StrJoin(argv, argv + argc, " "));
}

}  // namespace
}  // namespace lynx::bench

int main(int argc, char** argv) { return lynx::bench::Main(argc, argv); }
