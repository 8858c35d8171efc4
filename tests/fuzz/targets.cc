#include "tests/fuzz/targets.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/output/output.h"
#include "cli/spec/cluster_file.h"
#include "cli/spec/job_file.h"
#include "cli/spec/model_config.h"
#include "cli/spec/profile_file.h"
#include "common/check.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"
#include "planner/problem/model_presets.h"
#include "planner/search/make_plan.h"
#include "proto/convert.h"

namespace lynx {
namespace {

constexpr char kConfig[] =
    R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "hidden_act": "silu",
  "max_position_embeddings": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
  "vocab_size": 300, "torch_dtype": "float32", "attention_bias": false, "rope_scaling": null})";
constexpr char kGpt2Config[] = R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 32,
  "vocab_size": 300, "n_inner": null, "activation_function": "gelu_new", "resid_pdrop": 0.1})";
constexpr char kMistralConfig[] = R"({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 128,
  "max_position_embeddings": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "sliding_window": null,
  "vocab_size": 300, "head_dim": 16})";
constexpr char kJob[] = R"(apiVersion: lynx/v1
kind: TrainingJob
name: small
model: {layers: 3, hidden: 64, heads: 4, seq: 32, vocab: 256, dropout: 0.1}
data: {kind: text, path: /text}
train: {steps: 10, globalBatch: 8, microBatch: 2, optimizer: {lr: 1e-3}, schedule: cosine, warmupSteps: 2}
resources: {ranks: 1..4, activationMemoryPerRank: 400KiB}
parallel: {tp: auto, pp: 2, dp: auto}
recompute: auto
recomputeOptions: {layers: auto, offloadShare: 0, forbid: "full selective"}
checkpoint: {everySteps: 5, keep: 2}
maxRestarts: 3
)";
constexpr char kLlamaJob[] = R"(apiVersion: lynx/v1
kind: TrainingJob
name: small-llama
model:
  config: config.json
  attention: fused
  dtype: bfloat16
data: {kind: megatron, path: corpus}
train: {steps: 10, globalBatch: 4}
resources: {ranks: 2}
parallel: {sequenceParallel: auto, zero: auto, cp: auto, virtualStages: auto, schedule: auto}
recompute: full
)";
constexpr char kCluster[] = R"(apiVersion: lynx/v1
kind: Cluster
name: two
devices:
  - name: d
    memory: 1GiB
    peak: {float32: 1TFLOP/s}
    memoryBandwidth: {value: 100GB/s, source: "a book"}
    efficiency: {gemm: {source: x, points: [{size: 1GFLOP, share: 0.5}, {size: 2GFLOP, share: 0.6}]}}
nodeGroups:
  - name: a
    nodes: 1
    devicesPerNode: 2
    device: d
    links: {node: {latency: 1us, bandwidth: 10GB/s}, network: {latency: 5us, bandwidth: 1Gbit/s}}
  - name: b
    nodes: 2
    devicesPerNode: 1
    device: {memory: 64MiB, peak: {float32: 100GFLOP/s}, memoryBandwidth: 10GB/s}
    hostCopy: {toHost: 1GB/s, fromHost: 1GB/s, both: 1GB/s}
    links: {node: {latency: 1us, bandwidth: 10GB/s, share: 0.5}, network: {latency: 5us, bandwidth: 1Gbit/s}}
)";

absl::StatusOr<std::string> ReadConfig(const std::string&) { return std::string(kConfig); }

void CheckRefusal(const absl::Status& status) {
  LYNX_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  LYNX_CHECK(!status.message().empty() && status.message().size() < 100'000);
}

// True if the specification is so small that thousands of plans can be made in a minute.
bool IsSmall(const JobSpec& spec) {
  const ModelSpec& m = spec.model;
  return m.layers <= 6 && m.hidden <= 4096 && m.seq <= 4096 && m.vocab <= 1 << 17 && spec.resources.max_ranks <= 4 &&
         spec.train.global_batch <= 32;
}

void PlanIt(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  if (!result.ok()) return CheckRefusal(result.status());
  if (const auto* plan = std::get_if<Plan>(&*result)) {
    const absl::Status valid = CheckPlan(*plan);
    if (!valid.ok()) std::fprintf(stderr, "%s\n", std::string(valid.message()).c_str());
    LYNX_CHECK(valid.ok());
  } else {
    LYNX_CHECK(!std::get<Infeasible>(*result).reason.empty());
  }
}

JobSpec SmallJob() {
  static const JobSpec& spec = *new JobSpec(cli::ParseJobFile(kJob, "job.yaml", "/").value());
  return spec;
}

void RunJob(const std::string& input) {
  const absl::StatusOr<JobSpec> spec = cli::ParseJobFile(input, "job.yaml", "/folder", {}, ReadConfig);
  if (!spec.ok()) return CheckRefusal(spec.status());
  LYNX_CHECK(ValidateJobSpec(*spec).ok());
  const absl::StatusOr<JobSpec> again = cli::ParseJobFile(cli::JobFileText(*spec), "printed.yaml", "/other");
  if (!again.ok()) std::fprintf(stderr, "%s\n", std::string(again.status().message()).c_str());
  LYNX_CHECK(again.ok() && *again == *spec);
  if (IsSmall(*spec)) PlanIt({.spec = *spec, .cluster = UniformCluster(2, 2, StatedCpuProfile())});
}

void RunCluster(const std::string& input) {
  const absl::StatusOr<cli::ClusterFile> file = cli::ParseClusterFile(input, "cluster.yaml");
  if (!file.ok()) return CheckRefusal(file.status());
  LYNX_CHECK(CheckCluster(file->cluster).ok());
  PlanIt({.spec = SmallJob(), .cluster = file->cluster});
}

void RunConfig(const std::string& input) {
  const absl::StatusOr<ModelSpec> model = cli::ParseModelConfig(input, "config.json");
  if (!model.ok()) return CheckRefusal(model.status());
  LYNX_CHECK(model->layers >= 1 && model->hidden >= 1 && model->heads >= 1 && model->seq >= 1 && model->vocab >= 1);
  JobSpec spec = SmallJob();
  spec.model = *model;
  Normalize(spec);
  const absl::Status valid = ValidateJobSpec(spec);
  if (!valid.ok()) return CheckRefusal(valid);
}

void RunProfile(const std::string& input) {
  const absl::StatusOr<HardwareProfile> profile = cli::ParseProfileFile(input, "profile.json");
  if (!profile.ok()) return CheckRefusal(profile.status());
  LYNX_CHECK(CheckProfile(*profile).ok());
  PlanIt({.spec = SmallJob(), .cluster = UniformCluster(2, 2, *profile)});
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> paths, texts;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(LYNX_SOURCE_DIR) + "/" + folder)) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());  // so that the order is the same on every machine
  for (const std::string& path : paths) texts.push_back(cli::ReadTextFile(path).value());
  return texts;
}

std::vector<std::string> Profiles() {
  HardwareProfile profile = StatedCpuProfile();
  const JobSpec spec = SmallJob();
  for (const LayerShape& shape : WantedShapes(spec, UniformCluster(2, 2))) {
    ShapeTimes times{.shape = shape, .optimizer_per_mega_parameter = Nanos(1000)};
    times.ops.fill({Nanos(1000), Nanos(2000), Nanos(500)});
    profile.measured.push_back(times);
    if (profile.measured.size() == 2) break;
  }
  const std::string measured = cli::JsonText(ToProto(profile));
  profile = cli::ParseClusterFile(FilesIn("examples/clusters").front(), "c")->cluster.groups[0].profile;
  return {measured, cli::JsonText(ToProto(profile)), cli::JsonText(ToProto(StatedCpuProfile()))};
}

}  // namespace

const std::vector<FuzzTarget>& FuzzTargets() {
  static const auto& targets = *new std::vector<FuzzTarget>([] {
    std::vector<std::string> jobs = FilesIn("examples");
    jobs.push_back(kJob);
    jobs.push_back(kLlamaJob);
    std::vector<std::string> clusters = FilesIn("examples/clusters");
    clusters.push_back(kCluster);
    std::vector<FuzzTarget> all = {{"job", RunJob, jobs},
                                   {"cluster", RunCluster, clusters},
                                   {"config", RunConfig, {kConfig, kGpt2Config, kMistralConfig}},
                                   {"profile", RunProfile, Profiles()}};
    for (FuzzTarget& target : MachineTargets()) all.push_back(std::move(target));
    LYNX_CHECK(all.size() == kFuzzTargetCount);
    return all;
  }());
  return targets;
}

const std::vector<std::string>& FuzzWords() {
  static const auto& words = *new std::vector<std::string>([] {
    std::set<std::string> found = {"0",
                                   "-1",
                                   "1",
                                   "2147483647",
                                   "2147483648",
                                   "-9223372036854775808",
                                   "9223372036854775807",
                                   "1e308",
                                   "nan",
                                   "inf",
                                   "auto",
                                   "null",
                                   "~",
                                   "true",
                                   "false",
                                   "[]",
                                   "{}",
                                   "[",
                                   "]",
                                   "{",
                                   "}",
                                   ": ",
                                   "- ",
                                   "\n",
                                   "\t",
                                   "\"",
                                   "'",
                                   "#",
                                   "&a",
                                   "*a",
                                   "!!int",
                                   "|",
                                   ">",
                                   "?",
                                   "---\n",
                                   "0.0005",
                                   "1.5",
                                   "99999999TiB",
                                   "8e18",
                                   "\xff",
                                   std::string(1, '\0'),
                                   "\xef\xbb\xbf"};
    for (const FuzzTarget& target : FuzzTargets()) {
      for (const std::string& text : target.corpus) {
        std::string word;
        for (const char c : text) {
          const bool part = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
          if (part) {
            word += c;
          } else if (!word.empty()) {
            found.insert(std::exchange(word, ""));
          }
        }
      }
    }
    for (const ModelPreset& preset : ModelPresets()) found.insert(preset.name);
    return std::vector<std::string>(found.begin(), found.end());
  }());
  return words;
}

}  // namespace lynx
