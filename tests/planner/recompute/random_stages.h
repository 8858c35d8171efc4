// Makes random stages of transformers, to compare HEU with OPT.
#ifndef LYNX_TESTS_PLANNER_RECOMPUTE_RANDOM_STAGES_H_
#define LYNX_TESTS_PLANNER_RECOMPUTE_RANDOM_STAGES_H_

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <vector>

#include "planner/recompute/stage_heu.h"
#include "planner/recompute/stage_problem.h"
#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {

// Returns a transformer stage of at most `most_layers` layers on a random device and network, with random shape and memory.
// `mixed`: about every second stage has sequence parallelism, and therefore four windows per pass instead of two. `weave`:
// which passes run side by side. If some do, each window has only the time that the other pass does not use.
inline RecomputeProblem RandomStage(RandomNumbers& number, int32_t most_layers, bool mixed = false,
                                    WeaveMode weave = WeaveMode::kOff) {
  const auto pick = [&](std::initializer_list<int32_t> choices) {
    return *(choices.begin() + number(0, static_cast<int64_t>(choices.size()) - 1));
  };
  ModelSpec model{.layers = 48, .hidden = pick({1024, 2048, 4096, 8192}), .heads = 32, .seq = pick({1024, 2048, 4096})};
  model.family = number.OneIn(2) ? ModelFamily::kLlama : ModelFamily::kGpt;
  model.attention = number.OneIn(2) ? AttentionKernel::kFused : AttentionKernel::kUnfused;
  model.dtype = DataType::kBfloat16;
  model.ffn = 4 * model.hidden;
  model.dropout = model.family == ModelFamily::kLlama ? 0 : 0.1;
  HardwareProfile profile;
  profile.device_kind = "random";
  profile.flops_per_second = number(20, 400) * 1'000'000'000'000;
  profile.memory_bytes_per_second = number(500, 3000) * 1'000'000'000;
  profile.intra_node = profile.inter_node = {Nanos(number(2, 20) * 1000), number(10, 300) * 1'000'000'000};
  profile.overlap_slowdown_permille = static_cast<int32_t>(number(1000, 1500));
  ParallelLayout layout{.tp = pick({2, 4, 8})};
  layout.sequence_parallel = mixed && number.OneIn(2);
  layout.weave = weave;
  const int32_t micro_batch = pick({1, 2});
  const CostModel costs(profile, model, layout, micro_batch, layout.tp);
  StageTraits traits{.layers = static_cast<int32_t>(number(1, most_layers)), .in_flight = static_cast<int32_t>(number(1, 8))};
  traits.below_head = traits.in_flight == 1;
  RecomputeProblem problem = MakeStageProblem(costs, ShapeOf(model, layout, micro_batch), traits);
  const Bytes least = StageHeu(problem).LeastBytes(problem.layers);
  problem.budget = least + (StoreAllBytes(problem) - least) / 1000 * number(0, 1000);
  return problem;
}

// Returns a transformer stage on a device whose link to the host is slow or fast compared with the stage's passes.
inline RecomputeProblem RandomOffloadStage(RandomNumbers& number, int32_t most_layers) {
  RecomputeProblem problem = RandomStage(number, most_layers);
  problem.resident = problem.layers >= 4 ? 1 : 2;
  problem.in_flight = problem.resident + static_cast<int32_t>(number(1, 8));
  const int64_t picoseconds_per_byte = number(1, 100);
  Bytes layer;
  for (RecomputeItem& item : problem.items) {
    item.copy_out = item.copy_in = Nanos(10'000) + Nanos(item.bytes.value / 1000 * picoseconds_per_byte);
    layer += item.bytes;
  }
  const Nanos all(layer.value / 1000 * picoseconds_per_byte);
  problem.copy_out = problem.copy_in = all * problem.layers / 100 * number(0, 150);
  problem.host_budget = layer * problem.layers * problem.in_flight / 100 * number(1, 120);
  const Bytes least = StageHeu(WithoutOffloading(problem)).LeastBytes(problem.layers);
  problem.budget = least + (StoreAllBytes(problem) - least) / 1000 * number(0, 1000);
  return problem;
}

// Collects by how many percent the exposed time of HEU exceeds that of proven optima.
struct HeuGaps {
  std::vector<double> percent;
  int not_proven = 0;

  void Add(Nanos heu, Nanos best) {
    const double above = static_cast<double>((heu - best).value);
    const double never = std::numeric_limits<double>::infinity();
    percent.push_back(above == 0 ? 0 : best.value == 0 ? never : 100 * above / static_cast<double>(best.value));
  }
  double At(double share) const {
    std::vector<double> values = percent;
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[std::min(values.size() - 1, static_cast<size_t>(share * values.size()))];
  }
  void Print(const char* name) const {
    const auto equal = std::count(percent.begin(), percent.end(), 0);
    std::printf(
        "%s: %zu proven, %d not; HEU equals OPT in %ld; above it in %%: median %.3f, 95th percentile %.3f, "
        "99th %.3f, worst %.3f\n",
        name, percent.size(), not_proven, static_cast<long>(equal), At(0.5), At(0.95), At(0.99), At(1));
  }
};

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_RECOMPUTE_RANDOM_STAGES_H_
