// ServerPage: the series that lynx-server shows at /metrics. They say whether the server leads. Once it has led, the series of
// ServerMetrics are added. Thread-safe.
#ifndef LYNX_SERVER_METRICS_SERVER_PAGE_H_
#define LYNX_SERVER_METRICS_SERVER_PAGE_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "node/metric_families.h"
#include "prometheus/collectable.h"
#include "server/values/leadership.h"

namespace lynx::server {

class ServerPage : public prometheus::Collectable {
 public:
  explicit ServerPage(std::shared_ptr<const Leadership> leadership)
      : leadership_(std::move(leadership)), leading_(Gauges(registry_, metric::kLeading).Add({})),
        epoch_(Gauges(registry_, metric::kLeaseEpoch).Add({})) {
    AddBuildInfo(build_);
  }

  // The epoch of the lease, whoever has it; 0: the store has no lease.
  void SetEpoch(int64_t epoch) { epoch_.Set(static_cast<double>(epoch)); }
  // From now on the page also shows these metrics. They include the build's metrics, which the page has shown itself until now.
  void Add(std::shared_ptr<prometheus::Collectable> metrics) {
    const std::lock_guard lock(mutex_);
    metrics_ = std::move(metrics);
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    leading_.Set(leadership_->Leads() ? 1 : 0);
    std::vector<prometheus::MetricFamily> all = registry_.Collect();
    const std::lock_guard lock(mutex_);
    for (prometheus::MetricFamily& family : metrics_ != nullptr ? metrics_->Collect() : build_.Collect()) {
      all.push_back(std::move(family));
    }
    return all;
  }

 private:
  const std::shared_ptr<const Leadership> leadership_;
  prometheus::Registry registry_, build_;
  prometheus::Gauge &leading_, &epoch_;
  mutable std::mutex mutex_;
  std::shared_ptr<prometheus::Collectable> metrics_;  // guarded by mutex_; null: this server has not led yet
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_METRICS_SERVER_PAGE_H_
