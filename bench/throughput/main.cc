// throughput_bench: trains the same GPT with one rank of Lynx and with PyTorch, on the same cores, in turn, in several
// rounds of one run. Prints a Markdown page: milliseconds per step, their ratio, and the FLOP rate of each side as a share of
// the rate of a matrix product that is measured in the same run.
//
//   throughput_bench --rank-binary build/bin/lynx-rank --pytorch bench/throughput/pytorch_train.py
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "absl/strings/str_format.h"
#include "agent/measurement.h"
#include "bench/overlap/rank_network.h"
#include "bench/overlap/report.h"
#include "bench/overlap/training_run.h"
#include "bench/throughput/pytorch_side.h"
#include "common/status.h"
#include "node/wake.h"
#include "planner/plan/plan.h"
#include "planner/problem/flops.h"
#include "planner/search/make_plan.h"
#include "worker/rank/process/pinning.h"

namespace lynx::bench {
namespace {

struct Options {
  std::string rank_binary = "build/bin/lynx-rank";
  std::string python = "/usr/bin/python3";
  std::string pytorch = "bench/throughput/pytorch_train.py";
  std::string data = "/usr/share/common-licenses/GPL-3";
  int32_t layers = 6, hidden = 384, heads = 6, seq = 256, vocab = 256, batch = 4;
  double dropout = 0.1;
  bool unfused = false;
  DataType dtype = DataType::kFloat32;
  std::vector<int32_t> threads = {1, 2};
  int32_t rounds = 3, steps = 5;
};

// The results of both sides for one number of threads.
struct Sides {
  std::vector<double> lynx, pytorch;  // milliseconds per step: the median of each round
  std::vector<StepReport> steps;      // Lynx's step reports of all rounds
  int64_t flops_per_second = 0;       // rate of a matrix product with these threads, in the best round
  double foreign_share = 0;
};

JobSpec SpecOf(const Options& options) {
  JobSpec spec;
  spec.name = "throughput";
  spec.model = {.layers = options.layers,
                .hidden = options.hidden,
                .heads = options.heads,
                .seq = options.seq,
                .vocab = options.vocab,
                .dropout = options.dropout,
                .attention = options.unfused ? AttentionKernel::kUnfused : AttentionKernel::kFused,
                .dtype = options.dtype};
  spec.data = {.kind = DataKind::kText, .path = options.data};
  spec.train.steps = options.steps + 1;  // one for warm-up
  spec.train.micro_batch = spec.train.global_batch = options.batch;
  spec.train.seed = 7;
  spec.resources.min_ranks = spec.resources.max_ranks = 1;
  spec.recompute = RecomputeMode::kNone;
  Normalize(spec);
  return spec;
}

class Benchmark {
 public:
  Benchmark(const Options& options, std::string folder, const RankNetwork& network)
      : options_(options), spec_(SpecOf(options)), network_(network), folder_(std::move(folder)), cores_(AvailableCores()) {}

  absl::StatusOr<Sides> Run(int32_t threads) {
    if (threads > static_cast<int32_t>(cores_.size())) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--threads %d: this process may run on %d cores", threads, cores_.size()));
    }
    const std::vector<int32_t> cores(cores_.begin(), cores_.begin() + threads);
    Sides sides;
    LYNX_ASSIGN_OR_RETURN(const Plan plan, PlanOf());
    for (int32_t round = 0; round < options_.rounds; ++round) {
      LYNX_RETURN_IF_ERROR(MeasureProducts(cores, sides));
      // Lynx and PyTorch take turns in running first in a round.
      for (const bool lynx : {round % 2 == 0, round % 2 != 0}) {
        LYNX_RETURN_IF_ERROR(lynx ? RunLynx(plan, cores, sides) : RunPytorch(cores, sides));
      }
    }
    return sides;
  }

  double StepFlops() const { return lynx::StepFlops(spec_.model, options_.batch, FlopCount::kModel); }

 private:
  absl::StatusOr<Plan> PlanOf() const {
    PlanRequest request{.spec = spec_, .cluster = UniformCluster(1, 1, StatedCpuProfile())};
    LYNX_ASSIGN_OR_RETURN(PlanResult result, MakePlan(request));
    if (Plan* plan = std::get_if<Plan>(&result)) return std::move(*plan);
    return absl::InternalError(std::get<Infeasible>(result).reason);
  }

  // Measures the rate of matrix products and keeps the best of all rounds, because other work on the machine can only lower
  // it.
  absl::Status MeasureProducts(const std::vector<int32_t>& cores, Sides& sides) const {
    WakeEvent never;
    LYNX_ASSIGN_OR_RETURN(const MeasureResult rates,
                          agent::MeasureDevices({.rank_binary = options_.rank_binary, .directory = folder_},
                                                {{.index = 0, .kind = DeviceKind::kCpu, .cores = cores}}, {}, never));
    const bool narrow = options_.dtype == DataType::kBfloat16;
    sides.flops_per_second =
        std::max(sides.flops_per_second, narrow ? rates.bfloat16_flops_per_second : rates.flops_per_second);
    return absl::OkStatus();
  }

  absl::Status RunLynx(const Plan& plan, const std::vector<int32_t>& cores, Sides& sides) const {
    LYNX_ASSIGN_OR_RETURN(const TrainingRun run, Train(spec_, plan, network_,
                                                       {.rank_binary = options_.rank_binary,
                                                        .folder = folder_,
                                                        .cores = cores,
                                                        .cores_per_rank = static_cast<int32_t>(cores.size())}));
    std::vector<double> steps;
    for (const StepReport& step : run.steps.front()) steps.push_back(1e-6 * static_cast<double>(step.duration.value));
    sides.lynx.push_back(MedianOf(steps));
    sides.steps.insert(sides.steps.end(), run.steps.front().begin(), run.steps.front().end());
    sides.foreign_share = std::max(sides.foreign_share, run.foreign_share);
    std::fprintf(stderr, "Lynx, %d threads: %.1f ms a step\n", static_cast<int>(cores.size()), sides.lynx.back());
    return absl::OkStatus();
  }

  absl::Status RunPytorch(const std::vector<int32_t>& cores, Sides& sides) const {
    LYNX_ASSIGN_OR_RETURN(const PytorchRun run, TrainWithPytorch({.python = options_.python,
                                                                  .script = options_.pytorch,
                                                                  .data = options_.data,
                                                                  .model = spec_.model,
                                                                  .micro_batch = options_.batch,
                                                                  .steps = options_.steps,
                                                                  .cores = cores}));
    sides.pytorch.push_back(MedianOf(run.step_ms));
    std::fprintf(stderr, "PyTorch, %d threads: %.1f ms a step\n", static_cast<int>(cores.size()), sides.pytorch.back());
    return absl::OkStatus();
  }

  const Options& options_;
  const JobSpec spec_;
  const RankNetwork& network_;
  const std::string folder_;
  const std::vector<int32_t> cores_;
};

std::string Spread(const std::vector<double>& values, const char* format) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const auto text = [&](double value) { return absl::StrFormat(absl::ParsedFormat<'f'>(format), value); };
  return absl::StrCat(text(MedianOf(values)), " (", text(*least), " to ", text(*most), ")");
}

std::string Row(const Options& options, int32_t threads, const Sides& sides, double flops) {
  std::vector<double> ratios;
  for (size_t i = 0; i < sides.lynx.size(); ++i) ratios.push_back(sides.pytorch[i] / sides.lynx[i]);
  const auto share = [&](const std::vector<double>& ms) {
    return 100 * flops / (1e-3 * MedianOf(ms)) / static_cast<double>(sides.flops_per_second);
  };
  const auto phase = [&](Nanos StepReport::*part) {
    std::vector<double> values;
    for (const StepReport& step : sides.steps) values.push_back(1e-6 * static_cast<double>((step.*part).value));
    return MedianOf(values);
  };
  return absl::StrFormat("| %d | %s | %s | %s | %.0f | %.0f%% | %.0f%% | %.1f | %.1f, %.1f, %.1f, %.1f | %.1f%% |\n", threads,
                         Spread(sides.lynx, "%.1f"), Spread(sides.pytorch, "%.1f"), Spread(ratios, "%.2f"),
                         1e3 * options.batch * options.seq / MedianOf(sides.lynx), share(sides.lynx), share(sides.pytorch),
                         1e-9 * static_cast<double>(sides.flops_per_second), phase(&StepReport::forward),
                         phase(&StepReport::backward), phase(&StepReport::weight), phase(&StepReport::optimizer),
                         100 * sides.foreign_share);
}

absl::Status RunAll(const Options& options) {
  std::string folder = "/tmp/lynx-throughput-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return absl::InternalError("cannot make a folder in /tmp");
  const auto remove = [&](void*) { std::filesystem::remove_all(folder); };
  const std::unique_ptr<void, decltype(remove)> removed(&folder, remove);
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<RankNetwork> network, RankNetwork::Make(1, true));
  Benchmark benchmark(options, folder, *network);
  std::printf(
      "A GPT of %d layers, hidden %d, %d heads, %d tokens a sample, vocabulary %d, dropout %g, %s, batches of %d samples; "
      "Lynx with %s attention. %d rounds of %d steps after one to warm up.\n\n"
      "| threads | Lynx (ms a step) | PyTorch | PyTorch / Lynx | Lynx's tokens/s | Lynx's share of the product's rate | "
      "PyTorch's "
      "| that rate (GFLOP/s) | Lynx: forward, backward, weight gradients, optimizer (ms) | foreign load |\n"
      "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
      options.layers, options.hidden, options.heads, options.seq, options.vocab, options.dropout, EnumName(options.dtype),
      options.batch, options.unfused ? "unfused" : "fused", options.rounds, options.steps);
  for (const int32_t threads : options.threads) {
    LYNX_ASSIGN_OR_RETURN(const Sides sides, benchmark.Run(threads));
    std::fputs(Row(options, threads, sides, benchmark.StepFlops()).c_str(), stdout);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains the same GPT with Lynx and with PyTorch on the same cores, and prints a Markdown page");
  app.add_option("--rank-binary", options.rank_binary, "lynx-rank")->check(CLI::ExistingFile)->capture_default_str();
  app.add_option("--python", options.python, "Python with PyTorch (Debian: python3-torch)")
      ->check(CLI::ExistingFile)
      ->capture_default_str();
  app.add_option("--pytorch", options.pytorch, "PyTorch's side")->check(CLI::ExistingFile)->capture_default_str();
  app.add_option("--data", options.data, "A text file to train on")->check(CLI::ExistingFile)->capture_default_str();
  const auto count = CLI::Range(1, 4096);
  app.add_option("--layers", options.layers)->check(count)->capture_default_str();
  app.add_option("--hidden", options.hidden)->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--heads", options.heads)->check(count)->capture_default_str();
  app.add_option("--seq", options.seq)->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--vocab", options.vocab)->check(CLI::Range(256, 1 << 20))->capture_default_str();
  app.add_option("--batch", options.batch, "Samples a step")->check(count)->capture_default_str();
  app.add_option("--dropout", options.dropout)->check(CLI::Range(0.0, 0.9))->capture_default_str();
  app.add_option("--dtype", options.dtype, "bf16: Lynx trains in bfloat16, PyTorch under autocast to it")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, DataType>{{"fp32", DataType::kFloat32}, {"bf16", DataType::kBfloat16}}));
  app.add_flag("--unfused", options.unfused, "Lynx's attention keeps its scores");
  app.add_option("--threads", options.threads)->check(count)->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(count)->capture_default_str();
  app.add_option("--steps", options.steps, "Of each run, after one to warm up")->check(count)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = RunAll(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "throughput_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace lynx::bench

int main(int argc, char** argv) { return lynx::bench::Main(argc, argv); }
