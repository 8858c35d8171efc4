#include "agent/probe.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/meminfo.h"
#include "common/status.h"
#include "node/file.h"

namespace lynx::agent {
namespace {

// The text after the colon of the first "KEY : value" line; "" if there is no such line.
std::string ValueOf(const std::string& text, const std::string& key) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || absl::StripAsciiWhitespace(line.substr(0, colon)) != key) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

}  // namespace

bool IsWithdrawn(const NodeDevice& device, const std::vector<NodeCondition>& conditions) {
  return std::any_of(conditions.begin(), conditions.end(), [&](const NodeCondition& condition) {
    return condition.withdrawn && !device.uuid.empty() && condition.device == device.uuid;
  });
}

Bytes OfferedMemory(const NodeDevice& device, Bytes nccl_memory) {
  if (device.reserved == Bytes(0)) return device.memory;
  const Bytes needed = device.process_memory + nccl_memory;
  return std::max(Bytes(0), device.memory - std::max(Bytes(0), needed - device.reserved));
}

absl::StatusOr<Bytes> HostMemoryForOffloading() {
  LYNX_ASSIGN_OR_RETURN(const std::string meminfo, ReadFile("/proc/meminfo"));
  return AvailableMemory(meminfo) * 4 / 5;
}

std::string CpuModel(const std::string& cpuinfo) {
  const std::string model = ValueOf(cpuinfo, "model name");
  return model.empty() ? "unknown" : model;
}

absl::StatusOr<std::vector<int32_t>> UsableCores(const std::vector<int32_t>& wanted) {
  const std::vector<int32_t> available = AvailableCores();
  const std::vector<int32_t> cores = wanted.empty() ? available : wanted;
  if (cores.empty()) return absl::FailedPreconditionError("this process may not run on any core");
  for (const int32_t core : cores) {
    if (std::find(available.begin(), available.end(), core) == available.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("core ", core, " may not be used here; available are ", absl::StrJoin(available, ","), ", see --cores"));
    }
  }
  return cores;
}

absl::StatusOr<std::vector<NodeDevice>> CpuProbe::Find() {
  LYNX_ASSIGN_OR_RETURN(const std::vector<int32_t> cores, UsableCores(options_.cores));
  const int64_t most = kMaxDevices;
  const int64_t count = options_.devices > 0 ? options_.devices : std::min<int64_t>(most, std::ssize(cores));
  if (count > most) {
    return absl::InvalidArgumentError(absl::StrCat("--devices ", count, " is more than a node may have, ", most));
  }
  LYNX_ASSIGN_OR_RETURN(const std::string cpuinfo, ReadFile("/proc/cpuinfo"));
  LYNX_ASSIGN_OR_RETURN(const std::string meminfo, ReadFile("/proc/meminfo"));
  Bytes memory = options_.memory_per_device;
  if (memory == Bytes(0)) memory = AvailableMemory(meminfo) * 4 / 5 / count;
  std::vector<NodeDevice> devices;
  for (int32_t i = 0; i < count; ++i) {
    devices.push_back({.index = i,
                       .kind = DeviceKind::kCpu,
                       .model = CpuModel(cpuinfo),
                       .memory = memory,
                       .cores = {cores[static_cast<size_t>(i) % cores.size()]}});
  }
  return devices;
}

}  // namespace lynx::agent
