// DeviceProbe: finds the devices of a node on which ranks may run. There is one implementation per kind of device.
#ifndef LYNX_AGENT_PROBE_H_
#define LYNX_AGENT_PROBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/node_condition.h"
#include "common/cores.h"
#include "common/units.h"
#include "planner/problem/job_spec.h"

namespace lynx::agent {

struct NodeDevice {
  int32_t index = 0;                   // CPU devices are numbered 0, 1, ...; a GPU has NVML's index
  DeviceKind kind = DeviceKind::kCpu;  // all devices of a node have the same kind
  std::string model;                   // "AMD EPYC ...", "NVIDIA H200"
  Bytes memory;                        // memory that a rank on this device may use
  std::vector<int32_t> cores;          // cores that a rank on it is pinned to; devices may share cores
  std::string uuid, detail;            // for a GPU; see proto/lynx/v1/cluster.proto
  // Only for a GPU. reserved: the part of the GPU's memory that is not in `memory`; 0: the user stated `memory` or the reserved
  // part, so `memory` stays as it is. process_memory: the GPU memory that an idle process took.
  Bytes reserved, process_memory;
  std::vector<int32_t> nvlinks, pcie_neighbours;  // as in GpuFacts
  int32_t numa_node = -1;                         // -1: the machine has no NUMA nodes, or it is not known
  bool operator==(const NodeDevice&) const = default;
};

// True if one of the conditions withdraws the device.
bool IsWithdrawn(const NodeDevice& device, const std::vector<NodeCondition>& conditions);

// The part of the device's memory to offer if NCCL takes `nccl_memory` of it. This is less than device.memory if
// device.reserved is too small for NCCL and an idle rank process together.
Bytes OfferedMemory(const NodeDevice& device, Bytes nccl_memory);

// How much of this node's memory GPUs may offload to: 80% of what is available now. NotFound: /proc/meminfo does not exist.
absl::StatusOr<Bytes> HostMemoryForOffloading();

class DeviceProbe {
 public:
  virtual ~DeviceProbe() = default;
  // The devices in the order of their index: at least one, or an error that says what is missing.
  virtual absl::StatusOr<std::vector<NodeDevice>> Find() = 0;
};

inline constexpr int kMaxDevices = 64;

struct CpuProbeOptions {
  int64_t devices = 0;         // 0 = as many as cores, at most kMaxDevices
  std::vector<int32_t> cores;  // empty = all that this process may use
  Bytes memory_per_device;     // 0 = an equal share of 80% of the memory that is available now
};

// A device is one core, so that a rank has the core for itself. With more devices than cores, device i has cores[i %
// count].
class CpuProbe : public DeviceProbe {
 public:
  explicit CpuProbe(CpuProbeOptions options) : options_(std::move(options)) {}
  // InvalidArgument: more than kMaxDevices, or a core that this process may not use.
  absl::StatusOr<std::vector<NodeDevice>> Find() override;

 private:
  const CpuProbeOptions options_;
};

// The cores in `wanted`, or all available cores if `wanted` is empty. InvalidArgument: this process may not use one of
// them.
absl::StatusOr<std::vector<int32_t>> UsableCores(const std::vector<int32_t>& wanted);
// Finds the model name of the first processor in the text of /proc/cpuinfo; "unknown" if there is no such name.
std::string CpuModel(const std::string& cpuinfo);

}  // namespace lynx::agent

#endif  // LYNX_AGENT_PROBE_H_
