#include "tests/validation/yuan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/problem/flops.h"
#include "planner/program/memory_model.h"
#include "planner/recompute/recompute_policy.h"
#include "planner/schedule/schedule_generate.h"
#include "planner/schedule/schedule_memory.h"
#include "tests/validation/fit.h"

namespace lynx::validation {
namespace {

constexpr int64_t kReservedBytes = 1'200'000'000;
constexpr double kBudgetBytes = 68.165e9;
constexpr int32_t kChunksInTransit = 4;
constexpr int32_t kVocabulary = 32004;
constexpr int64_t kH800Peak = 989'000'000'000'000;
constexpr int64_t kA800Peak = 312'000'000'000'000;

int32_t Int(const Row& row, const char* column) { return static_cast<int32_t>(Number(row, column)); }

RecomputeMode ModeOf(const Row& row) {
  const std::string& name = row.at("ckpt");
  return name == "ours" ? RecomputeMode::kBalanced : name == "full" ? RecomputeMode::kFull : RecomputeMode::kNone;
}

StepRequest RequestOf(const Row& row) {
  const int32_t tp = Int(row, "t"), cp = Int(row, "c"), pp = Int(row, "p");
  const int32_t heads = Int(row, "heads"), key_heads = Int(row, "kv_groups"), unit = 128 * tp;
  StepRequest request{.model = {.layers = Int(row, "layers"),
                                .hidden = Int(row, "hidden"),
                                .heads = heads,
                                .ffn = Int(row, "ffn"),
                                .seq = Int(row, "seq_len"),
                                .vocab = (kVocabulary + unit - 1) / unit * unit,
                                .dropout = 0,
                                .family = ModelFamily::kLlama,
                                .kv_heads = key_heads == heads ? 0 : key_heads,
                                .attention = AttentionKernel::kFused,
                                .dtype = DataType::kBfloat16}};
  request.layout = {.tp = tp,
                    .pp = pp,
                    .dp = Int(row, "num_gpus") / (tp * cp * pp),
                    .cp = cp,
                    .virtual_stages = request.model.layers / (pp * Int(row, "l")),
                    .sequence_parallel = tp > 1,
                    .zero = ZeroStage::kOptimizer,
                    .schedule = ScheduleKind::kInterleaved};
  request.microbatches = Int(row, "global_batch") / request.layout.dp;
  request.recompute = ModeOf(row);
  request.offload_permille = static_cast<int32_t>(std::lround(1000 * Number(row, "alpha")));
  request.ranks_per_node = 8;
  request.traits = kMegatron2024Traits;
  return request;
}

// The terms of the memory formula in yuan.h.
struct Memory {
  double states;     // bytes
  double chunk;      // C, in bytes
  double in_flight;  // n, a number of chunks

  double Peak(double alpha) const {
    return states + kReservedBytes + chunk * (in_flight * (1 - alpha) + kChunksInTransit * alpha);
  }
  double LeastShare() const {
    return std::max(0.0, (states + in_flight * chunk - kBudgetBytes) / (chunk * (in_flight - kChunksInTransit)));
  }
};

Memory MemoryOf(const StepRequest& request) {
  const ParallelLayout& layout = request.layout;
  const int32_t rank_layers = request.model.layers / layout.pp;
  const StageContext first{.model = request.model, .layout = layout, .slices = {SliceOf(layout, 0, 0, rank_layers)}};
  const LayerShape shape = first.shape();
  const LayerGraph& graph = first.graph();
  const LayerPolicy policy = NamedPolicy(graph, request.recompute, 1).layers.front();
  // The log-sum-exp of attention is less than a megabyte and is not offloaded, so it is left out here.
  Bytes layer = TensorBytes(Tensor::kX, shape);
  for (size_t i = 0; i < graph.recomputable().size(); ++i) {
    if (policy[i] == Placement::kStore) layer += TensorBytes(graph.recomputable()[i], shape);
  }
  const absl::StatusOr<Schedule> schedule =
      GenerateSchedule(layout.schedule, layout.pp, layout.virtual_stages, request.microbatches);
  LYNX_CHECK(schedule.ok());
  return {.states = static_cast<double>(StatesOf(first).total().value),
          .chunk = static_cast<double>(layer.value) * rank_layers / layout.virtual_stages,
          .in_flight = static_cast<double>(CountInFlight(*schedule).front().activations)};
}

std::string NameOf(const Row& row) {
  return absl::StrCat(row.at("model"), ", ", row.at("num_gpus"), " devices, t", row.at("t"), " c", row.at("c"), " p",
                      row.at("p"), " v", Int(row, "v"), row.at("ckpt") == "ours" ? ", balanced" : "");
}

std::vector<const Row*> RowsOf(const Table& table, const std::string& name) {
  std::vector<const Row*> rows;
  for (const Row& row : table) {
    if (row.at("table") == name) rows.push_back(&row);
  }
  return rows;
}

}  // namespace

std::vector<Comparison> OffloadedMemory(const Table& table) {
  std::vector<Comparison> all;
  for (const Row* row : RowsOf(table, "Fig7")) {
    if (row->at("max_memory_allocated_B") == "OOM") continue;
    all.push_back({NameOf(*row), absl::StrCat("alpha ", row->at("alpha")), "GB", Number(*row, "max_memory_allocated_B") / 1e9,
                   MemoryOf(RequestOf(*row)).Peak(Number(*row, "alpha")) / 1e9});
  }
  return all;
}

std::vector<Comparison> OffloadedShares(const Table& table) {
  std::vector<Comparison> all;
  for (const Row* row : RowsOf(table, "Fig9")) {
    all.push_back({NameOf(*row), "alpha", "", Number(*row, "alpha"), MemoryOf(RequestOf(*row)).LeastShare()});
  }
  return all;
}

std::vector<Comparison> SearchedTimes(const Table& table, const HardwareProfile& h800) {
  std::vector<Comparison> all;
  for (const Row* row : RowsOf(table, "Fig9")) {
    const absl::StatusOr<StepEstimate> estimate = EstimateStep(RequestOf(*row), h800);
    LYNX_CHECK(estimate.ok());
    all.push_back({NameOf(*row), absl::StrCat("alpha ", row->at("alpha")), "s",
                   Number(*row, "global_batch") * Number(*row, "seq_len") / Number(*row, "tok_s_total"),
                   Seconds(estimate->step)});
  }
  return all;
}

std::vector<Comparison> DemoThroughput(const Table& table, const HardwareProfile& a100, const HardwareProfile& h800) {
  std::vector<Comparison> all;
  for (const Row* row : RowsOf(table, "demo_7B")) {
    if (row->at("tok_s_per_gpu").empty() || row->at("method").find("origin") != std::string::npos) continue;
    const absl::StatusOr<StepEstimate> estimate = EstimateStep(RequestOf(*row), row->at("gpu") == "A800" ? a100 : h800);
    LYNX_CHECK(estimate.ok());
    all.push_back(
        {absl::StrCat(row->at("model"), ", 4 ", row->at("gpu")), row->at("ckpt") == "full" ? "full" : "balanced, alpha 0.1",
         "tokens/s", Number(*row, "tok_s_per_gpu"),
         Number(*row, "global_batch") * Number(*row, "seq_len") / Number(*row, "num_gpus") / Seconds(estimate->step)});
  }
  return all;
}

std::vector<Comparison> DemoUtilization(const Table& table) {
  std::vector<Comparison> all;
  for (const Row* row : RowsOf(table, "demo_7B")) {
    if (row->at("mfu_pct").empty()) continue;
    const ModelSpec& model = RequestOf(*row).model;
    const double flops = StepFlops(model, 1, FlopCount::kModelCausal) / model.seq * Number(*row, "tok_s_per_gpu");
    all.push_back({absl::StrCat(row->at("model"), ", 4 ", row->at("gpu")), row->at("method"), "%", Number(*row, "mfu_pct"),
                   100 * FlopsUtilization(flops, 1, 1, row->at("gpu") == "A800" ? kA800Peak : kH800Peak)});
  }
  return all;
}

SearchedFit FitToSearchedTimes(const Table& table, const HardwareProfile& h800) {
  SearchedFit fit{.profile = h800};
  EfficiencyCurve& products = fit.profile.efficiency[static_cast<size_t>(OpClass::kGemm)];
  LYNX_CHECK(!products.empty());
  fit.constants = FitConstants({{"efficiency of large products", &products.back().permille, 1, 1000}}, [&] {
    double sum = 0;
    for (const Comparison& one : SearchedTimes(table, fit.profile)) sum += one.error() * one.error();
    return sum;
  });
  return fit;
}

}  // namespace lynx::validation
