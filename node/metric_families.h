// The families of a daemon's metrics, made from the table in common/metric_names.h alone: a daemon can serve nothing that is
// not listed there, nor under another type. Thread-safe.
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

// That which is there, where `registry` has it already. The metric must be in metric::AllMetrics() and of that type: else the
// process ends.
CounterFamily& Counters(prometheus::Registry& registry, const metric::Metric& metric);
GaugeFamily& Gauges(prometheus::Registry& registry, const metric::Metric& metric);
HistogramFamily& Histograms(prometheus::Registry& registry, const metric::Metric& metric);

// What every daemon serves.
void AddBuildInfo(prometheus::Registry& registry);

}  // namespace lynx

#endif  // LYNX_NODE_METRIC_FAMILIES_H_
