#include "planner/plan_table.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/units.h"

namespace lynx {
namespace {

using Row = std::vector<std::string>;

// Left-aligned columns, two spaces apart; the first one right-aligned, for the stage numbers.
std::string Aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = std::string(widths[0] - row[0].size(), ' ') + row[0];
    for (size_t i = 1; i < row.size(); ++i) {
      line += std::string(widths[i - 1] - (i == 1 ? widths[0] : row[i - 1].size()) + 2, ' ') + row[i];
    }
    text += line + "\n";
  }
  return text;
}

std::string LayersText(const Plan& plan, size_t stage) {
  const StagePlan& part = plan.stages[stage];
  std::string text = stage == 0 ? "embed " : "";
  absl::StrAppend(&text, part.first_layer);
  if (part.end_layer - part.first_layer > 1) absl::StrAppend(&text, "-", part.end_layer - 1);
  if (stage + 1 == plan.stages.size()) text += " head";
  return text;
}

std::string StoredText(const LayerGraph& graph, const StagePolicy& policy) {
  int64_t stored = 0, all = 0;
  for (const LayerPolicy& layer : policy.layers) {
    const auto count = static_cast<int64_t>(graph.recomputable().size());
    stored += std::count(layer.begin(), layer.begin() + count, Placement::kStore);
    all += count;
  }
  if (stored == all) return "all";
  return absl::StrCat(stored, " of ", all);
}

std::string RecomputedText(const LayerGraph& graph, const StagePolicy& policy) {
  std::array<int64_t, kPlacementCount> ops{};
  for (const LayerPolicy& layer : policy.layers) {
    for (size_t i = 0; i < graph.recomputable().size(); ++i) {
      ops[static_cast<size_t>(layer[i])] += static_cast<int64_t>(graph.ProducersOf(graph.recomputable()[i]).size());
    }
  }
  std::string text;
  for (int i = 1; i < kPlacementCount; ++i) {
    if (ops[i] == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", std::string(PlacementName(static_cast<Placement>(i))), ":",
                    ops[i]);
  }
  return text.empty() ? "-" : text;
}

std::string StageTable(const Plan& plan) {
  const LayerGraph& graph = plan.ContextOf(0).graph();
  std::vector<Row> rows{
      {"stage", "layers", "stored", "recomputed ops", "hidden", "exposed", "peak", "limit", "states"}};
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    rows.push_back({absl::StrCat(i), LayersText(plan, i), StoredText(graph, stage.policy), RecomputedText(graph, stage.policy),
                    FormatDuration(stage.recompute_hidden), FormatDuration(stage.recompute_exposed),
                    FormatBytes(stage.arena),
                    plan.activation_limit.value == 0 ? "none" : FormatBytes(plan.activation_limit),
                    FormatBytes(stage.states.total())});
  }
  return Aligned(rows);
}

std::string PolicyLines(const Plan& plan) {
  const LayerGraph& graph = plan.ContextOf(0).graph();
  std::string text;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const std::vector<LayerPolicy>& layers = plan.stages[i].policy.layers;
    for (size_t begin = 0, end; begin < layers.size(); begin = end) {
      for (end = begin + 1; end < layers.size() && layers[end] == layers[begin];) ++end;
      const StagePolicy group{
          {layers.begin() + static_cast<int64_t>(begin), layers.begin() + static_cast<int64_t>(end)}};
      absl::StrAppend(&text, "stage ", i, ", ",
                      StagePolicyText(graph, group, plan.stages[i].first_layer + static_cast<int32_t>(begin)), "\n");
    }
  }
  return text;
}

// "12.3%" of a share in whole numbers, so that every platform prints the same.
std::string PercentText(int64_t part, int64_t whole) {
  const __int128 tenths = whole == 0 ? 0 : (static_cast<__int128>(part) * 1000 + whole / 2) / whole;
  return absl::StrCat(static_cast<int64_t>(tenths) / 10, ".", static_cast<int64_t>(tenths) % 10, "%");
}

std::string Prediction(const Plan& plan) {
  Nanos hidden, exposed, stall;
  for (const StagePlan& stage : plan.stages) {
    hidden += stage.recompute_hidden;
    exposed += stage.recompute_exposed;
    stall += stage.stall;
  }
  const int64_t tokens = int64_t{plan.micro_batch} * plan.microbatches * plan.layout.dp * plan.model.seq;
  const __int128 rate = static_cast<__int128>(tokens) * 1'000'000'000 / std::max<int64_t>(1, plan.step.value);
  std::string text = absl::StrCat(
      "predicted: step ", FormatDuration(plan.step), ", ", static_cast<int64_t>(rate), " tokens/s, bubble ",
      PercentText(stall.value, plan.step.value * static_cast<int64_t>(plan.stages.size())));
  if ((hidden + exposed).value == 0) {
    absl::StrAppend(&text, ", nothing recomputed");
  } else {
    absl::StrAppend(&text, ", ", PercentText(hidden.value, (hidden + exposed).value), " of recomputation hidden");
  }
  absl::StrAppend(&text, plan.measured_profile ? " (measured profile)" : " (stated profile)", "\n");
  return text;
}

}  // namespace

std::string PlanTable(const Plan& plan) {
  const int32_t ranks = plan.layout.ranks();
  std::string text = absl::StrCat(LayoutText(plan.layout), " (", ranks, ranks == 1 ? " rank" : " ranks",
                                  "), micro-batch ", plan.micro_batch, " x ", plan.microbatches,
                                  plan.microbatches == 1 ? " microbatch" : " microbatches", ", recompute ",
                                  RecomputeModeName(plan.mode), "\n\n");
  absl::StrAppend(&text, StageTable(plan), "\n", PolicyLines(plan), "\n", Prediction(plan));
  return text;
}

}  // namespace lynx
