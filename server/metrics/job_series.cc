// See job_series.h.
#include "server/metrics/job_series.h"

#include <algorithm>
#include <limits>

#include "common/check.h"
#include "common/metric_table.h"

namespace lynx::server {
namespace {

prometheus::MetricType TypeOf(metric::Type type) {
  if (type == metric::Type::kHistogram) return prometheus::MetricType::Histogram;
  return type == metric::Type::kCounter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
}

}  // namespace

double& JobSeries::ValueIn(Values& values, const metric::Metric& metric, const Labels& labels) {
  const auto [found, is_new] = values.try_emplace({&metric, labels});
  if (is_new) LYNX_CHECK(metric::IsListed(metric) && metric.type != metric::Type::kHistogram);
  return found->second;
}

void JobSeries::Observe(const metric::Metric& metric, const std::vector<double>& bounds, double value) {
  const auto [found, is_new] = histograms_.try_emplace(&metric);
  Histogram& histogram = found->second;
  if (is_new) {
    LYNX_CHECK(metric::IsListed(metric) && metric.type == metric::Type::kHistogram);
    histogram.bounds = bounds;
    histogram.counts.resize(bounds.size() + 1);
  }
  const auto bucket = std::lower_bound(histogram.bounds.begin(), histogram.bounds.end(), value);
  ++histogram.counts[static_cast<size_t>(bucket - histogram.bounds.begin())];
  histogram.sum += value;
}

prometheus::ClientMetric& JobSeries::AddTo(Families& families, const metric::Metric& metric, const Labels& labels) const {
  prometheus::MetricFamily& family = families[&metric];
  if (family.name.empty()) {
    family.name = metric.name;
    family.help = metric.help;
    family.type = TypeOf(metric.type);
  }
  prometheus::ClientMetric& one = family.metric.emplace_back();
  one.label = {{"job_id", id_}, {"job_name", name_}};
  for (const auto& [name, value] : labels) one.label.push_back({std::string(name), value});
  std::sort(one.label.begin(), one.label.end());
  return one;
}

void JobSeries::CollectTo(Families& families) const {
  for (const Values* values : {&of_job_, &of_plan_}) {
    for (const auto& [key, value] : *values) {
      prometheus::ClientMetric& one = AddTo(families, *key.metric, key.labels);
      (key.metric->type == metric::Type::kCounter ? one.counter.value : one.gauge.value) = value;
    }
  }
  for (const auto& [metric, histogram] : histograms_) {
    prometheus::ClientMetric::Histogram& one = AddTo(families, *metric, {}).histogram;
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      one.sample_count += histogram.counts[i];
      const double bound = i < histogram.bounds.size() ? histogram.bounds[i] : std::numeric_limits<double>::infinity();
      one.bucket.push_back({.cumulative_count = one.sample_count, .upper_bound = bound});
    }
    one.sample_sum = histogram.sum;
  }
}

}  // namespace lynx::server
