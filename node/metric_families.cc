// See metric_families.h.
#include "node/metric_families.h"

#include "common/check.h"
#include "common/metric_table.h"
#include "common/version.h"

namespace lynx {
namespace {

template <class Builder>
auto& Register(Builder builder, metric::Type type, const metric::Metric& metric, prometheus::Registry& registry) {
  LYNX_CHECK(metric::IsListed(metric) && metric.type == type);
  return builder.Name(metric.name).Help(metric.help).Register(registry);
}

}  // namespace

CounterFamily& Counters(prometheus::Registry& registry, const metric::Metric& metric) {
  return Register(prometheus::BuildCounter(), metric::Type::kCounter, metric, registry);
}
GaugeFamily& Gauges(prometheus::Registry& registry, const metric::Metric& metric) {
  return Register(prometheus::BuildGauge(), metric::Type::kGauge, metric, registry);
}
HistogramFamily& Histograms(prometheus::Registry& registry, const metric::Metric& metric) {
  return Register(prometheus::BuildHistogram(), metric::Type::kHistogram, metric, registry);
}

void AddBuildInfo(prometheus::Registry& registry) { Gauges(registry, metric::kBuildInfo).Add({{"version", kVersion}}).Set(1); }

}  // namespace lynx
