// GpuWatch: listens for Xids (the driver's numbers for errors of a GPU) and reads the node's GPUs once a second, on a thread of
// its own. It serves the readings as metrics and derives conditions from them. Thread-safe.
#ifndef LYNX_AGENT_GPU_WATCH_H_
#define LYNX_AGENT_GPU_WATCH_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/gpu_health.h"
#include "agent/gpu_metrics.h"
#include "agent/node_condition.h"
#include "agent/nvml.h"
#include "agent/probe.h"
#include "common/clock.h"
#include "node/wake.h"

namespace lynx::agent {

class GpuWatch {
 public:
  // Watches the GPUs among `devices`. Raises `wake` when conditions change. `wake`, `clock` and `registry` must outlive this
  // object.
  GpuWatch(std::unique_ptr<Nvml> nvml, const std::vector<NodeDevice>& devices, const std::string& node,
           prometheus::Registry& registry, const Clock& clock, WakeEvent& wake);
  // Waits until the current reading is done.
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  std::vector<NodeCondition> conditions() const;

  static constexpr Nanos kInterval{1'000'000'000};

 private:
  struct Gpu {
    GpuHealth health;
    GpuMetrics metrics;
  };

  void Run();
  void Publish();

  const std::unique_ptr<Nvml> nvml_;
  const Clock& clock_;
  WakeEvent& wake_;
  std::map<int32_t, Gpu> gpus_;  // the GPUs by NVML's index; only the thread uses the map
  std::atomic<bool> stop_ = false;

  mutable std::mutex mutex_;
  std::vector<NodeCondition> conditions_;  // guarded by mutex_

  std::thread thread_;
};

}  // namespace lynx::agent

#endif  // LYNX_AGENT_GPU_WATCH_H_
