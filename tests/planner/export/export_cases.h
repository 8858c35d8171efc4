// Defines hand-written jobs and plans for the tests of exports.
#ifndef LYNX_TESTS_PLANNER_EXPORT_EXPORT_CASES_H_
#define LYNX_TESTS_PLANNER_EXPORT_EXPORT_CASES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "planner/export/export.h"

namespace lynx {

inline ExportTarget TargetOf(ExportFormat format, const std::string& version) {
  const absl::StatusOr<ExportTarget> target = FindTarget(format, version);
  EXPECT_TRUE(target.ok()) << target.status();
  return target.value_or(NewestTarget(format));
}

// A hand-written job and plan with four layers per stage and without recomputation.
struct Case {
  JobSpec spec;
  Plan plan;

  explicit Case(ParallelLayout layout = {}, std::vector<int32_t> layers = {}) {
    if (layers.empty()) layers.assign(static_cast<size_t>(PipelineOf(layout).pieces()), 4);
    spec.name = "job";
    spec.data = {DataKind::kMegatron, "/data/corpus_text"};
    spec.train.steps = 1000;
    spec.train.warmup_steps = 20;
    spec.train.min_lr = 3e-5;
    const int32_t all = std::accumulate(layers.begin(), layers.end(), 0);
    spec.model = {.layers = all,
                  .hidden = 64,
                  .heads = 8,
                  .ffn = 256,
                  .seq = 32,
                  .vocab = 1000,
                  .dropout = 0.1,
                  .dropout_masks = DropoutMasks::kStored};
    plan.model = spec.model;
    plan.layout = layout;
    plan.micro_batch = 2;
    plan.microbatches = 8;
    plan.mode = RecomputeMode::kNone;
    plan.step = Nanos(1'000'000'000);
    plan.digest = "0123456789abcdef";
    for (const StageContext& context : PipelineContexts(plan.model, layout, 2, 8, layers)) {
      StagePlan& stage = plan.stages.emplace_back();
      for (const StageSlice& slice : context.slices) {
        stage.slices.push_back({slice.stage, slice.first_layer, slice.end_layer, {}});
      }
    }
    Recompute(RecomputeMode::kNone);
  }

  // Sets the mode for the first `layers` layers of each stage (0: all layers). The other layers store everything.
  Case& Recompute(RecomputeMode mode, int32_t layers = 0, const std::vector<RecomputeModule>& modules = {}) {
    const LayerGraph& graph = plan.ContextOf(0).graph();
    for (StagePlan& stage : plan.stages) {
      for (SlicePlan& slice : stage.slices) {
        const int32_t count = slice.layers();
        slice.policy = NamedPolicy(graph, RecomputeMode::kNone, count);
        const LayerPolicy policy = NamedPolicy(graph, mode, 1, modules).layers[0];
        for (int32_t i = 0; i < (layers == 0 ? count : std::min(layers, count)); ++i) slice.policy.layers[i] = policy;
      }
    }
    return *this;
  }

  Case& Model(void (*change)(ModelSpec&)) {
    change(spec.model);
    plan.model = spec.model;
    return Recompute(RecomputeMode::kNone);
  }

  ExportedPlan Export(const ExportTarget& target) const {
    const auto exported = ExportPlan(target, {.spec = spec}, plan);
    EXPECT_TRUE(exported.ok()) << exported.status();
    return exported.value_or(ExportedPlan{});
  }
  ExportedPlan Export(ExportFormat format) const { return Export(NewestTarget(format)); }
  std::string Text(const ExportTarget& target) const { return Export(target).files.front().text; }
  std::string Text(ExportFormat format) const { return Text(NewestTarget(format)); }
};

// Returns the lines of the argument array. Each line has a flag, or a flag and its value.
inline std::vector<std::string> Arguments(const Case& one, const ExportTarget& target = NewestTarget(ExportFormat::kMegatron)) {
  std::string text = one.Text(target);
  text = text.substr(text.find("MEGATRON_ARGS=(") + 15);
  std::istringstream lines(text);
  std::vector<std::string> words;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (line.empty() || line[0] == '#' || line[0] == ')') continue;
    words.push_back(line);
  }
  return words;
}

inline Case Llama() {
  return Case({.tp = 2}).Model([](ModelSpec& m) {
    m.family = ModelFamily::kLlama;
    m.kv_heads = 4;
    m.dropout = 0;
    m.attention = AttentionKernel::kFused;
    m.dtype = DataType::kBfloat16;
    m.tied_embeddings = true;
  });
}
// 8 experts, 2 for each token, whose rows have room for 1.25 times the even share.
inline Case Mixture(ParallelLayout layout = {.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true}) {
  return Case(layout).Model([](ModelSpec& m) {
    m.family = ModelFamily::kLlama;
    m.kv_heads = 4;
    m.dropout = 0;
    m.attention = AttentionKernel::kFused;
    m.dtype = DataType::kBfloat16;
    m.moe = {.experts = 8, .top_k = 2, .ffn = 96, .capacity = 1.25};
  });
}
// A case with latent attention, a block that every token passes, and a first layer without experts.
inline Case Deepseek(ParallelLayout layout = {.dp = 4, .ep = 4}) {
  return Mixture(layout).Model([](ModelSpec& m) {
    m.kv_heads = 0;
    m.head_dim = 24;
    m.tied_embeddings = false;
    m.norm_epsilon = 1e-6;  // that of the norms of latents
    m.rotary.dims = 8;
    m.latent = {.query_rank = 48, .kv_rank = 32, .value_dim = 16};
    m.moe.shared_ffn = 192;
    m.moe.dense_layers = 1;
  });
}
inline Case Bfloat16(ParallelLayout layout) {
  return Case(layout).Model([](ModelSpec& m) { m.dtype = DataType::kBfloat16; });
}
inline Case WithZero(ZeroStage zero) { return Case({.dp = 4, .zero = zero}); }

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_EXPORT_EXPORT_CASES_H_
