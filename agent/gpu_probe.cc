#include "agent/gpu_probe.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "node/command.h"
#include "node/file.h"
#include "node/rate.h"

namespace lynx::agent {
namespace {

std::string DetailOf(const GpuFacts& gpu, int32_t numa_node) {
  std::string text = absl::StrCat("GPU ", gpu.index, ", compute ", gpu.compute_major, ".", gpu.compute_minor);
  if (gpu.max_sm_clock_mhz > 0) absl::StrAppend(&text, ", ", gpu.sm_clock_mhz, " of ", gpu.max_sm_clock_mhz, " MHz");
  if (gpu.pcie_width > 0) absl::StrAppend(&text, ", PCIe ", gpu.pcie_generation, " x", gpu.pcie_width);
  if (numa_node >= 0) absl::StrAppend(&text, ", NUMA node ", numa_node);
  if (!gpu.nvlinks.empty()) absl::StrAppend(&text, ", NVLink to ", absl::StrJoin(gpu.nvlinks, ","));
  return text;
}

// A program sees only one part of a split GPU, whatever it asks for, so the GPU's own memory and speed would be wrong.
std::string SplitText(const GpuFacts& gpu) {
  return absl::StrCat("GPU ", gpu.index, " (", gpu.name, ") is split (MIG), and Lynx uses only whole GPUs: to offer it, run ",
                      "`nvidia-smi -i ", gpu.index, " -mig 0` while nothing runs on it, and restart the agent");
}

// The free memory in the output of --check-cuda.
std::optional<Bytes> FreeBytesIn(const std::string& output) {
  const std::vector<std::string> lines = absl::StrSplit(output, '\n');
  int64_t bytes = 0;
  return lines.size() > 1 && absl::SimpleAtoi(lines[1], &bytes) ? std::optional(Bytes(bytes)) : std::nullopt;
}

}  // namespace

Bytes OwnMemory(Bytes total) { return std::min(Bytes(int64_t{2} << 30), total / 8); }

std::vector<int32_t> ShareOfCores(const std::vector<int32_t>& cores, size_t index, size_t count) {
  if (cores.size() < count) return {cores[index % cores.size()]};
  const auto at = [&](size_t i) { return cores.begin() + static_cast<std::ptrdiff_t>(cores.size() * i / count); };
  return {at(index), at(index + 1)};
}

absl::StatusOr<std::vector<GpuFacts>> GpuProbe::Chosen() {
  if (nvml_.count() == 0) return absl::NotFoundError("the NVIDIA driver has no GPU");
  for (const int32_t index : options_.gpus) {
    if (index < 0 || index >= nvml_.count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--gpus names GPU ", index, "; this machine has ", nvml_.count(), ", from 0"));
    }
  }
  std::vector<GpuFacts> gpus;
  for (int32_t index = 0; index < nvml_.count(); ++index) {
    const bool named = std::find(options_.gpus.begin(), options_.gpus.end(), index) != options_.gpus.end();
    if (!options_.gpus.empty() && !named) continue;
    absl::StatusOr<GpuFacts> facts = nvml_.Facts(index);
    if (!facts.ok()) {
      conditions_.push_back({.kind = "gpu-unusable", .withdrawn = true, .message = std::string(facts.status().message())});
    } else if (facts->is_split) {
      conditions_.push_back({.kind = "gpu-unusable", .device = facts->uuid, .withdrawn = true, .message = SplitText(*facts)});
    } else {
      gpus.push_back(*std::move(facts));
    }
  }
  return gpus;
}

std::vector<GpuProbe::UsableGpu> GpuProbe::Usable(std::vector<GpuFacts> gpus) {
  std::vector<std::vector<std::string>> commands;
  for (const GpuFacts& gpu : gpus) commands.push_back({options_.rank_binary, "--check-cuda", gpu.uuid});
  const std::vector<CommandResult> checks = RunCommands(commands, options_.check_limit, WakeEvent());
  std::vector<UsableGpu> usable;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (checks[i].status.ok()) {
      const Bytes left = FreeBytesIn(checks[i].output).value_or(gpus[i].free_memory);
      usable.push_back({gpus[i], std::max(Bytes(0), gpus[i].free_memory - left)});
      continue;
    }
    conditions_.push_back({.kind = "gpu-unusable",
                           .device = gpus[i].uuid,
                           .withdrawn = true,
                           .message = absl::StrCat("GPU ", gpus[i].index, " (", gpus[i].name,
                                                   ") cannot be used: ", std::string(checks[i].status.message()))});
  }
  return usable;
}

int32_t GpuProbe::NumaNodeOf(const GpuFacts& gpu) const {
  const absl::StatusOr<std::string> text = ReadFile(absl::StrCat(options_.system, "/bus/pci/devices/", gpu.bus, "/numa_node"));
  int32_t node = -1;  // the kernel says -1 if the machine has no NUMA nodes
  return text.ok() && absl::SimpleAtoi(*text, &node) ? node : -1;
}

std::vector<int32_t> GpuProbe::CoresNear(int32_t numa_node, const std::vector<int32_t>& available) const {
  const absl::StatusOr<std::string> text =
      ReadFile(absl::StrCat(options_.system, "/devices/system/node/node", numa_node, "/cpulist"));
  if (numa_node < 0 || !text.ok()) return available;
  const absl::StatusOr<std::vector<int32_t>> listed = ParseCores(std::string(absl::StripAsciiWhitespace(*text)));
  if (!listed.ok()) return available;
  std::vector<int32_t> near;
  for (const int32_t core : available) {
    if (std::find(listed->begin(), listed->end(), core) != listed->end()) near.push_back(core);
  }
  return near.empty() ? available : near;
}

absl::StatusOr<std::vector<NodeDevice>> GpuProbe::Find() {
  conditions_.clear();
  LYNX_ASSIGN_OR_RETURN(std::vector<GpuFacts> gpus, Chosen());
  std::vector<UsableGpu> usable = Usable(std::move(gpus));
  if (usable.empty()) {
    std::set<std::string> reasons;
    for (const NodeCondition& condition : conditions_) reasons.insert(condition.message);
    return absl::FailedPreconditionError(absl::StrJoin(reasons, "; "));
  }
  const size_t most = options_.devices > 0 ? std::min<size_t>(options_.devices, kMaxDevices) : kMaxDevices;
  if (usable.size() > most) usable.resize(most);
  LYNX_ASSIGN_OR_RETURN(const std::vector<int32_t> available, UsableCores(options_.cores));

  // GPUs of one NUMA node share the cores of this NUMA node.
  std::map<std::vector<int32_t>, size_t> sharers, next;
  for (const UsableGpu& gpu : usable) ++sharers[CoresNear(NumaNodeOf(gpu.facts), available)];
  std::vector<NodeDevice> devices;
  for (const UsableGpu& gpu : usable) {
    const std::vector<int32_t> near = CoresNear(NumaNodeOf(gpu.facts), available);
    devices.push_back(DeviceOf(gpu, ShareOfCores(near, next[near]++, sharers[near])));
  }
  return devices;
}

NodeDevice GpuProbe::DeviceOf(const UsableGpu& gpu, std::vector<int32_t> cores) const {
  const GpuFacts& facts = gpu.facts;
  const int32_t numa_node = NumaNodeOf(facts);
  NodeDevice device{.index = facts.index,
                    .kind = DeviceKind::kCuda,
                    .model = facts.name,
                    .memory = options_.memory_per_device,
                    .cores = std::move(cores),
                    .uuid = facts.uuid,
                    .detail = DetailOf(facts, numa_node),
                    .process_memory = gpu.process_memory,
                    .nvlinks = facts.nvlinks,
                    .pcie_neighbours = facts.pcie_neighbours,
                    .numa_node = numa_node};
  if (device.memory > Bytes(0)) return device;
  const bool stated = options_.reserved > Bytes(0);
  const Bytes reserved = stated ? options_.reserved : std::max(OwnMemory(facts.memory), gpu.process_memory);
  device.memory = std::max(Bytes(0), facts.memory - reserved);
  if (!stated) device.reserved = reserved;
  return device;
}

}  // namespace lynx::agent
