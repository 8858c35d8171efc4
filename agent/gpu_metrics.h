// GpuMetrics: a GPU's readings under the names and labels of NVIDIA's DCGM exporter, so that dashboards and rules made
// for that exporter work here. A reading that the GPU does not give is not served. Thread-safe.
#ifndef LYNX_AGENT_GPU_METRICS_H_
#define LYNX_AGENT_GPU_METRICS_H_

#include <map>
#include <string>

#include "agent/nvml.h"
#include "common/metric_names.h"
#include "node/metric_families.h"

namespace lynx::agent {

struct GpuLabels {
  int32_t index = 0;
  std::string uuid, model, node;
};

class GpuMetrics {
 public:
  // `registry` must outlive this object.
  GpuMetrics(prometheus::Registry& registry, const GpuLabels& labels);

  void Set(const GpuReadings& readings);
  void SetXid(int64_t xid);

 private:
  void Set(const metric::Metric& metric, double value);

  prometheus::Registry& registry_;
  std::map<std::string, std::string> labels_;
};

}  // namespace lynx::agent

#endif  // LYNX_AGENT_GPU_METRICS_H_
