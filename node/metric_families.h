// Creates the families of a daemon's metrics only from the table in common/metric_names.h. So a daemon cannot serve a metric
// that is not in the table, or that has another type than the table says. Thread-safe.
#ifndef LYNX_NODE_METRIC_FAMILIES_H_
#define LYNX_NODE_METRIC_FAMILIES_H_

#include "common/metric_names.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace lynx {

using CounterFamily = prometheus::Family<prometheus::Counter>;
using GaugeFamily = prometheus::Family<prometheus::Gauge>;
using HistogramFamily = prometheus::Family<prometheus::Histogram>;

// Returns the existing family if `registry` has one. The process ends if the metric is not in metric::AllMetrics() or has
// another type.
CounterFamily& Counters(prometheus::Registry& registry, const metric::Metric& metric);
GaugeFamily& Gauges(prometheus::Registry& registry, const metric::Metric& metric);
HistogramFamily& Histograms(prometheus::Registry& registry, const metric::Metric& metric);

// Adds the metrics that every daemon serves.
void AddBuildInfo(prometheus::Registry& registry);

}  // namespace lynx

#endif  // LYNX_NODE_METRIC_FAMILIES_H_
