// overlap_bench: runs the same training job under each recomputation policy in turn, with real rank processes, each on
// its own cores, over a link that is as slow as the benchmark wants. It does several rounds in one run and prints a
// Markdown page.
//
//   overlap_bench --rank-binary build/bin/lynx-rank            needs root for network namespaces; without root, paces sockets
//
// Times are medians; comparisons are ratios within one round. Predictions come only from the agent's measurements of
// devices and link, which are made at the beginning of the same run.
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>

#include "absl/strings/str_format.h"
#include "agent/agent_profile.h"
#include "agent/measurement.h"
#include "bench/overlap/rank_network.h"
#include "bench/overlap/report.h"
#include "bench/overlap/training_run.h"
#include "common/status.h"
#include "planner/cost/cluster_topology.h"
#include "planner/cost/cost_model.h"
#include "planner/plan/plan.h"
#include "planner/search/make_plan.h"
#include "worker/rank/measure/measure_link.h"

namespace lynx::bench {
namespace {

struct Options {
  std::string rank_binary = "build/bin/lynx-rank";
  std::string data = "/usr/share/common-licenses/GPL-3";
  ModelFamily family = ModelFamily::kGpt;
  DataType dtype = DataType::kFloat32;
  int32_t layers = 8, hidden = 384, heads = 6, seq = 256;
  int32_t micro_batch = 2, microbatches = 4;
  int32_t tp = 2, pp = 1;
  int32_t experts = 0, top_k = 2;  // with experts, --tp replicas share them instead of the layers (tp 1, dp and ep = --tp)
  double capacity = 2;
  bool sequence_parallel = false;
  int32_t rounds = 3, steps = 5;
  int32_t limit_percent = 110;  // limit for activations, in percent of what full recomputation needs
  int64_t latency_us = 0;
  int64_t host_mib = 0;  // host memory that each rank may offload to; 0: no offloading
  // How slow the link is: the time of a layer's forward collectives divided by the time of its ops. If there are no such
  // collectives: the time of a microbatch's transfer to the next stage divided by the time of a stage's forward pass.
  std::vector<double> slowness = {1, 0.2};
  bool paced = false;
};

struct Policy {
  const char* name;
  RecomputeMode mode;
  bool limited;
  bool offloads = false;
  WeaveMode weave = WeaveMode::kOff;
};
constexpr Policy kPolicies[] = {
    {"store all, no limit", RecomputeMode::kNone, false},
    {"full", RecomputeMode::kFull, false},
    {"full, keep collectives", RecomputeMode::kFullKeepCollectives, false},
    {"selective", RecomputeMode::kSelective, false},
    {"no overlap", RecomputeMode::kNoOverlap, true},
    {"Lynx (HEU)", RecomputeMode::kHeu, true},
    {"Lynx (HEU), offloading", RecomputeMode::kHeu, true, true},
    {"full, keep collectives, woven pairs", RecomputeMode::kFullKeepCollectives, true, false, WeaveMode::kPairs},
    {"Lynx (HEU), woven pairs", RecomputeMode::kHeu, true, false, WeaveMode::kPairs},
    {"Lynx (HEU), woven neighbours", RecomputeMode::kHeu, true, false, WeaveMode::kNeighbours},
};

double DropoutOf(const Options& options) { return options.family == ModelFamily::kGpt ? 0.1 : 0; }

JobSpec SpecOf(const Options& options) {
  JobSpec spec;
  spec.name = "overlap";
  spec.model = {.layers = options.layers,
                .hidden = options.hidden,
                .heads = options.heads,
                .seq = options.seq,
                .vocab = 256,
                .dropout = DropoutOf(options),
                .family = options.family,
                .dtype = options.dtype};
  spec.data = {.kind = DataKind::kText, .path = options.data};
  spec.train.steps = options.steps + 1;  // one for warm-up
  spec.train.micro_batch = options.micro_batch;
  spec.train.global_batch = options.micro_batch * options.microbatches;
  spec.train.seed = 7;
  spec.resources.min_ranks = spec.resources.max_ranks = options.tp * options.pp;
  spec.parallel = {.tp = options.tp,
                   .pp = options.pp,
                   .dp = 1,
                   .cp = 1,
                   .virtual_stages = 1,
                   .sequence_parallel = options.sequence_parallel ? Choice::kOn : Choice::kOff,
                   .schedule = ScheduleKind::kOneForwardOneBackward,
                   .zero = ZeroStage::kNone};
  if (options.experts > 0) {
    spec.model.moe = {.experts = options.experts, .top_k = options.top_k, .capacity = options.capacity};
    spec.parallel.dp = spec.parallel.ep = options.tp;
    spec.parallel.tp = 1;
    spec.train.global_batch *= options.tp;
  }
  Normalize(spec);
  return spec;
}

// What all links of the benchmark have in common: the job, the measured devices and the network. Run() measures one link.
class Benchmark {
 public:
  Benchmark(const Options& options, RankNetwork& network, const std::string& folder)
      : options_(options), spec_(SpecOf(options)), network_(network) {
    settings_ = {.rank_binary = options.rank_binary, .folder = folder, .cores = AvailableCores()};
    for (int32_t rank = 0; rank < options.tp * options.pp; ++rank) {
      devices_.push_back({.index = rank, .kind = DeviceKind::kCpu, .cores = {CoreOf(rank)}});
    }
  }

  absl::Status MeasureDevices() {
    WakeEvent never;
    std::vector<LayerShape> shapes;
    for (const int32_t group : {1, 2}) {
      if (options_.micro_batch % group != 0) continue;
      shapes.push_back(ShapeOf(spec_.model, PinnedLayout(spec_.parallel), options_.micro_batch / group));
    }
    const ForeignLoad foreign;
    LYNX_ASSIGN_OR_RETURN(
        measured_, lynx::agent::MeasureDevices({.rank_binary = options_.rank_binary, .directory = settings_.folder}, devices_,
                                               shapes, never));
    foreign_share_ = foreign.Share();
    return measured_.measured.size() < shapes.size() ? absl::InternalError("the layer's ops were not measured in time")
                                                     : absl::OkStatus();
  }

  // The link's rate in bytes per second for which the link is as slow as `slowness` says (Options::slowness).
  int64_t RateFor(double slowness) const {
    HardwareProfile profile = ProfileOf({});
    profile.intra_node = {Nanos(0), 1'000'000'000};
    const ParallelLayout layout = PinnedLayout(spec_.parallel);
    const CostModel costs(profile, spec_.model, layout, spec_.train.micro_batch, layout.ranks());
    if (layout.tp * layout.ep == 1) {
      const Nanos stage = costs.LayerTime(LayerType::kTransformer, Pass::kForward) * (spec_.model.layers / layout.pp);
      const Bytes sent = TensorBytes(Tensor::kX, ShapeOf(spec_.model, layout, spec_.train.micro_batch));
      return static_cast<int64_t>(1e9 * static_cast<double>(sent.value) / (slowness * static_cast<double>(stage.value)));
    }
    const Nanos collectives = costs.TransfersOfLayer(LayerType::kTransformer, Pass::kForward);
    const Nanos ops = costs.ComputeOfLayer(LayerType::kTransformer, Pass::kForward);
    return static_cast<int64_t>(1e9 * static_cast<double>(collectives.value) / (slowness * static_cast<double>(ops.value)));
  }

  absl::StatusOr<LinkReport> Run(const std::string& name, double slowness) {
    const int64_t bytes_per_second = RateFor(slowness);
    LYNX_RETURN_IF_ERROR(network_.Shape({bytes_per_second, Nanos(options_.latency_us * 1000)}));
    LinkReport report{.name = name, .slow = slowness >= 1, .bytes_per_second = bytes_per_second};
    const ForeignLoad foreign;
    LYNX_ASSIGN_OR_RETURN(const LinkResult link, MeasureLink());
    // Other load during these measurements makes the link's figures and the predictions wrong.
    report.foreign_share = std::max(foreign_share_, foreign.Share());
    report.measured_bytes_per_second = link.link.bytes_per_second;
    report.measured_latency = link.link.latency;
    report.overlap_slowdown_permille = link.overlap_slowdown_permille;
    report.communication_compute_permille = link.communication_compute_permille;
    const HardwareProfile profile = ProfileOf(link);
    LYNX_ASSIGN_OR_RETURN(std::vector<Plan> plans, Plans(profile, report));
    for (int32_t round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < plans.size(); ++i) {
        // Each round begins with another policy, so that no policy always follows the same one.
        const size_t at = (i + static_cast<size_t>(round)) % plans.size();
        LYNX_RETURN_IF_ERROR(RunOnce(plans[at], report.policies[at], report));
      }
    }
    return report;
  }

 private:
  // The machine on which the ranks run, for the planner. It says which ranks share a core.
  ClusterTopology Cluster(const HardwareProfile& profile) const {
    const int32_t ranks = options_.tp * options_.pp;
    ClusterTopology cluster = UniformCluster(1, ranks, profile);
    std::map<int32_t, std::vector<int32_t>> on_core;
    for (int32_t rank = 0; rank < ranks; ++rank) on_core[CoreOf(rank)].push_back(rank);
    for (auto& [core, sharing] : on_core) {
      if (sharing.size() > 1) cluster.shared_cores.push_back({.devices = std::move(sharing), .at_once_permille = 1000});
    }
    return cluster;
  }

  int32_t CoreOf(int32_t rank) const { return settings_.cores[static_cast<size_t>(rank) % settings_.cores.size()]; }

  HardwareProfile ProfileOf(const LinkResult& link) const {
    agent::AgentProfile agent({Nanos(0), 1'000'000'000}, 0);
    agent.RecordLink(link);
    agent.RecordDevices({.kind = agent::MeasureTaskKind::kRates}, measured_);
    return *agent.Profile();
  }

  absl::StatusOr<LinkResult> MeasureLink() const {
    LinkRequest request{.cores = {{CoreOf(0)}, {CoreOf(1)}}};
    request.pacing_bytes_per_second = network_.pacing_bytes_per_second();
    return lynx::worker::MeasureLink(
        request, {{network_.HostOf(0), network_.HostOf(1)}, [&](int32_t rank) { return network_.Enter(rank); }});
  }

  // The job under this policy. If microbatches run side by side, the whole group has as many samples as one microbatch that
  // runs alone.
  JobSpec SpecFor(const Policy& policy) const {
    JobSpec spec = spec_;
    spec.recompute = policy.mode;
    spec.parallel.weave = policy.weave;
    spec.train.micro_batch = options_.micro_batch / GroupOf(policy.weave);
    return spec;
  }

  absl::StatusOr<PlanResult> PlanOf(const HardwareProfile& profile, const Policy& policy, Bytes limit) const {
    PlanRequest request{.spec = SpecFor(policy), .cluster = Cluster(profile)};
    const Bytes host = policy.offloads ? kMiB * options_.host_mib : Bytes(0);
    request.cluster.groups[0].host_memory = host * (options_.tp * options_.pp);
    if (policy.limited) request.spec.resources.activation_memory_per_rank = limit;
    return MakePlan(request);
  }

  static absl::Status NoPlan(const Policy& policy, const PlanResult& result) {
    return absl::InternalError(absl::StrCat(policy.name, ": ", std::get<Infeasible>(result).reason));
  }

  static Bytes PeakOf(const Plan& plan) {
    Bytes peak;
    for (const StagePlan& stage : plan.stages) peak = std::max(peak, stage.arena);
    return peak;
  }

  absl::StatusOr<std::vector<Plan>> Plans(const HardwareProfile& profile, LinkReport& report) const {
    const Policy unlimited = {"full", RecomputeMode::kFull, false};
    LYNX_ASSIGN_OR_RETURN(const PlanResult full, PlanOf(profile, unlimited, Bytes(0)));
    if (!std::holds_alternative<Plan>(full)) return NoPlan(unlimited, full);
    report.limit = PeakOf(std::get<Plan>(full)) / 100 * options_.limit_percent;
    std::vector<Plan> plans;
    for (const Policy& policy : kPolicies) {
      if (policy.offloads && options_.host_mib == 0) continue;
      if (options_.micro_batch % GroupOf(policy.weave) != 0) continue;
      LYNX_ASSIGN_OR_RETURN(PlanResult result, PlanOf(profile, policy, report.limit));
      if (const auto* infeasible = std::get_if<Infeasible>(&result)) {
        // Passes side by side hold more activations at a time, so they may need more than the limit; other policies may not.
        if (policy.weave == WeaveMode::kOff) return NoPlan(policy, result);
        report.left_out.push_back(absl::StrCat(policy.name, ": ", infeasible->reason));
        continue;
      }
      Plan plan = std::get<Plan>(std::move(result));
      report.policies.push_back({.name = policy.name,
                                 .within_limit = PeakOf(plan) <= report.limit,
                                 .overlaps = policy.mode == RecomputeMode::kHeu,
                                 .woven = policy.weave != WeaveMode::kOff,
                                 .micro_batch = plan.micro_batch,
                                 .predicted = plan.step,
                                 .parts = PartsOf(plan.stages.front()),
                                 .planned_peak = PeakOf(plan)});
      plans.push_back(std::move(plan));
    }
    return plans;
  }

  absl::Status RunOnce(const Plan& plan, PolicyResult& policy, LinkReport& report) const {
    JobSpec spec = spec_;
    spec.train.micro_batch = plan.micro_batch;
    LYNX_ASSIGN_OR_RETURN(const TrainingRun run, Train(spec, plan, network_, settings_));
    std::vector<double> steps;
    for (size_t i = 0; i < run.steps.front().size(); ++i) {
      double slowest = 0;
      for (const std::vector<StepReport>& rank : run.steps) {
        slowest = std::max(slowest, static_cast<double>(rank[i].duration.value) / 1e6);
        policy.measured_peak = std::max(policy.measured_peak, rank[i].arena_peak);
      }
      steps.push_back(slowest);
    }
    policy.step_ms.push_back(MedianOf(steps));
    policy.steps.insert(policy.steps.end(), run.steps.front().begin(), run.steps.front().end());
    policy.last_loss = run.steps.front().back().loss;
    report.foreign_share = std::max(report.foreign_share, run.foreign_share);
    std::fprintf(stderr, "%s, %s: %.1f ms a step\n", report.name.c_str(), policy.name.c_str(), policy.step_ms.back());
    return absl::OkStatus();
  }

  const Options& options_;
  const JobSpec spec_;
  RankNetwork& network_;
  RunSettings settings_;
  std::vector<agent::NodeDevice> devices_;
  MeasureResult measured_;
  double foreign_share_ = 0;  // other processes' share of the machine while the devices were measured
};

std::string LayoutOf(const Options& options) {
  if (options.experts == 0) {
    return absl::StrFormat("tp%d pp%d%s", options.tp, options.pp,
                           options.sequence_parallel ? " with sequence parallelism" : "");
  }
  return absl::StrFormat("dp%d ep%d pp%d, %d experts, %d for a token, with %g times the even share of room", options.tp,
                         options.tp, options.pp, options.experts, options.top_k, options.capacity);
}

std::string Head(const Options& options, const RankNetwork& network) {
  return absl::StrFormat(
      "A %s of %d layers, hidden %d, %d heads, %d tokens a sample, dropout %g, %s; %s, micro-batch %d x %d, "
      "1F1B. %d rounds of %d steps after one to warm up. Links: %s%s.\n\n",
      options.family == ModelFamily::kGpt ? "GPT" : "Llama", options.layers, options.hidden, options.heads, options.seq,
      DropoutOf(options), EnumName(options.dtype), LayoutOf(options), options.micro_batch, options.microbatches, options.rounds,
      options.steps,
      network.why_paced().empty()
          ? "network namespaces, shaped with tc (tbf)"
          : "paced sockets on the loopback, because no namespaces could be made: " + network.why_paced(),
      options.latency_us > 0 ? absl::StrFormat(", %d us of latency added", options.latency_us) : "");
}

absl::Status RunAll(const Options& options) {
  if (options.experts > 0) LYNX_RETURN_IF_ERROR(ValidateJobSpec(SpecOf(options)));
  if (options.tp * options.pp < 2) return absl::InvalidArgumentError("--tp and --pp are 1: there is no link to measure");
  std::string folder = "/tmp/lynx-overlap-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return absl::InternalError("cannot make a folder in /tmp");
  const auto remove = [&](void*) { std::filesystem::remove_all(folder); };
  const std::unique_ptr<void, decltype(remove)> removed(&folder, remove);
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<RankNetwork> network, RankNetwork::Make(options.tp * options.pp, options.paced));
  Benchmark benchmark(options, *network, folder);
  LYNX_RETURN_IF_ERROR(benchmark.MeasureDevices());
  std::fputs(Head(options, *network).c_str(), stdout);
  for (const double slowness : options.slowness) {
    const bool collectives = options.tp > 1;
    const std::string name = collectives ? absl::StrFormat("Forward collectives take %g of the forward ops", slowness)
                                         : absl::StrFormat("A microbatch's transfer takes %g of a stage's forward", slowness);
    LYNX_ASSIGN_OR_RETURN(const LinkReport report, benchmark.Run(name, slowness));
    const int64_t replicas = options.experts > 0 ? options.tp : 1;
    const int64_t tokens = replicas * options.micro_batch * options.microbatches * options.seq;
    std::fputs(LinkSection(report, tokens).c_str(), stdout);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains the same job under each recomputation policy over shaped links, and prints a Markdown page");
  app.add_option("--rank-binary", options.rank_binary, "lynx-rank")->check(CLI::ExistingFile)->capture_default_str();
  app.add_option("--data", options.data, "A text file to train on")->check(CLI::ExistingFile)->capture_default_str();
  const auto count = CLI::Range(1, 4096);
  const std::map<std::string, ModelFamily> families{{"gpt", ModelFamily::kGpt}, {"llama", ModelFamily::kLlama}};
  app.add_option("--model", options.family, "Family of the model")
      ->transform(CLI::CheckedTransformer(families))
      ->default_str("gpt");
  const std::map<std::string, DataType> dtypes{{"fp32", DataType::kFloat32}, {"bf16", DataType::kBfloat16}};
  app.add_option("--dtype", options.dtype)->transform(CLI::CheckedTransformer(dtypes))->default_str("fp32");
  app.add_option("--layers", options.layers)->check(count)->capture_default_str();
  app.add_option("--hidden", options.hidden)->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--heads", options.heads)->check(count)->capture_default_str();
  app.add_option("--seq", options.seq)->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--micro-batch", options.micro_batch)->check(count)->capture_default_str();
  app.add_option("--microbatches", options.microbatches)->check(count)->capture_default_str();
  app.add_option("--tp", options.tp, "Ranks that share a layer")->check(CLI::Range(1, 8))->capture_default_str();
  app.add_option("--experts", options.experts,
                 "Experts of each layer, of --model llama; --tp replicas then share the experts instead of the layers. 0: none")
      ->check(CLI::Range(0, 4096));
  app.add_option("--top-k", options.top_k, "Experts for each token")->check(count)->capture_default_str();
  app.add_option("--capacity", options.capacity, "Room for an expert's rows, as a multiple of the even share")
      ->check(CLI::Range(0.001, 4096.0))
      ->capture_default_str();
  app.add_option("--pp", options.pp, "Pipeline stages")->check(CLI::Range(1, 8))->capture_default_str();
  app.add_flag("--sequence-parallel", options.sequence_parallel, "With sequence parallelism");
  app.add_option("--rounds", options.rounds, "0: plans only")->check(CLI::Range(0, 4096))->capture_default_str();
  app.add_option("--steps", options.steps, "Of each run, after one to warm up")->check(count)->capture_default_str();
  app.add_option("--limit-percent", options.limit_percent, "Activation memory, of what full recomputation needs")
      ->check(CLI::Range(100, 10000))
      ->capture_default_str();
  app.add_option("--latency-us", options.latency_us, "Added to each packet")->check(CLI::Range(0, 1'000'000));
  app.add_option("--host-mib", options.host_mib, "Memory to which each rank may offload under one more policy, in MiB; 0: none")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--slowness", options.slowness,
                 "Links: time of forward collectives over that of forward ops; with --tp 1, of a microbatch's transfer over "
                 "that of a stage's forward")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
  app.add_flag("--paced", options.paced, "Pace sockets, even where namespaces can be made");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = RunAll(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "overlap_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace lynx::bench

int main(int argc, char** argv) { return lynx::bench::Main(argc, argv); }
