// GpuProbe: finds the GPUs of a node on which ranks can run. These are the GPUs that NVML finds and with which `lynx-rank
// --check-cuda` succeeds. For each wanted GPU that cannot be used, a condition says why. Not thread-safe.
#ifndef LYNX_AGENT_GPU_PROBE_H_
#define LYNX_AGENT_GPU_PROBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/node_condition.h"
#include "agent/nvml.h"
#include "agent/probe.h"

namespace lynx::agent {

struct GpuProbeOptions {
  int64_t devices = 0;         // at most this number of GPUs, those with the lowest indices; 0 = all
  std::vector<int32_t> gpus;   // indices as NVML has them; empty = all
  std::vector<int32_t> cores;  // cores that ranks may use; empty = all that this process may use
  Bytes memory_per_device;     // 0 = all but what is reserved
  // The part of each GPU's memory that is not offered to jobs. 0: the larger of OwnMemory and the memory that the process of
  // `rank_binary --check-cuda` took on this GPU.
  Bytes reserved;
  // The command `rank_binary --check-cuda UUID` says whether the rank process can use the GPU. The second line of its output
  // says how many bytes of the GPU are then free.
  std::string rank_binary;
  Nanos check_limit{60'000'000'000};
  std::string system = "/sys";  // where the kernel describes PCI devices and NUMA nodes
};

class GpuProbe : public DeviceProbe {
 public:
  GpuProbe(GpuProbeOptions options, const Nvml& nvml) : options_(std::move(options)), nvml_(nvml) {}
  // A device's index is NVML's index. NotFound: there is no GPU. FailedPrecondition: no GPU can be used; the text has
  // the reasons. InvalidArgument: `gpus` or `cores` name something that does not exist.
  absl::StatusOr<std::vector<NodeDevice>> Find() override;
  // The conditions of GPUs that were found but cannot be used. `since` is not set.
  const std::vector<NodeCondition>& conditions() const { return conditions_; }

 private:
  absl::StatusOr<std::vector<GpuFacts>> Chosen();
  // A GPU that can be used, and how much of its memory a process takes.
  struct UsableGpu {
    GpuFacts facts;
    Bytes process_memory;
  };
  std::vector<UsableGpu> Usable(std::vector<GpuFacts> gpus);
  NodeDevice DeviceOf(const UsableGpu& gpu, std::vector<int32_t> cores) const;
  int32_t NumaNodeOf(const GpuFacts& gpu) const;
  std::vector<int32_t> CoresNear(int32_t numa_node, const std::vector<int32_t>& available) const;

  const GpuProbeOptions options_;
  const Nvml& nvml_;
  std::vector<NodeCondition> conditions_;
};

// The memory of a GPU that a rank needs in addition to states and activations: CUDA's context and kernels, and scratch
// memory for cuBLAS and the ops.
Bytes OwnMemory(Bytes total);
// Divides the cores among `count` users, and returns the part of user `index`. If there are fewer cores than users, each user
// gets one core, which others may get, too.
std::vector<int32_t> ShareOfCores(const std::vector<int32_t>& cores, size_t index, size_t count);

}  // namespace lynx::agent

#endif  // LYNX_AGENT_GPU_PROBE_H_
