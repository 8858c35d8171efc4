// Measures whole searches (MakePlan without the digest of the plan), from a job and a cluster to a plan with programs, memory
// layout and simulated step. Run it in the repository's root, because it reads the example clusters. The counters say how many
// candidates reached each tier (planner/search/plan_search.h).
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cli/spec/cluster_file.h"
#include "planner/candidates/supported.h"
#include "planner/problem/model_presets.h"
#include "planner/search/plan_search.h"

namespace lynx {
namespace {

struct Setting {
  const char* model;
  const char* cluster;
  int32_t nodes, batch;
};
constexpr Setting kSettings[] = {
    {"gpt-23b", "a100-80gb-nvlink", 4, 256},
    {"gpt-175b", "h100", 512, 1536},
    {"gpt-1t", "h100", 2048, 3072},
};

PlanRequest RequestOf(const Setting& setting, PlanTarget target) {
  PlanRequest request;
  request.target = target;
  request.spec.model = FindModelPreset(setting.model)->model;
  absl::StatusOr<cli::ClusterFile> file = cli::ReadClusterFile(std::string("examples/clusters/") + setting.cluster + ".yaml");
  if (!file.ok()) {
    std::fprintf(stderr, "%s: run this in the repository's root\n", std::string(file.status().message()).c_str());
    std::exit(2);
  }
  request.cluster = std::move(file->cluster);
  request.cluster.groups[0].nodes = setting.nodes;
  request.spec.train.global_batch = setting.batch;
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = request.cluster.devices();
  return request;
}

void Run(benchmark::State& state, const PlanRequest& request) {
  SearchCounts counts;
  std::string layout = "nothing fits";
  double step = 0;
  for (auto _ : state) {
    const auto candidates = SupportedCandidates(request);
    PlanCaches caches(request);
    PlanSearch search(request, *candidates, caches);
    const std::optional<Plan> plan = search.Fastest();
    benchmark::DoNotOptimize(plan);
    counts = search.counts();
    if (plan) {
      layout = LayoutText(plan->layout);
      step = Seconds(plan->step);
    }
  }
  state.counters["candidates"] = static_cast<double>(counts.candidates);
  state.counters["bounded"] = static_cast<double>(counts.bounded);
  state.counters["guessed"] = static_cast<double>(counts.guessed);
  state.counters["simulated"] = static_cast<double>(counts.simulated);
  state.counters["step"] = step;
  state.SetLabel(layout);
}

// Argument: an index of kSettings.
void BM_SearchEngine(benchmark::State& state) { Run(state, RequestOf(kSettings[state.range(0)], PlanTarget::kLynxEngine)); }
void BM_SearchAny(benchmark::State& state) { Run(state, RequestOf(kSettings[state.range(0)], PlanTarget::kAnyFramework)); }
BENCHMARK(BM_SearchEngine)->DenseRange(0, 2)->Unit(benchmark::kMillisecond)->MinTime(0.1);
BENCHMARK(BM_SearchAny)->DenseRange(0, 2)->Unit(benchmark::kMillisecond)->MinTime(0.1);

// A layout with these sizes and this schedule. The fields that are not set here are left to the planner.
ParallelSpec InALayout(int32_t tp, int32_t pp) {
  return {.tp = tp,
          .pp = pp,
          .dp = 1,
          .virtual_stages = 1,
          .sequence_parallel = Choice::kOff,
          .schedule = ScheduleKind::kOneForwardOneBackward};
}

// One plan in a given layout: 23B on 32 devices, tensor-parallel over 8, 4 stages, 32 microbatches. Argument:
// activation memory in GiB; 0: no limit.
void BM_Plan23b(benchmark::State& state) {
  PlanRequest request = RequestOf(kSettings[0], PlanTarget::kLynxEngine);
  request.spec.train.global_batch = 32;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = InALayout(8, 4);
  request.spec.resources.activation_memory_per_rank = kGiB * state.range(0);
  Run(state, request);
}
BENCHMARK(BM_Plan23b)->Arg(0)->Arg(8)->Arg(4)->Unit(benchmark::kMillisecond)->MinTime(0.2);

// Plans of the same model with other numbers of layers and stages, 64 microbatches, and 2 GiB of activation memory for each
// layer of a stage. Arguments: layers, stages.
void BM_PlanGrows(benchmark::State& state) {
  PlanRequest request = RequestOf(kSettings[0], PlanTarget::kLynxEngine);
  request.spec.model.layers = static_cast<int32_t>(state.range(0));
  request.spec.train.global_batch = 64;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = InALayout(8, static_cast<int32_t>(state.range(1)));
  request.cluster.groups[0].nodes = static_cast<int32_t>(state.range(1));
  request.cluster.groups[0].memory_per_device = Bytes(0);
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = request.cluster.devices();
  request.spec.resources.activation_memory_per_rank = kGiB * 2 * state.range(0) / state.range(1);
  Run(state, request);
}
BENCHMARK(BM_PlanGrows)
    ->Args({16, 4})
    ->Args({32, 4})
    ->Args({64, 4})
    ->Args({128, 4})
    ->Args({128, 8})
    ->Args({128, 16})
    ->Args({128, 32})
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.1);

}  // namespace
}  // namespace lynx
