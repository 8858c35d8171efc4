#include "agent/measurement.h"

#include <algorithm>
#include <map>

#include "agent/gpu_topology.h"
#include "common/check.h"
#include "common/status.h"
#include "node/command.h"
#include "node/file.h"

namespace lynx::agent {
namespace {

void TakeSlower(const ShapeTimes& other, ShapeTimes& times) {
  for (size_t op = 0; op < times.ops.size(); ++op) {
    times.ops[op].forward = std::max(times.ops[op].forward, other.ops[op].forward);
    times.ops[op].backward = std::max(times.ops[op].backward, other.ops[op].backward);
    times.ops[op].weight = std::max(times.ops[op].weight, other.ops[op].weight);
  }
  times.optimizer_per_mega_parameter = std::max(times.optimizer_per_mega_parameter, other.optimizer_per_mega_parameter);
}

}  // namespace

MeasureResult Slowest(const std::vector<MeasureResult>& results) {
  LYNX_CHECK(!results.empty());
  MeasureResult slowest = results.front();
  for (const MeasureResult& result : results) {
    slowest.flops_per_second = std::min(slowest.flops_per_second, result.flops_per_second);
    slowest.bfloat16_flops_per_second = std::min(slowest.bfloat16_flops_per_second, result.bfloat16_flops_per_second);
    slowest.memory_bytes_per_second = std::min(slowest.memory_bytes_per_second, result.memory_bytes_per_second);
    slowest.op_overhead = std::max(slowest.op_overhead, result.op_overhead);
    if (result.host.both_bytes_per_second < slowest.host.both_bytes_per_second) slowest.host = result.host;
    std::map<LayerShape, const ShapeTimes*> measured;
    for (const ShapeTimes& times : result.measured) measured[times.shape] = &times;
    std::erase_if(slowest.measured, [&](const ShapeTimes& times) { return !measured.contains(times.shape); });
    for (ShapeTimes& times : slowest.measured) TakeSlower(*measured[times.shape], times);
  }
  return slowest;
}

absl::StatusOr<MeasureResult> MeasureDevices(const MeasurementOptions& options, const std::vector<NodeDevice>& devices,
                                             const std::vector<LayerShape>& shapes, const WakeEvent& cancel) {
  std::vector<std::vector<std::string>> commands;
  for (const NodeDevice& device : devices) {
    const std::string file = absl::StrCat(options.directory, "/measure-", device.index, ".json");
    LYNX_RETURN_IF_ERROR(WriteFileDurably(file, MeasureRequestText({.shapes = shapes,
                                                                    .device_kind = device.kind,
                                                                    .device_uuid = device.uuid,
                                                                    .cores = device.cores,
                                                                    .budget_seconds = options.budget_seconds})));
    commands.push_back({options.rank_binary, "--measure", file});
  }
  const std::vector<CommandResult> outcomes = RunCommands(commands, options.limit, cancel);
  std::vector<MeasureResult> results;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const std::string device = absl::StrCat("measuring device ", devices[i].index);
    if (!outcomes[i].status.ok()) return Annotate(outcomes[i].status, device);
    absl::StatusOr<MeasureResult> result = ParseMeasureResult(outcomes[i].output);
    if (!result.ok()) return Annotate(result.status(), absl::StrCat(device, ": ", options.rank_binary));
    results.push_back(*std::move(result));
  }
  return Slowest(results);
}

absl::StatusOr<LinkResult> MeasureLink(const MeasurementOptions& options, const std::vector<NodeDevice>& devices,
                                       const WakeEvent& cancel) {
  LYNX_CHECK(!devices.empty());
  const std::string file = absl::StrCat(options.directory, "/measure-link.json");
  LYNX_RETURN_IF_ERROR(
      WriteFileDurably(file, LinkRequestText({.host = options.address,
                                              .cores = {devices.front().cores, devices[devices.size() > 1 ? 1 : 0].cores},
                                              .budget_seconds = options.budget_seconds,
                                              .pacing_bytes_per_second = options.pacing_bytes_per_second,
                                              .encrypt = options.encrypt})));
  const CommandResult outcome = RunCommands({{options.rank_binary, "--measure-link", file}}, options.limit, cancel).front();
  if (!outcome.status.ok()) return Annotate(outcome.status, "measuring the link");
  absl::StatusOr<LinkResult> result = ParseLinkResult(outcome.output);
  if (!result.ok()) return Annotate(result.status(), absl::StrCat("measuring the link: ", options.rank_binary));
  return result;
}

absl::StatusOr<GpuLinksResult> MeasureGpuLinks(const MeasurementOptions& options, const std::vector<NodeDevice>& devices,
                                               const WakeEvent& cancel) {
  LYNX_CHECK(devices.size() >= 2);
  GpuLinksRequest request{.host = options.address, .blocks = LinkBlocks(devices), .budget_seconds = options.budget_seconds};
  for (const NodeDevice& device : devices) {
    request.device_uuids.push_back(device.uuid);
    request.cores.push_back(device.cores);
  }
  const std::string file = absl::StrCat(options.directory, "/measure-gpu-links.json");
  LYNX_RETURN_IF_ERROR(WriteFileDurably(file, GpuLinksRequestText(request)));
  const CommandResult outcome =
      RunCommands({{options.rank_binary, "--measure-gpu-links", file}}, options.limit, cancel).front();
  constexpr char kWhat[] = "measuring the links between the GPUs";
  if (!outcome.status.ok()) return Annotate(outcome.status, kWhat);
  absl::StatusOr<GpuLinksResult> result = ParseGpuLinksResult(outcome.output);
  if (!result.ok()) return Annotate(result.status(), absl::StrCat(kWhat, ": ", options.rank_binary));
  return result;
}

}  // namespace lynx::agent
