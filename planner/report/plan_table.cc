#include "planner/report/plan_table.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/units.h"
#include "planner/problem/layer_kinds.h"
#include "planner/problem/model_families.h"

namespace lynx {
namespace {

// By the placement of tensors that could be recomputed, over the layers of a pipeline rank: the tensors, and the ops that make
// them.
struct Placed {
  std::array<int64_t, kPlacementCount> tensors{}, ops{};
};
Placed PlacedOf(const LayerKinds& kinds, const StagePlan& stage) {
  Placed placed;
  for (const SlicePlan& slice : stage.slices) {
    for (int32_t layer = slice.first_layer; layer < slice.end_layer; ++layer) {
      const LayerGraph& graph = kinds.GraphOf(layer);
      const LayerPolicy policy =
          PolicyIn(graph, kinds.graph(), slice.policy.layers[static_cast<size_t>(layer - slice.first_layer)]);
      for (size_t i = 0; i < graph.recomputable().size(); ++i) {
        const auto placement = static_cast<size_t>(policy[i]);
        ++placed.tensors[placement];
        placed.ops[placement] += static_cast<int64_t>(graph.ProducersOf(graph.recomputable()[i]).size());
      }
    }
  }
  return placed;
}

std::string StoredText(const Placed& placed) {
  const int64_t all = std::accumulate(placed.tensors.begin(), placed.tensors.end(), int64_t{0});
  const int64_t stored = placed.tensors[static_cast<size_t>(Placement::kStore)];
  return stored == all ? "all" : absl::StrCat(stored, " of ", all);
}

std::string RecomputedText(const Placed& placed) {
  std::string text;
  for (size_t i = 0; i < kPlacementCount; ++i) {
    if (placed.ops[i] == 0 || !IsRecomputed(static_cast<Placement>(i))) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", EnumName(static_cast<Placement>(i)), ":", placed.ops[i]);
  }
  return text.empty() ? "-" : text;
}

// One entry for each sequence of consecutive layers of a slice that have the same policy: "layers 0-2", and the policy.
std::vector<std::pair<std::string, std::string>> PolicyRuns(const Plan& plan, size_t stage) {
  std::vector<std::pair<std::string, std::string>> runs;
  const LayerKinds kinds(plan.ContextOf(0));
  for (const SlicePlan& slice : plan.stages[stage].slices) {
    const std::vector<LayerPolicy>& layers = slice.policy.layers;
    for (size_t begin = 0, end; begin < layers.size(); begin = end) {
      const int32_t first = slice.first_layer + static_cast<int32_t>(begin);
      const auto same = [&](size_t layer) {
        return layers[layer] == layers[begin] &&
               kinds.IsDense(slice.first_layer + static_cast<int32_t>(layer)) == kinds.IsDense(first);
      };
      for (end = begin + 1; end < layers.size() && same(end);) ++end;
      const LayerGraph& graph = kinds.GraphOf(first);
      const StagePolicy group{std::vector<LayerPolicy>(end - begin, PolicyIn(graph, kinds.graph(), layers[begin]))};
      const std::string text = StagePolicyText(graph, group, first);
      const size_t colon = text.find(": ");
      runs.emplace_back(text.substr(0, colon), text.substr(colon + 2));
    }
  }
  return runs;
}

std::string PolicyLines(const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    for (const auto& [layers, policy] : PolicyRuns(plan, i)) {
      absl::StrAppend(&text, "stage ", i, ", ", layers, ": ", policy, "\n");
    }
    const StagePlan& stage = plan.stages[i];
    for (const SlicePlan& slice : stage.slices) {
      const std::string inputs = RecomputedInputsText(slice.policy, slice.first_layer);
      if (!inputs.empty()) absl::StrAppend(&text, "stage ", i, ", inputs recomputed: ", inputs, "\n");
    }
  }
  return text;
}

std::string Prediction(const Plan& plan) {
  const PlanFigures figures = FiguresOf(plan);
  const Nanos recomputed = figures.hidden + figures.exposed;
  const std::string recomputation = recomputed.value == 0
                                        ? "nothing recomputed"
                                        : PercentText(figures.hidden.value, recomputed.value) + " of recomputation hidden";
  return absl::StrCat("predicted: step ", FormatDuration(plan.step), ", ", figures.tokens_per_second, " tokens/s, bubble ",
                      PercentText(figures.stall.value, plan.step.value * static_cast<int64_t>(plan.stages.size())), ", ",
                      recomputation, plan.measured_profile ? " (measured profile)\n" : " (stated profile)\n");
}

// What an exact solver proved: one row for each stage with a proof.
Table ProofTable(const Plan& plan) {
  Table table{.columns = {Right("stage"),
                          Right("exposed", "By the stage's policies, of one microbatch and by the solvers' model"),
                          Right("bound", "No policies in that memory expose less"),
                          Right("gap", "Share of the exposed time above the bound"),
                          {"proof", Align::kLeft,
                           "optimal; time limit: the solver ran out of time; model only: its solution did not hold, or was "
                           "no faster, as a program"}}};
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const std::optional<StageProof>& proof = plan.stages[i].proof;
    if (!proof) continue;
    table.rows.push_back({absl::StrCat(i), FormatDuration(proof->exposed), FormatDuration(proof->bound),
                          PercentText((proof->exposed - proof->bound).value, proof->exposed.value),
                          ProofStatusName(proof->status)});
  }
  return table;
}

// Notes about features of the model that the plan ignores, or replaces by other features.
std::string ModelNotes(const ModelSpec& model) {
  std::string text;
  const auto note = [&](const auto&... parts) { absl::StrAppend(&text, "note: ", parts..., "\n"); };
  if (const PlanOnlyFeatures lacked = LackedFeatures(model); lacked != 0) {
    note("planned as the nearest layers of ", EnumName(model.family),
         "; the engine does not train it, for it lacks: ", PlanOnlyText(lacked));
  }
  if (const PlanOnlyFeatures left_out = model.plan_only & kLeftOutFeatures; left_out != 0) {
    note("planned without parts of the model: ", PlanOnlyText(left_out));
  }
  if (model.matmul_type != MatmulType::kModel) {
    note("planned with products of linears in ", EnumName(model.matmul_type), ", which the engine does not compute");
  }
  if (model.gradient_dtype != DataType::kFloat32) {
    note("planned with gradients that are summed in ", EnumName(model.gradient_dtype), "; the engine sums them in float32");
  }
  if (model.latent.any()) note("planned with latent attention (model.latent), which the engine does not train");
  if (model.moe.router_bias && model.moe.bias_rate == 0) {
    note("the router's biases stay as they are, whatever the load of the experts (model.moe.biasRate 0)");
  }
  if (model.window != 0 && model.seq > model.window) {
    note("attention within a window of ", model.window, " positions is counted as attention to all ", model.seq,
         "; the engine trains sequences of at most ", model.window, " tokens");
  }
  return text;
}

}  // namespace

std::string ModelText(const ModelSpec& model) {
  return absl::StrCat(EnumName(model.family), " with ", model.layers, " layers, hidden ", model.hidden, ", ", model.heads,
                      " heads, sequence ", model.seq);
}

std::vector<std::pair<std::string, std::string>> LayoutFacts(const Plan& plan) {
  return {{"layout", LayoutText(plan.layout)},
          {"ranks", absl::StrCat(plan.layout.ranks())},
          {"micro-batch", absl::StrCat(plan.micro_batch, " × ", plan.microbatches)},
          {"recompute", EnumName(plan.mode)}};
}

std::string LayersText(const Plan& plan, size_t stage) {
  std::string text;
  for (const StageSlice& slice : plan.ContextOf(static_cast<int32_t>(stage)).slices) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", slice.has_embedding ? "embed " : "", slice.first_layer);
    if (slice.layers() > 1) absl::StrAppend(&text, "-", slice.top_layer());
    if (slice.has_head) text += " head";
  }
  return text;
}

Table StageTable(const Plan& plan) {
  const LayerKinds kinds(plan.ContextOf(0));
  Table table{.columns = {Right("stage"),
                          "layers",
                          {"stored", Align::kLeft, "Tensors kept, of those that could be recomputed, over the stage's layers"},
                          {"recomputed ops", Align::kLeft, "Ops of one microbatch that are run again, by window"},
                          Right("hidden", "Recomputation in windows, per step"),
                          Right("exposed", "Recomputation that makes the step longer, per step"),
                          Right("peak", "The arena of each rank: all activations, their gradients and workspace"),
                          Right("limit", "What the arena may be"),
                          Right("states", "Weights, gradients and optimizer states of each rank")}};
  const bool offloads =
      std::any_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& s) { return s.host.value > 0; });
  if (offloads) {
    table.columns.push_back(Right("offloaded", "Tensors that wait in the host's memory, over the stage's layers"));
    table.columns.push_back(Right("host", "Host memory of each rank, for what is offloaded"));
  }
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    const Placed placed = PlacedOf(kinds, stage);
    table.rows.push_back(
        {absl::StrCat(i), LayersText(plan, i), StoredText(placed), RecomputedText(placed),
         FormatDuration(stage.recompute_hidden), FormatDuration(stage.recompute_exposed), FormatBytes(stage.arena),
         plan.activation_limit.value == 0 ? "none" : FormatBytes(plan.activation_limit), FormatBytes(stage.states.total())});
    if (!offloads) continue;
    table.rows.back().push_back(absl::StrCat(placed.tensors[static_cast<size_t>(Placement::kOffload)]));
    table.rows.back().push_back(FormatBytes(stage.host));
  }
  return table;
}

Table PolicyTable(const Plan& plan) {
  Table table{.columns = {Right("stage"), "layers", "policy"}};
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    for (const auto& [layers, policy] : PolicyRuns(plan, i)) table.rows.push_back({absl::StrCat(i), layers, policy});
  }
  return table;
}

PlanFigures FiguresOf(const Plan& plan) {
  PlanFigures figures;
  for (const StagePlan& stage : plan.stages) {
    figures.hidden += stage.recompute_hidden;
    figures.exposed += stage.recompute_exposed;
    figures.stall += stage.stall;
    figures.peak = std::max(figures.peak, stage.arena);
  }
  figures.tokens = int64_t{plan.samples()} * plan.model.seq;
  figures.tokens_per_second =
      static_cast<int64_t>(static_cast<__int128>(figures.tokens) * 1'000'000'000 / std::max<int64_t>(1, plan.step.value));
  return figures;
}

size_t FullestStage(const Plan& plan) {
  const auto total = [](const StagePlan& stage) { return stage.states.total() + stage.arena; };
  const auto fullest = std::max_element(plan.stages.begin(), plan.stages.end(),
                                        [&](const StagePlan& a, const StagePlan& b) { return total(a) < total(b); });
  return static_cast<size_t>(fullest - plan.stages.begin());
}

std::string PercentText(int64_t part, int64_t whole) {
  const __int128 tenths = whole == 0 ? 0 : (static_cast<__int128>(part) * 1000 + whole / 2) / whole;
  return absl::StrCat(static_cast<int64_t>(tenths) / 10, ".", static_cast<int64_t>(tenths) % 10, "%");
}

std::string PlanTable(const Plan& plan) {
  const int32_t ranks = plan.layout.ranks();
  std::string text = absl::StrCat(
      LayoutText(plan.layout), " (", ranks, ranks == 1 ? " rank" : " ranks", "), micro-batch ", plan.micro_batch, " x ",
      plan.microbatches, plan.microbatches == 1 ? " microbatch" : " microbatches", ", recompute ", EnumName(plan.mode), "\n");
  if (plan.empty_places > 0) {
    absl::StrAppend(&text, plan.empty_places, " of the ", plan.samples() + plan.empty_places,
                    " places of the microbatches are empty: the batch has ", plan.samples(), " samples\n");
  }
  if (!plan.nodes.empty()) absl::StrAppend(&text, "nodes, in the order of the ranks: ", NodeRunsText(plan.nodes), "\n");
  absl::StrAppend(&text, "\n");
  absl::StrAppend(&text, TextOf(StageTable(plan)), "\n", PolicyLines(plan), "\n");
  const Table proofs = ProofTable(plan);
  if (!proofs.rows.empty()) {
    absl::StrAppend(&text, "what each stage exposes of a microbatch, by the model, and how little it could:\n", TextOf(proofs),
                    "\n");
  }
  return absl::StrCat(text, ModelNotes(plan.model), Prediction(plan));
}

}  // namespace lynx
