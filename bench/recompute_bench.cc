// HEU (the heuristic for recomputation) and OPT (the exact MILP) on one stage of a GPT-23B with unfused attention (50 layers of
// width 6144 and 48 heads, sequence 2048, micro-batch 1), tensor-parallel over 8 devices like an A100, with a stated link.
// Arguments: layers of the stage; microbatches in flight; the link's GB/s; the memory budget in percent: 0 is the least memory
// that HEU can reach, 100 stores everything.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>

#include "planner/opt/stage_opt.h"
#include "planner/recompute/stage_heu.h"
#include "planner/recompute/stage_problem.h"

namespace lynx {
namespace {

RecomputeProblem Stage(const benchmark::State& state, DropoutMasks masks = DropoutMasks::kRegenerated, Nanos stall = Nanos(0)) {
  const ModelSpec model{.layers = 50,
                        .hidden = 6144,
                        .heads = 48,
                        .ffn = 4 * 6144,
                        .seq = 2048,
                        .vocab = 51200,
                        .dropout = 0.1,
                        .dtype = DataType::kBfloat16,
                        .dropout_masks = masks};
  HardwareProfile profile;
  profile.flops_per_second = 250'000'000'000'000;
  profile.memory_bytes_per_second = 1'500'000'000'000;
  profile.intra_node = profile.inter_node = {Nanos(10'000), state.range(2) * 1'000'000'000};
  profile.overlap_slowdown_permille = 1250;
  const ParallelLayout layout{.tp = 8};
  const CostModel costs(profile, model, layout, 1, 8);
  RecomputeProblem problem = MakeStageProblem(
      costs, ShapeOf(model, layout, 1),
      {.layers = static_cast<int32_t>(state.range(0)), .in_flight = static_cast<int32_t>(state.range(1)), .stall = stall});
  const StagePolicy stored{std::vector<LayerPolicy>(static_cast<size_t>(problem.layers))};
  const Bytes most = EvaluateStage(problem, stored)->bytes();
  const Bytes least = StageHeu(problem).LeastBytes(problem.layers);
  problem.budget = least + (most - least) / 100 * state.range(3);
  return problem;
}

// Measures the Pareto fronts and the mix of their points, for a stage about which nothing is known yet.
void BM_HeuStage(benchmark::State& state) {
  const RecomputeProblem problem = Stage(state);
  Nanos exposed;
  for (auto _ : state) {
    exposed = StageHeu(problem).Best(problem.layers, problem.budget)->value.exposed;
  }
  state.counters["exposed_us"] = static_cast<double>(exposed.value) * 1e-3;
}
BENCHMARK(BM_HeuStage)->ArgsProduct({{10}, {4}, {50, 200}, {20, 50}})->Args({50, 4, 200, 30});

// Measures the same as BM_HeuStage with stored dropout masks, as in the presets: 11 items instead of 8. The fifth argument is
// the stage's stall in microseconds.
void BM_HeuStageWithMasks(benchmark::State& state) {
  const RecomputeProblem problem = Stage(state, DropoutMasks::kStored, Nanos(state.range(4) * 1000));
  for (auto _ : state) benchmark::DoNotOptimize(StageHeu(problem).Best(problem.layers, problem.budget));
}
BENCHMARK(BM_HeuStageWithMasks)->ArgsProduct({{12}, {2, 4}, {200}, {30}, {0, 3500}});

// Measures a further stage of a pipeline, with the same number of layers, another number of microbatches in flight, and a
// budget of its own.
void BM_HeuNextStage(benchmark::State& state) {
  const RecomputeProblem problem = Stage(state);
  const StageHeu first(problem);
  int32_t in_flight = 2;
  for (auto _ : state) {
    in_flight = in_flight % 64 + 2;
    const StageHeu heu = first.ForStage(problem.layers, in_flight, problem.stall);
    const Bytes least = heu.LeastBytes(problem.layers);
    benchmark::DoNotOptimize(heu.Best(problem.layers, least + problem.budget / 100 * state.range(3)));
  }
}
BENCHMARK(BM_HeuNextStage)->ArgsProduct({{10}, {4}, {50, 200}, {20, 50}});

// Measures the mix for another budget, when the Pareto fronts are known already.
void BM_HeuMix(benchmark::State& state) {
  const RecomputeProblem problem = Stage(state);
  const StageHeu heu(problem);
  for (auto _ : state) benchmark::DoNotOptimize(heu.Best(problem.layers, problem.budget));
}
BENCHMARK(BM_HeuMix)->ArgsProduct({{10, 20, 40, 80}, {4}, {200}, {30}});

// Measures StageHeu::Estimate, the function that a search calls most often.
void BM_HeuEstimate(benchmark::State& state) {
  const RecomputeProblem problem = Stage(state);
  const StageHeu heu(problem);
  for (auto _ : state) benchmark::DoNotOptimize(heu.Estimate(problem.layers, problem.budget));
}
BENCHMARK(BM_HeuEstimate)->ArgsProduct({{10, 20, 40, 80}, {4}, {200}, {30}});

// Solves each problem once; the counters say what was proved.
void BM_Opt(benchmark::State& state) {
  const RecomputeProblem problem = Stage(state);
  for (auto _ : state) {
    const absl::StatusOr<OptResult> opt = SolveStage(problem, {.seconds = 60, .least_memory = false});
    if (!opt.ok() || !opt->solution) {
      std::fprintf(stderr, "no solution: %s\n", opt.status().ToString().c_str());
      std::exit(1);
    }
    state.SetLabel(OptStatusName(opt->status));
    state.counters["exposed_us"] = static_cast<double>(opt->solution->value.exposed.value) * 1e-3;
    state.counters["heu_us"] = static_cast<double>(opt->start->value) * 1e-3;
    state.counters["gap_percent"] = 100 * opt->gap();
    state.counters["milps"] = opt->milps;
    state.counters["columns"] = opt->largest_milp;
    state.counters["nodes"] = static_cast<double>(opt->nodes);
  }
}
BENCHMARK(BM_Opt)->ArgsProduct({{10}, {4}, {50, 200}, {10, 20, 30, 40, 60}})->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lynx
