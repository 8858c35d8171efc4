// GpuProbe: the GPUs of a node on which ranks can run: those that NVML finds and on which the rank process can make a
// backend. Which fail, and why, is told as conditions; the others are offered. Not thread-safe.
#ifndef LYNX_AGENT_GPU_PROBE_H_
#define LYNX_AGENT_GPU_PROBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/node_condition.h"
#include "agent/nvml.h"
#include "agent/probe.h"

namespace lynx {

struct GpuProbeOptions {
  int64_t devices = 0;         // at most so many, those of the lowest indices; 0 = all
  std::vector<int32_t> gpus;   // indices as NVML has them; empty = all
  std::vector<int32_t> cores;  // that ranks may use; empty = all that this process may use
  Bytes memory_per_device;     // 0 = all but what is reserved
  Bytes reserved;              // of each GPU; 0 = OwnMemory, or what a process was seen to take if that is more
  // `rank_binary --check-cuda UUID` says whether it can use the GPU, and in its second line how many bytes of it are free then.
  std::string rank_binary;
  Nanos check_limit{60'000'000'000};
  std::string system = "/sys";  // where the kernel tells of PCI devices and NUMA nodes
};

class GpuProbe : public DeviceProbe {
 public:
  GpuProbe(GpuProbeOptions options, const Nvml& nvml) : options_(std::move(options)), nvml_(nvml) {}
  // A device's index is NVML's. NotFound: there is no GPU. FailedPrecondition: none of them can be used, with the
  // reasons. InvalidArgument: `gpus` or `cores` name what is not there.
  absl::StatusOr<std::vector<NodeDevice>> Find() override;
  // The conditions of GPUs that were found but cannot be used. `since` is not set.
  const std::vector<NodeCondition>& conditions() const { return conditions_; }

 private:
  absl::StatusOr<std::vector<GpuFacts>> Chosen();
  // And what a process that can use it takes of its memory.
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

// What a rank needs of a GPU's memory beside states and activations: CUDA's context and kernels, cuBLAS's and the
// ops' scratch.
Bytes OwnMemory(Bytes total);
// Share `index` of `count` of the cores, at least one of them.
std::vector<int32_t> ShareOfCores(const std::vector<int32_t>& cores, size_t index, size_t count);

}  // namespace lynx

#endif  // LYNX_AGENT_GPU_PROBE_H_
