// Defines small models and profiles with round numbers for the tests of costs, simulation and planning.
#ifndef LYNX_TESTS_PLANNER_PLAN_PLAN_FIXTURES_H_
#define LYNX_TESTS_PLANNER_PLAN_PLAN_FIXTURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/cost/cost_model.h"
#include "planner/cost/hardware_profile.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// Returns a model whose x has 4 * micro_batch * 10 * 16 = 640 * micro_batch bytes.
inline ModelSpec TinyModel(int32_t layers) {
  return {.layers = layers, .hidden = 16, .heads = 4, .ffn = 64, .seq = 10, .vocab = 32, .dropout = 0.1};
}

// Returns a profile in which every op takes `op_time` forward, twice `op_time` for its input gradient, and `op_time` for its
// weight gradient. The profile has these times as measurements for each shape that the tests use. Links move one byte per
// nanosecond and have no latency. Communication does not slow down computation.
inline HardwareProfile RoundProfile(const ModelSpec& model, Nanos op_time = Nanos(100)) {
  HardwareProfile profile;
  profile.device_kind = "test";
  profile.flops_per_second = 1'000'000'000;
  profile.memory_bytes_per_second = 1'000'000'000;
  profile.intra_node = profile.inter_node = {Nanos(0), 1'000'000'000};
  for (int32_t tp : {1, 2, 4}) {
    for (int32_t micro_batch : {1, 2, 4, 8}) {
      ShapeTimes times{.shape = ShapeOf(model, ParallelLayout{.tp = tp}, micro_batch)};
      for (const OpInfo& info : LayerGraph::Of({}).ops()) {
        times.ops[static_cast<int>(info.op)] = {op_time, op_time * 2, info.has_weight_pass ? op_time : Nanos(0)};
      }
      times.optimizer_per_mega_parameter = Nanos(1000);
      profile.measured.push_back(times);
    }
  }
  return profile;
}

// Returns the profile with the times of this layout and micro-batch as if a device of the profile `truth` had measured them.
inline HardwareProfile WithMeasured(HardwareProfile profile, const HardwareProfile& truth, const ModelSpec& model,
                                    const ParallelLayout& layout, int32_t micro_batch) {
  const CostModel costs(truth, model, layout, micro_batch, 4);
  ShapeTimes& times = profile.measured.emplace_back();
  times.shape = ShapeOf(model, layout, micro_batch);
  for (const OpInfo& info : LayerGraph::Of(times.shape).ops()) {
    OpTimes& of_op = times.ops[static_cast<size_t>(info.op)];
    of_op.forward = costs.OpTime(info.op, Pass::kForward);
    of_op.backward = costs.OpTime(info.op, Pass::kBackward);
    if (info.has_weight_pass) of_op.weight = costs.OpTime(info.op, Pass::kWeight);
  }
  times.optimizer_per_mega_parameter = costs.OptimizerTime(1 << 20);
  return profile;
}

// A device whose rates are a third of the stated ones.
inline HardwareProfile ThirdOf(HardwareProfile profile) {
  profile.flops_per_second /= 3;
  profile.memory_bytes_per_second /= 3;
  profile.op_overhead = profile.op_overhead * 3;
  return profile;
}

inline StageContext TinyContext(const ModelSpec& model, const ParallelLayout& layout, int32_t microbatches, int32_t stage) {
  return {.model = model,
          .layout = layout,
          .micro_batch = 1,
          .microbatches = microbatches,
          .pipeline_rank = stage,
          .slices = {SliceOf(layout, stage, model.layers * stage / layout.pp, model.layers * (stage + 1) / layout.pp)}};
}

inline Program Parse(const std::string& text) {
  absl::StatusOr<Program> program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? *program : Program{};
}

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_PLAN_PLAN_FIXTURES_H_
