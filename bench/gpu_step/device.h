// The device on which gpu_step_bench trains.
#ifndef LYNX_BENCH_GPU_STEP_DEVICE_H_
#define LYNX_BENCH_GPU_STEP_DEVICE_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "agent/nvml.h"
#include "agent/probe.h"
#include "common/units.h"
#include "node/wake.h"

namespace lynx::bench {

struct BenchDevice {
  agent::NodeDevice device;
  std::string driver;                 // version of the NVIDIA driver; empty for a CPU
  std::unique_ptr<agent::Nvml> nvml;  // null for a CPU
};

// `name`: cpu (one core), cuda (the first GPU that can be used), or cuda:N (the GPU that nvidia-smi numbers so). `memory`: what
// a rank may use; 0: what the agent would offer. InvalidArgument: the name is none of these. NotFound, FailedPrecondition: this
// machine has no such device, or the rank process cannot use it; the text says why.
absl::StatusOr<BenchDevice> FindDevice(const std::string& name, Bytes memory, const std::string& rank_binary);

// The rate of dense bfloat16 products on tensor cores that the maker's data sheet states.
struct StatedPeak {
  double teraflops = 0;
  std::string source;
};
// nullopt: the table has no device of that name. `model`: the name that the NVIDIA driver gives it.
std::optional<StatedPeak> PeakOf(const std::string& model);

// Looks from time to time, in a thread of its own, how much of a GPU's memory all processes together use.
class MemoryWatch {
 public:
  // Does nothing for a CPU. The device must outlive the object.
  explicit MemoryWatch(const BenchDevice& device);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // The largest memory use since the construction, minus what was used before it. nullopt: the device does not report this.
  std::optional<Bytes> Peak() const;

 private:
  std::optional<int64_t> Used() const;

  const BenchDevice& device_;
  std::optional<int64_t> before_;
  std::atomic<int64_t> peak_{0};
  WakeEvent ends_;
  std::thread thread_;
};

}  // namespace lynx::bench

#endif  // LYNX_BENCH_GPU_STEP_DEVICE_H_
