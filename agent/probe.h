// DeviceProbe: finds the devices of a node on which ranks may run. One implementation per kind of device.
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

namespace lynx {

struct NodeDevice {
  int32_t index = 0;                   // 0, 1, ... on the node
  DeviceKind kind = DeviceKind::kCpu;  // the same of all that a node offers
  std::string model;                   // "AMD EPYC ...", "NVIDIA H200"
  Bytes memory;                        // that a rank on it may use
  std::vector<int32_t> cores;          // that a rank on it is pinned to; devices may share cores
  std::string uuid, detail;            // of a GPU, as in proto/lynx/v1/cluster.proto
  // For a GPU. reserved: the part of its memory that `memory` leaves out; 0: the user stated it, so it stays as it is.
  // process_memory: the part of that which an idle process took.
  Bytes reserved, process_memory;
  std::vector<int32_t> nvlinks, pcie_neighbours;  // as GpuFacts has them
  int32_t numa_node = -1;                         // -1: none, or not known
  bool operator==(const NodeDevice&) const = default;
};

// Whether one of the conditions keeps the device from being offered.
bool IsWithdrawn(const NodeDevice& device, const std::vector<NodeCondition>& conditions);

// The memory of the device that is offered now that NCCL is known to take so much of it: what was reserved for that and a
// rank's process may not be enough.
Bytes OfferedMemory(const NodeDevice& device, Bytes nccl_memory);

// How much of this node's memory GPUs may offload to: 80% of what is available now. NotFound: the system does not say.
absl::StatusOr<Bytes> HostMemoryForOffloading();

class DeviceProbe {
 public:
  virtual ~DeviceProbe() = default;
  // In the order of their index. At least one, or an error that says what is missing.
  virtual absl::StatusOr<std::vector<NodeDevice>> Find() = 0;
};

inline constexpr int kMaxDevices = 64;

struct CpuProbeOptions {
  int64_t devices = 0;         // 0 = as many as cores, at most kMaxDevices
  std::vector<int32_t> cores;  // empty = all that this process may use
  Bytes memory_per_device;     // 0 = an equal share of 80% of the memory that is available now
};

// A device is one core, so that a rank has it for itself; with more devices than cores, device i has cores[i %
// count].
class CpuProbe : public DeviceProbe {
 public:
  explicit CpuProbe(CpuProbeOptions options) : options_(std::move(options)) {}
  // InvalidArgument for more than kMaxDevices, or for a core that this process may not use.
  absl::StatusOr<std::vector<NodeDevice>> Find() override;

 private:
  const CpuProbeOptions options_;
};

// Those `wanted`, or all available ones where none are. InvalidArgument: one of them may not be used here.
absl::StatusOr<std::vector<int32_t>> UsableCores(const std::vector<int32_t>& wanted);
// From the text of /proc/cpuinfo: the model name of the first processor; "unknown" when it has none.
std::string CpuModel(const std::string& cpuinfo);

}  // namespace lynx

#endif  // LYNX_AGENT_PROBE_H_
