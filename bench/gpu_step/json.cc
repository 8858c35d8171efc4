#include <nlohmann/json.hpp>

#include "bench/gpu_step/page.h"
#include "planner/problem/flops.h"
#include "planner/problem/layer_graph.h"

namespace lynx::bench {
namespace {

using nlohmann::json;

json PartsJson(const StepParts& parts) {
  return {{"forward_ns", parts.forward.value},
          {"backward_ns", parts.backward.value},
          {"weight_ns", parts.weight.value},
          {"recompute_ns", parts.recompute.value},
          {"optimizer_ns", parts.optimizer.value}};
}

json CaseJson(const CaseResult& row) {
  json value = {{"name", row.name}, {"round_ms", row.round_ms}, {"step_ms", row.step_ms}};
  if (!row.error.empty()) value["error"] = row.error, value["left_out"] = row.left_out;
  if (row.device_peak) value["device_peak_bytes"] = row.device_peak->value;
  if (row.predicted) {
    value["predicted"] = {{"step_ns", row.predicted->step.value},
                          {"parts", PartsJson(row.predicted->parts)},
                          {"arena_bytes", row.predicted->arena.value},
                          {"states_bytes", row.predicted->states.value}};
  }
  if (row.ready) value["arena_bytes"] = row.ready->arena.value, value["states_bytes"] = row.ready->states.value;
  for (const StepReport& step : row.steps) {
    value["steps"].push_back({{"step", step.step},
                              {"loss", step.loss},
                              {"duration_ns", step.duration.value},
                              {"parts", PartsJson(PartsOf(step))},
                              {"arena_peak_bytes", step.arena_peak.value},
                              {"resident_bytes", step.resident.value}});
  }
  return value;
}

json ModelJson(const ModelResult& result) {
  const BenchModel& model = result.model;
  json value = {{"name", model.name},
                {"micro_batch", model.micro_batch},
                {"microbatches", model.microbatches},
                {"tokens", model.tokens()},
                {"parameters", ModelParameters(model.model)},
                {"step_flops", StepFlops(model.model, model.samples(), FlopCount::kModel)},
                {"step_flops_causal", StepFlops(model.model, model.samples(), FlopCount::kModelCausal)}};
  if (!result.error.empty()) value["error"] = result.error;
  if (!result.ops_error.empty()) value["ops_error"] = result.ops_error;
  value["flops_per_second"] = result.rates.flops_per_second;
  value["bfloat16_flops_per_second"] = result.rates.bfloat16_flops_per_second;
  value["memory_bytes_per_second"] = result.rates.memory_bytes_per_second;
  value["op_overhead_ns"] = result.rates.op_overhead.value;
  value["optimizer_ns"] = result.optimizer.value;
  for (const OpRow& row : result.ops) {
    value["ops"].push_back({{"op", row.op},
                            {"pass", row.pass},
                            {"runs", row.runs},
                            {"time_ns", row.time.value},
                            {"flops", row.flops},
                            {"bytes", row.bytes.value}});
  }
  for (const CaseResult& row : result.cases) value["cases"].push_back(CaseJson(row));
  return value;
}

}  // namespace

std::string Json(const StepBenchResult& result) {
  json value = {{"command", result.command},
                {"date", result.date},
                {"device", result.device.model},
                {"device_detail", result.device.detail},
                {"device_memory_bytes", result.device.memory.value},
                {"driver", result.driver},
                {"rounds", result.rounds},
                {"steps", result.steps},
                {"warmup", result.warmup},
                {"foreign_share", result.foreign_share},
                {"seconds", result.seconds}};
  if (result.peak) value["peak_tflops"] = result.peak->teraflops, value["peak_source"] = result.peak->source;
  for (const ModelResult& model : result.models) value["models"].push_back(ModelJson(model));
  // Error texts of other programs may not be UTF-8.
  return value.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lynx::bench
