// JobSeries: the values of one job's series at lynx-server's /metrics. Beside the registry's own families, of which one cannot
// be taken away without looking at all others: a server ends hundreds of jobs a second. Not thread-safe.
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

namespace lynx {

class JobSeries {
 public:
  // Beside the job's own.
  using Labels = std::vector<std::pair<std::string_view, std::string>>;
  using Families = std::map<const metric::Metric*, prometheus::MetricFamily>;

  JobSeries(std::string id, std::string name) : id_(std::move(id)), name_(std::move(name)) {}

  // A counter's or gauge's value: 0 at first, and at its place for as long as the job. The metric must be in
  // metric::AllMetrics(): else the process ends. So it does where the metric is of another type.
  double& Of(const metric::Metric& metric, const Labels& labels = {}) { return ValueIn(of_job_, metric, labels); }
  // One that goes with the job's plan.
  double& OfPlan(const metric::Metric& metric, const Labels& labels = {}) { return ValueIn(of_plan_, metric, labels); }
  void EndPlan() { of_plan_.clear(); }
  // Of a histogram with these upper bounds, which are the same each time.
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
    std::vector<uint64_t> counts;  // of each bucket alone; the last is beyond all bounds
    double sum = 0;
  };

  static double& ValueIn(Values& values, const metric::Metric& metric, const Labels& labels);
  prometheus::ClientMetric& AddTo(Families& families, const metric::Metric& metric, const Labels& labels) const;

  const std::string id_, name_;
  Values of_job_, of_plan_;
  std::map<const metric::Metric*, Histogram> histograms_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_METRICS_JOB_SERIES_H_
