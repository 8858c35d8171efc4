// The list of all metrics, and the documentation page that shows it. Pure; thread-safe.
#ifndef LYNX_COMMON_METRIC_TABLE_H_
#define LYNX_COMMON_METRIC_TABLE_H_

#include <span>
#include <string>
#include <vector>

#include "common/metric_names.h"

namespace lynx::metric {

// Returns all metrics in the order in which the page shows them.
std::span<const Metric* const> AllMetrics();
// True if the metric is in the list. Compares addresses, so a copy is not in the list.
bool IsListed(const Metric& metric);
// Splits the labels: "job_id, stage" gives {"job_id", "stage"}.
std::vector<std::string> LabelsOf(const Metric& metric);
const char* TypeName(Type type);        // such as "counter"
const char* DaemonName(Daemon daemon);  // such as "lynx-server" or "every daemon"

// The text of docs/metrics.md.
std::string MetricPage();

}  // namespace lynx::metric

#endif  // LYNX_COMMON_METRIC_TABLE_H_
