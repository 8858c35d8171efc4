// JobSeries: the values of one job's series at lynx-server's /metrics. They are not kept in the Prometheus registry: a server
// ends hundreds of jobs a second, and the registry scans all series to remove one. Not thread-safe.
#ifndef LYNX_SERVER_METRICS_JOB_SERIES_H_
#define LYNX_SERVER_METRICS_JOB_SERIES_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/metric_names.h"
#include "prometheus/metric_family.h"

namespace lynx::server {

class JobSeries {
 public:
  // Labels in addition to those of the job.
  using Labels = std::vector<std::pair<std::string_view, std::string>>;
  using Families = std::map<const metric::Metric*, prometheus::MetricFamily>;

  JobSeries(std::string id, std::string name) : id_(std::move(id)), name_(std::move(name)) {}

  // The value of a counter or gauge, to read or change. It is 0 at first, and the reference stays valid for as long as the
  // job's series. The process ends if the metric is not in metric::AllMetrics() or is a histogram.
  double& Of(const metric::Metric& metric, const Labels& labels = {}) { return ValueIn(of_job_, metric, labels); }
  // Works like Of, but the value is dropped together with the job's plan (EndPlan), and then references to it become invalid.
  double& OfPlan(const metric::Metric& metric, const Labels& labels = {}) { return ValueIn(of_plan_, metric, labels); }
  void EndPlan() { of_plan_.clear(); }
  // Adds a value to a histogram with these upper bounds; the bounds must be the same each time.
  void Observe(const metric::Metric& metric, const std::vector<double>& bounds, double value);

  void CollectTo(Families& families) const;

 private:
  struct Key {
    const metric::Metric* metric;
    Labels labels;
    auto operator<=>(const Key&) const = default;
  };
  using Values = std::map<Key, double>;
  struct Histogram {
    std::vector<double> bounds;
    std::vector<uint64_t> counts;  // number of values in each bucket alone, not cumulative; the last bucket is above all bounds
    double sum = 0;
  };

  static double& ValueIn(Values& values, const metric::Metric& metric, const Labels& labels);
  prometheus::ClientMetric& AddTo(Families& families, const metric::Metric& metric, const Labels& labels) const;

  const std::string id_, name_;
  Values of_job_, of_plan_;
  std::map<const metric::Metric*, Histogram> histograms_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_METRICS_JOB_SERIES_H_
