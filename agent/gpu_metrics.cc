#include "agent/gpu_metrics.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace lynx::agent {
namespace {

double Mebibytes(Bytes bytes) { return static_cast<double>(bytes.value) / (1 << 20); }

}  // namespace

GpuMetrics::GpuMetrics(prometheus::Registry& registry, const GpuLabels& labels)
    : registry_(registry), labels_({{"gpu", absl::StrCat(labels.index)},
                                    {"UUID", labels.uuid},
                                    {"modelName", labels.model},
                                    {"Hostname", labels.node}}) {
  SetXid(0);
}

void GpuMetrics::Set(const metric::Metric& metric, double value) { Gauges(registry_, metric).Add(labels_).Set(value); }

void GpuMetrics::SetXid(int64_t xid) { Set(metric::kGpuXid, static_cast<double>(xid)); }

void GpuMetrics::Set(const GpuReadings& readings) {
  const auto number = [this](const metric::Metric& metric, const auto& value) {
    if (value.has_value()) Set(metric, static_cast<double>(*value));
  };
  number(metric::kGpuUtilization, readings.utilization_percent);
  number(metric::kGpuMemoryUtilization, readings.memory_utilization_percent);
  if (readings.memory_used.has_value()) Set(metric::kGpuMemoryUsed, Mebibytes(*readings.memory_used));
  if (readings.memory_free.has_value()) Set(metric::kGpuMemoryFree, Mebibytes(*readings.memory_free));
  number(metric::kGpuSmClock, readings.sm_clock_mhz);
  number(metric::kGpuMemoryClock, readings.memory_clock_mhz);
  number(metric::kGpuTemperature, readings.temperature_celsius);
  number(metric::kGpuPower, readings.power_watts);
  number(metric::kGpuEccErrors, readings.uncorrected_ecc_errors);
  number(metric::kGpuThrottleReasons, readings.throttle_reasons);
}

}  // namespace lynx::agent
