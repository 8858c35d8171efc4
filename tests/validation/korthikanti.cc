#include "tests/validation/korthikanti.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/problem/flops.h"
#include "planner/problem/model_presets.h"
#include "tests/validation/fit.h"

namespace lynx::validation {
namespace {

constexpr char kConfig[] = "T3_config";
constexpr char kTable4[] = "T4_22B_layer";
constexpr char kTable5[] = "T5_end_to_end";
constexpr int32_t kDevicesPerNode = 8;
constexpr int64_t kA100Peak = 312'000'000'000'000;

int32_t Config(const Table& table, const std::string& name, const char* field) {
  return static_cast<int32_t>(Value(table, kConfig, name, field));
}

StepRequest Request(const Table& table, const std::string& name, bool present) {
  StepRequest request{
      .model = FindModelPreset(name == "1T" ? "gpt-1t" : absl::StrCat("gpt-", name.substr(0, name.size() - 1), "b"))->model};
  const ModelSpec& model = request.model;
  LYNX_CHECK(model.layers == Config(table, name, "layers") && model.hidden == Config(table, name, "hidden") &&
             model.heads == Config(table, name, "attention_heads") && model.seq == Config(table, name, "seq") &&
             model.vocab == Config(table, name, "vocab"));
  const int32_t chunks = Config(table, name, "interleave_m");
  request.layout = {.tp = Config(table, name, "tp"),
                    .pp = Config(table, name, "pp"),
                    .virtual_stages = chunks,
                    .sequence_parallel = present,
                    .schedule = chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneForwardOneBackward};
  request.micro_batch = Config(table, name, "micro_batch");
  request.microbatches = Config(table, name, "global_batch") / request.micro_batch;
  request.recompute = present ? RecomputeMode::kSelective : RecomputeMode::kFull;
  request.ranks_per_node = kDevicesPerNode;
  request.traits = kMegatron2022Traits;
  return request;
}

struct Technique {
  const char* row;  // the name of a row of table 4
  bool sequence_parallel;
  RecomputeMode recompute;
};
constexpr Technique kTechniques[] = {
    {"baseline_no_recompute", false, RecomputeMode::kNone},  {"sequence_parallelism", true, RecomputeMode::kNone},
    {"full_recompute", false, RecomputeMode::kFull},         {"selective_recompute", false, RecomputeMode::kSelective},
    {"selective+sequence", true, RecomputeMode::kSelective},
};

double LayerError(const Table& table, const HardwareProfile& profile) {
  double sum = 0;
  const std::vector<Comparison> times = LayerTimes(table, profile);
  for (size_t i = 0; i + 1 < times.size(); i += 2) {
    const double forward = times[i].ours - times[i].published, backward = times[i + 1].ours - times[i + 1].published;
    sum += forward * forward + backward * backward + (forward + backward) * (forward + backward);
  }
  return sum;
}

}  // namespace

std::vector<PublishedRun> PublishedRuns(const Table& table) {
  std::vector<PublishedRun> runs;
  for (const Row& row : table) {
    if (row.at("table") != kConfig || row.at("field") != "gpus") continue;
    const std::string& name = row.at("row");
    runs.push_back({.name = name,
                    .full = Request(table, name, false),
                    .present = Request(table, name, true),
                    .gpus = static_cast<int32_t>(Number(row, "value")),
                    .samples = Config(table, name, "global_batch")});
  }
  return runs;
}

std::vector<Comparison> LayerTimes(const Table& table, const HardwareProfile& profile) {
  const StepRequest run = Request(table, "22B", false);
  std::vector<Comparison> times;
  for (const Technique& technique : kTechniques) {
    ParallelLayout layout = run.layout;
    layout.sequence_parallel = technique.sequence_parallel;
    const CostModel costs(profile, run.model, layout, run.micro_batch, kDevicesPerNode);
    const LayerShape shape = ShapeOf(run.model, layout, run.micro_batch);
    const LayerEstimate layer = EstimateLayer(costs, shape, technique.recompute, run.traits);
    times.push_back({technique.row, "forward", "ms", Value(table, kTable4, technique.row, "forward"), Millis(layer.forward)});
    times.push_back(
        {technique.row, "backward", "ms", Value(table, kTable4, technique.row, "backward"), Millis(layer.backward)});
  }
  return times;
}

std::vector<Comparison> IterationPredictions(const Table& table, const HardwareProfile& profile) {
  std::vector<Comparison> times;
  for (const PublishedRun& run : PublishedRuns(table)) {
    for (const bool present : {false, true}) {
      const absl::StatusOr<StepEstimate> estimate = EstimateStep(present ? run.present : run.full, profile);
      LYNX_CHECK(estimate.ok());
      Comparison time{run.name, present ? "selective, sequence parallel" : "full recomputation", "s", 0,
                      Seconds(estimate->step)};
      for (const Row& row : table) {
        const bool here = row.at("table") == kTable5 && row.at("row") == run.name &&
                          row.at("field") == (present ? "iter_present_work" : "iter_full_recompute");
        if (here) time.published = Number(row, "value");
      }
      times.push_back(time);
    }
  }
  return times;
}

std::vector<Comparison> IterationTimes(const Table& table, const HardwareProfile& profile) {
  std::vector<Comparison> times = IterationPredictions(table, profile);
  std::erase_if(times, [](const Comparison& time) { return time.published == 0; });
  return times;
}

std::vector<Comparison> Utilization(const Table& table) {
  std::vector<Comparison> all;
  const auto add = [&](const PublishedRun& run, const char* field, const char* time, FlopCount count) {
    const double seconds = Value(table, kTable5, run.name, time);
    all.push_back({run.name, field, "%", Value(table, "T5_check", run.name, field),
                   100 * FlopsUtilization(StepFlops(run.present.model, run.samples, count), seconds, run.gpus, kA100Peak)});
  };
  for (const PublishedRun& run : PublishedRuns(table)) {
    const bool timed = std::any_of(table.begin(), table.end(),
                                   [&](const Row& row) { return row.at("table") == kTable5 && row.at("row") == run.name; });
    if (!timed) continue;
    add(run, "mfu_recomputed", "iter_present_work", FlopCount::kModel);
    add(run, "hfu_published_formula", "iter_present_work", FlopCount::kSelectiveRecomputePublished);
    add(run, "hfu_strict_formula", "iter_present_work", FlopCount::kSelectiveRecompute);
    add(run, "mfu_of_full_recompute_run", "iter_full_recompute", FlopCount::kModel);
  }
  return all;
}

LayerFit FitToLayerTimes(const Table& table, const HardwareProfile& profile) {
  LayerFit fit{.profile = profile};
  EfficiencyCurve& products = fit.profile.efficiency[static_cast<size_t>(OpClass::kGemm)];
  EfficiencyCurve& scores = fit.profile.efficiency[static_cast<size_t>(OpClass::kScores)];
  LYNX_CHECK(!products.empty() && !scores.empty());
  fit.constants = FitConstants({{"efficiency of large products", &products.back().permille, 1, 1000},
                                {"efficiency of kernels over scores", &scores.back().permille, 1, 1000},
                                {"time of ops beside collectives", &fit.profile.overlap_slowdown_permille, 1000, 5000}},
                               [&] { return LayerError(table, fit.profile); });
  return fit;
}

}  // namespace lynx::validation
