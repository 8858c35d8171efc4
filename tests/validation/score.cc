#include "tests/validation/score.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/spec/cluster_file.h"
#include "common/check.h"

namespace lynx::validation {
namespace {

constexpr double kBytesOfGigabit = 1e9 / 8;

Table TableIn(const std::string& source_dir, const char* name) {
  const absl::StatusOr<Table> table = ReadTable(absl::StrCat(source_dir, "/tests/validation/reference/", name, ".csv"));
  LYNX_CHECK(table.ok());
  return *table;
}

// The bytes of the fullest rank or, if `last_stage`, of the last pipeline rank.
double MemoryOf(const StepRequest& request, bool last_stage) {
  const absl::StatusOr<std::vector<MemoryEstimate>> ranks = EstimateMemory(request);
  if (!ranks.ok()) return 0;
  if (last_stage) return static_cast<double>(ranks->back().total().value);
  Bytes most;
  for (const MemoryEstimate& rank : *ranks) most = std::max(most, rank.total());
  return static_cast<double>(most.value);
}

// The requests that a run may stand for: one, or one for each micro-batch and number of virtual stages if it does not say them.
std::vector<StepRequest> Candidates(const RunOfFramework& run) {
  std::vector<StepRequest> candidates = {run.request};
  const int32_t samples = run.request.micro_batch * run.request.microbatches;
  if (run.tuned_micro_batch) {
    candidates.clear();
    for (const int32_t micro_batch : {1, 2, 4, 8, 16}) {
      if (samples % micro_batch != 0) continue;
      candidates.push_back(run.request);
      candidates.back().micro_batch = micro_batch;
      candidates.back().microbatches = samples / micro_batch;
    }
  }
  if (!run.tuned_virtual_stages) return candidates;
  std::vector<StepRequest> with_chunks = candidates;
  for (StepRequest one : candidates) {
    const int32_t layers = one.model.layers / one.layout.pp;
    for (int32_t chunks = 2; chunks <= layers; ++chunks) {
      if (one.model.layers % (one.layout.pp * chunks) != 0) continue;
      one.layout.virtual_stages = chunks;
      one.layout.schedule = ScheduleKind::kInterleaved;
      with_chunks.push_back(one);
    }
  }
  return with_chunks;
}

std::string Percent(double share) { return absl::StrFormat("%.1f", 100 * share); }

std::string ErrorsText(const Errors& errors) {
  if (errors.runs == 0) return " | ";
  return absl::StrFormat("%d | %+.1f / %s / %s", errors.runs, 100 * errors.median, Percent(errors.mean),
                         Percent(errors.ninetieth));
}

std::string ObstaclesText(const SourceScore& score) {
  std::string text;
  for (int i = 1; i < kObstacleCount; ++i) {
    const int32_t runs = score.obstacles[static_cast<size_t>(i)];
    if (runs > 0) absl::StrAppend(&text, text.empty() ? "" : ", ", runs, " ", EnumName(static_cast<Obstacle>(i)));
  }
  return text;
}

// Runs of mixtures take 64 of the 72 devices of a rack, so that no expert group leaves its rack.
int32_t RanksPerNode(const StepRequest& request, int32_t devices) {
  constexpr int32_t kRack = 72, kUsed = 64;
  const bool whole = request.layout.ranks() % kUsed == 0;
  return request.model.moe.any() && devices == kRack && whole ? kUsed : devices;
}

}  // namespace

Errors ErrorsOf(std::vector<double> errors) {
  Errors result;
  result.runs = static_cast<int32_t>(errors.size());
  if (errors.empty()) return result;
  std::sort(errors.begin(), errors.end());
  result.median = errors[errors.size() / 2];
  double sum = 0;
  for (double& error : errors) sum += error = std::fabs(error);
  result.mean = sum / static_cast<double>(errors.size());
  std::sort(errors.begin(), errors.end());
  result.ninetieth = errors[errors.size() * 9 / 10];
  return result;
}

Scoreboard::Scoreboard(const std::string& source_dir)
    : source_dir_(source_dir), runs_(RunsOfTable(TableIn(source_dir, "published_runs"))) {
  for (RunOfFramework& run : IntegrationRuns(TableIn(source_dir, "framework_ci_memory"))) runs_.push_back(std::move(run));
}

const HardwareProfile& Scoreboard::ProfileFor(const RunOfFramework& run) {
  const std::string key = absl::StrCat(run.cluster, " ", run.network_gbits_of_node, " ", run.adapters);
  const auto found = profiles_.find(key);
  if (found != profiles_.end()) return found->second;
  const absl::StatusOr<cli::ClusterFile> file =
      cli::ReadClusterFile(absl::StrCat(source_dir_, "/examples/clusters/", run.cluster, ".yaml"));
  LYNX_CHECK(file.ok());
  const NodeGroup& group = file->cluster.groups.front();
  memory_of_[run.cluster] = static_cast<double>(group.memory_per_device.value);
  devices_of_[run.cluster] = group.devices_per_node;
  HardwareProfile profile = group.profile;
  if (run.network_gbits_of_node > 0) {
    profile.adapters = run.adapters;
    constexpr double kShare = 0.85;  // the same share as in the cluster files
    profile.inter_node.bytes_per_second =
        static_cast<int64_t>(run.network_gbits_of_node * kBytesOfGigabit / run.adapters * kShare);
  }
  return profiles_[key] = profile;
}

Prediction Scoreboard::Predict(const RunOfFramework& run) {
  Prediction prediction{.run = &run};
  if (!run.described) return prediction;
  for (StepRequest request : Candidates(run)) {
    const double memory = MemoryOf(request, run.last_stage_memory);
    if (run.cluster.empty()) {
      prediction.memory_bytes = memory;
      continue;
    }
    const HardwareProfile& profile = ProfileFor(run);
    request.ranks_per_node = RanksPerNode(request, devices_of_[run.cluster]);
    const absl::StatusOr<StepEstimate> estimate = EstimateStep(request, profile);
    if (!estimate.ok()) continue;
    prediction.device_memory_bytes = memory_of_[run.cluster];
    const bool fits = MemoryOf(request, false) <= prediction.device_memory_bytes;
    if (run.tuned_micro_batch && !fits && request.micro_batch > 1) continue;
    if (prediction.step_seconds > 0 && Seconds(estimate->step) >= prediction.step_seconds) continue;
    prediction.step_seconds = Seconds(estimate->step);
    prediction.memory_bytes = memory;
  }
  return prediction;
}

const std::vector<FittedConstant>& FittedConstants() {
  static const std::vector<FittedConstant> constants = {
      {"Megatron-DeepSpeed: host time of an op (ns)", "vTrain, one node", &FrameworkTraits::host_nanos_per_op,
       TraitsOf(Framework::kMegatronDeepspeed).host_nanos_per_op, 1000},
      {"InternEvo: broadcast of one replica's weights (ns)", "InternEvo", &FrameworkTraits::broadcast_nanos_per_replica,
       TraitsOf(Framework::kInternevo).broadcast_nanos_per_replica, 100'000},
      {"Megatron-Core: host time of an expert's product in 8 bits (ns)", "Megatron-Bridge, mixtures",
       &FrameworkTraits::expert_product_host_nanos, TraitsOf(Framework::kNemo).expert_product_host_nanos, 5000},
      {"Attention before FlashAttention-2 on A100 (thousandths of the curve)", "llm-foundry, A100 80GB",
       &FrameworkTraits::attention_permille, kOldAttentionOnA100, 10},
      {"llm-foundry's attention on H100 (thousandths of the curve)", "llm-foundry, H100", &FrameworkTraits::attention_permille,
       kOldAttentionOnH100, 10},
  };
  return constants;
}

int32_t Scoreboard::Refit(const FittedConstant& constant) {
  constexpr int32_t kSteps = 10;
  int32_t best = 0;
  double least = INFINITY;
  for (int32_t value = constant.value - kSteps * constant.step; value <= constant.value + kSteps * constant.step;
       value += constant.step) {
    std::vector<double> errors;
    for (RunOfFramework run : runs_) {
      if (run.source != constant.source || !run.fitted || !run.described) continue;
      // 0: with the run's recipe, the host launches nothing for this trait.
      if (run.request.traits.*constant.trait != 0) run.request.traits.*constant.trait = value;
      const Prediction prediction = Predict(run);
      if (prediction.has_time()) errors.push_back(prediction.TimeError());
    }
    const double mean = ErrorsOf(errors).mean;
    if (mean < least) least = mean, best = value;
  }
  return best;
}

std::vector<Prediction> Scoreboard::PredictAll() {
  std::vector<Prediction> predictions;
  for (const RunOfFramework& run : runs_) predictions.push_back(Predict(run));
  return predictions;
}

std::vector<SourceScore> ScoreBySource(const std::vector<Prediction>& predictions) {
  std::vector<SourceScore> scores;
  std::vector<std::vector<double>> time, held_back, memory;
  for (const Prediction& one : predictions) {
    const auto found =
        std::find_if(scores.begin(), scores.end(), [&](const SourceScore& score) { return score.source == one.run->source; });
    const size_t at = static_cast<size_t>(found - scores.begin());
    if (found == scores.end()) {
      scores.push_back({.source = one.run->source});
      for (auto* errors : {&time, &held_back, &memory}) errors->emplace_back();
    }
    SourceScore& score = scores[at];
    ++score.runs;
    ++score.obstacles[static_cast<size_t>(one.run->obstacle)];
    if (one.has_time() || one.has_memory()) ++score.expressed;
    if (one.has_time()) {
      time[at].push_back(one.TimeError());
      if (!one.run->fitted) held_back[at].push_back(one.TimeError());
      if (one.run->states_recompute && one.memory_bytes > one.device_memory_bytes) ++score.false_overflows;
    }
    if (one.has_memory()) memory[at].push_back(one.MemoryError());
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i].time = ErrorsOf(time[i]);
    scores[i].held_back_time = ErrorsOf(held_back[i]);
    scores[i].memory = ErrorsOf(memory[i]);
  }
  return scores;
}

std::vector<Choice> ChoicesBySource(const std::vector<Prediction>& predictions) {
  std::map<std::pair<std::string, std::string>, std::vector<const Prediction*>> groups;
  for (const Prediction& one : predictions) {
    if (one.has_time()) groups[{one.run->source, one.run->model}].push_back(&one);
  }
  std::vector<Choice> choices;
  for (const auto& [key, group] : groups) {
    if (group.size() < 2) continue;
    const auto least = [&](const auto& time) {
      return *std::min_element(group.begin(), group.end(), [&](const auto* a, const auto* b) { return time(*a) < time(*b); });
    };
    const Prediction* chosen = least([](const Prediction& one) { return one.step_seconds; });
    const Prediction* fastest = least([](const Prediction& one) { return one.run->step_seconds; });
    const double regret = chosen->run->step_seconds / fastest->run->step_seconds - 1;
    if (choices.empty() || choices.back().source != key.first) choices.push_back({.source = key.first});
    Choice& choice = choices.back();
    choice.mean_regret += (regret - choice.mean_regret) / ++choice.groups;
    choice.worst_regret = std::max(choice.worst_regret, regret);
  }
  return choices;
}

std::string ErrorTable(const std::vector<Prediction>& predictions) {
  std::string text =
      "\n| source | runs | predicted | times | error of time (%) | held back | error (%) | memory | error (%) | not predicted "
      "|\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n";
  for (const SourceScore& score : ScoreBySource(predictions)) {
    absl::StrAppend(&text, "| ", score.source, " | ", score.runs, " | ", score.expressed, " | ", ErrorsText(score.time), " | ",
                    ErrorsText(score.held_back_time), " | ", ErrorsText(score.memory), " | ", ObstaclesText(score), " |\n");
  }
  return text;
}

std::string ChoiceTable(const std::vector<Prediction>& predictions) {
  std::string text = "\n| source | models | slower in the mean (%) | at worst (%) |\n| --- | ---: | ---: | ---: |\n";
  for (const Choice& choice : ChoicesBySource(predictions)) {
    absl::StrAppend(&text, "| ", choice.source, " | ", choice.groups, " | ", Percent(choice.mean_regret), " | ",
                    Percent(choice.worst_regret), " |\n");
  }
  return text;
}

}  // namespace lynx::validation
