#include "planner/report/framework_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/units.h"
#include "planner/frameworks/layer_repeat.h"
#include "planner/problem/flops.h"
#include "planner/recompute/recompute_modules.h"
#include "planner/report/plan_table.h"

namespace lynx {
namespace {

constexpr double kTera = 1e12;

// The part of the pipeline's time in which the rank with the most layers recomputes.
Nanos RecomputeOfStep(const FrameworkPlan& plan) { return plan.OfLayers(&LayerEstimate::recompute); }

int64_t Samples(const StepRequest& request) { return int64_t{request.micro_batch} * request.microbatches * request.layout.dp; }

const char* GradientMeaning(const FrameworkPlan& plan) {
  if (plan.request.model.gradient_dtype == DataType::kFloat32) return "summed in 32 bits";
  return plan.request.traits.gathers_from_master ? "reduced in 16 bits, shards in 32" : "summed in 16 bits";
}

// The recomputation as the framework calls it.
std::string RecomputationName(const StepRequest& request) {
  const bool by_op = request.recompute == RecomputeMode::kBalanced &&
                     CheckpointsByOp(ShapeOf(request.model, request.layout, request.micro_batch), request.traits);
  return by_op ? absl::StrCat(EnumName(request.recompute), " (selective_ac_option op)")
               : RecomputeText(request.recompute, request.modules);
}

std::string Heading(const FrameworkPlan& plan) {
  const StepRequest& request = plan.request;
  return absl::StrCat(EnumName(plan.framework), ": ", LayoutText(request.layout), " (", request.layout.ranks(),
                      " ranks), micro-batch ", request.micro_batch, " x ", request.microbatches, " microbatches, recompute ",
                      RecomputationName(request), "\n");
}

std::string FitText(const FrameworkPlan& plan) {
  const std::string peak = FormatBytes(plan.peak()), device = FormatBytes(plan.device_memory);
  if (plan.device_memory.value == 0) return "memory: at most " + peak + " on a device; the memory of a device is not known\n";
  if (plan.fits()) return "memory: at most " + peak + " of " + device + " on a device\n";
  return absl::StrCat("memory: does not fit; the fullest device needs ", peak, ", ",
                      FormatBytes(plan.peak() - plan.device_memory), " more than it has\n");
}

std::string MemoryJson(const MemoryEstimate& rank) {
  return absl::StrCat("{\"weights\": ", rank.weights.value, ", \"gradients\": ", rank.gradients.value,
                      ", \"optimizer\": ", rank.optimizer.value, ", \"activations\": ", rank.activations.value,
                      ", \"transient\": ", rank.transient.value, ", \"workspace\": ", rank.workspace.value,
                      ", \"total\": ", rank.total().value, "}");
}

}  // namespace

Table FrameworkMemoryTable(const FrameworkPlan& plan) {
  Table table{.columns = {"pipeline rank", Right("weights", "in the type of the model"),
                          Right("gradients", GradientMeaning(plan)), Right("optimizer", "32-bit weights and moments"),
                          Right("activations", "kept between the passes of all microbatches in flight"),
                          Right("transient", "alive only while a layer or the loss runs, and what libraries allocate"),
                          Right("total")}};
  for (size_t first = 0, end; first < plan.memory.size(); first = end) {
    const MemoryEstimate& rank = plan.memory[first];
    for (end = first + 1; end < plan.memory.size() && plan.memory[end] == rank;) ++end;
    const std::string name = end - first == 1 ? absl::StrCat(first) : absl::StrCat(first, "-", end - 1);
    table.rows.push_back({Cell(name, Tone::kStrong), FormatBytes(rank.weights), FormatBytes(rank.gradients),
                          FormatBytes(rank.optimizer), FormatBytes(rank.activations),
                          FormatBytes(rank.transient + rank.workspace), FormatBytes(rank.total())});
  }
  return table;
}

Table FrameworkTimeTable(const FrameworkPlan& plan) {
  Table table{.columns = {"part of the step", Right("time"), Right("share")}};
  const auto add = [&](const char* name, Nanos time) {
    if (time.value == 0) return;
    table.rows.push_back({Cell(name, Tone::kStrong), FormatDuration(time), PercentText(time.value, plan.step.step.value)});
  };
  add("passes of the pipeline", plan.step.pipeline);
  add("  of it recomputation", RecomputeOfStep(plan));
  add("gradients over replicas", plan.step.data_reduction);
  add("tied embedding", plan.step.tied_embedding);
  add("optimizer", plan.step.optimizer);
  add("step", plan.step.step);
  return table;
}

double TokensPerSecond(const FrameworkPlan& plan) {
  return static_cast<double>(Samples(plan.request)) * plan.request.model.seq / Seconds(plan.step.step);
}

double FlopsPerSecondOfDevice(const FrameworkPlan& plan) {
  return StepFlops(plan.request.model, Samples(plan.request), FlopCount::kModel) / Seconds(plan.step.step) /
         plan.request.layout.ranks();
}

std::string FrameworkPlanText(const FrameworkPlan& plan, const HardwareProfile& profile) {
  const double tokens = TokensPerSecond(plan), flops = FlopsPerSecondOfDevice(plan);
  const auto peak = static_cast<double>(profile.FlopsPerSecond(plan.request.model.dtype));
  return absl::StrCat(Heading(plan), "predicted: step ", FormatDuration(plan.step.step), ", ",
                      absl::StrFormat("%.0f tokens/s (%.0f on each device), %.1f TFLOP/s on each device (%.1f%% of the peak)\n",
                                      tokens, tokens / plan.request.layout.ranks(), flops / kTera, 100 * flops / peak),
                      FitText(plan), "\n", TextOf(FrameworkTimeTable(plan)), "\n", TextOf(FrameworkMemoryTable(plan)));
}

std::string FrameworkPlanJson(const FrameworkPlan& plan, const HardwareProfile& profile) {
  const StepRequest& request = plan.request;
  std::string memory;
  for (const MemoryEstimate& rank : plan.memory) absl::StrAppend(&memory, memory.empty() ? "" : ", ", MemoryJson(rank));
  const double flops = FlopsPerSecondOfDevice(plan);
  return absl::StrCat(
      "{\"framework\": ", JsonString(EnumName(plan.framework)), ", \"layout\": ", JsonString(LayoutText(request.layout)),
      ", \"microBatch\": ", request.micro_batch, ", \"microbatches\": ", request.microbatches,
      ", \"recompute\": ", JsonString(EnumName(request.recompute)),
      request.modules.empty() ? "" : absl::StrCat(", \"recomputeModules\": ", JsonString(ModulesText(request.modules))),
      ", \"step\": ", plan.step.step.value, ", \"pipeline\": ", plan.step.pipeline.value,
      ", \"recomputation\": ", RecomputeOfStep(plan).value, ", \"dataReduction\": ", plan.step.data_reduction.value,
      ", \"tiedEmbedding\": ", plan.step.tied_embedding.value, ", \"optimizer\": ", plan.step.optimizer.value,
      absl::StrFormat(", \"tokensPerSecond\": %.6g", TokensPerSecond(plan)),
      absl::StrFormat(", \"flopsPerSecondOfDevice\": %.6g", flops),
      absl::StrFormat(", \"shareOfPeak\": %.4f", flops / static_cast<double>(profile.FlopsPerSecond(request.model.dtype))),
      ", \"fits\": ", plan.fits() ? "true" : "false", ", \"deviceMemory\": ", plan.device_memory.value, ", \"memory\": [",
      memory, "]}");
}

}  // namespace lynx
