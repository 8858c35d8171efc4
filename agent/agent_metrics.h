// AgentMetrics: the metrics that lynx-agent serves about its measurements. Thread-safe.
#ifndef LYNX_AGENT_AGENT_METRICS_H_
#define LYNX_AGENT_AGENT_METRICS_H_

#include <memory>

#include "common/units.h"
#include "node/metric_families.h"

namespace lynx::agent {

enum class MeasureSubject : uint8_t { kShape, kLink };  // kShape: also the general rates; kLink: also the links between GPUs
enum class MeasureOutcome : uint8_t { kMeasured, kCached, kFailed };

class AgentMetrics {
 public:
  AgentMetrics();
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

  void SetAttached(bool attached);
  const prometheus::Gauge& attached() const { return attached_; }
  void Count(MeasureSubject subject, MeasureOutcome outcome, Nanos duration);

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Gauge& attached_;
  CounterFamily& measurements_;
  CounterFamily& seconds_;
};

}  // namespace lynx::agent

#endif  // LYNX_AGENT_AGENT_METRICS_H_
