// Measures how long it takes to generate, order and time pipeline schedules. Computing the step time of one schedule with new
// costs is the inner loop of a search. The counters count the slots of all ranks.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "planner/schedule/schedule.h"
#include "planner/schedule/schedule_generate.h"
#include "planner/schedule/schedule_order.h"
#include "planner/schedule/schedule_timeline.h"

namespace lynx {
namespace {

// Arguments: kind, ranks p, chunks v, microbatches M.
Schedule Made(const benchmark::State& state) {
  absl::StatusOr<Schedule> schedule =
      GenerateSchedule(static_cast<ScheduleKind>(state.range(0)), static_cast<int32_t>(state.range(1)),
                       static_cast<int32_t>(state.range(2)), static_cast<int32_t>(state.range(3)));
  if (schedule.ok()) return *std::move(schedule);
  std::fprintf(stderr, "%s\n", schedule.status().ToString().c_str());
  std::exit(1);
}

// The times of stages that differ a little, like the stages of a partition.
std::vector<StagePassTimes> Times(const Schedule& schedule) {
  std::vector<StagePassTimes> times;
  for (int64_t stage = 0; stage < schedule.shape.stages(); ++stage) {
    const int64_t more = stage % 7;
    times.push_back({Nanos(1000 + more), Nanos(1100 + more), Nanos(900 + more), Nanos(50)});
  }
  return times;
}

void SetCounters(benchmark::State& state, const Schedule& schedule) {
  int64_t slots = 0;
  for (const std::vector<Slot>& rank : schedule.ranks) slots += static_cast<int64_t>(rank.size());
  state.SetLabel(EnumName(schedule.kind));
  state.counters["slots"] = static_cast<double>(slots);
  state.SetItemsProcessed(state.iterations() * slots);
}

void BM_Generate(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Made(state));
  SetCounters(state, Made(state));
}

void BM_OrderSlots(benchmark::State& state) {
  const Schedule schedule = Made(state);
  for (auto _ : state) benchmark::DoNotOptimize(OrderSlots(schedule));
  SetCounters(state, schedule);
}

void BM_Timeline(benchmark::State& state) {
  const Schedule schedule = Made(state);
  const SlotOrder order = OrderSlots(schedule).value();
  const std::vector<StagePassTimes> times = Times(schedule);
  for (auto _ : state) benchmark::DoNotOptimize(ComputeTimeline(order, times));
  SetCounters(state, schedule);
}

void BM_StepTime(benchmark::State& state) {
  const Schedule schedule = Made(state);
  const SlotOrder order = OrderSlots(schedule).value();
  const std::vector<StagePassTimes> times = Times(schedule);
  TimelineScratch scratch;
  for (auto _ : state) benchmark::DoNotOptimize(StepTime(order, times, scratch));
  SetCounters(state, schedule);
}

void Sizes(benchmark::internal::Benchmark* bench) {
  const auto add = [&](ScheduleKind kind, int64_t p, int64_t v, int64_t m) {
    bench->Args({static_cast<int64_t>(kind), p, v, m});
  };
  for (const int64_t m : {64, 256, 1024}) add(ScheduleKind::kOneForwardOneBackward, 64, 1, m);
  add(ScheduleKind::kInterleaved, 64, 4, 256);
  add(ScheduleKind::kZeroBubble, 64, 1, 1024);
  add(ScheduleKind::kZeroBubbleV, 64, 2, 512);
  add(ScheduleKind::kChimera, 64, 2, 1024);
  bench->Unit(benchmark::kMicrosecond);
}

BENCHMARK(BM_StepTime)->Apply(Sizes);
BENCHMARK(BM_Timeline)->Apply(Sizes);
BENCHMARK(BM_OrderSlots)->Apply(Sizes);
BENCHMARK(BM_Generate)->Apply(Sizes);

}  // namespace
}  // namespace lynx
