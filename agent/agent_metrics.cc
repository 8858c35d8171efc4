#include "agent/agent_metrics.h"

#include "common/metric_names.h"

namespace lynx::agent {
namespace {

const char* SubjectName(MeasureSubject subject) { return subject == MeasureSubject::kShape ? "shape" : "link"; }

const char* OutcomeName(MeasureOutcome outcome) {
  switch (outcome) {
    case MeasureOutcome::kMeasured: return "measured";
    case MeasureOutcome::kCached: return "cached";
    case MeasureOutcome::kFailed: return "failed";
  }
  return "";
}

}  // namespace

AgentMetrics::AgentMetrics()
    : registry_(std::make_shared<prometheus::Registry>()), attached_(Gauges(*registry_, metric::kAgentAttached).Add({})),
      measurements_(Counters(*registry_, metric::kMeasurements)), seconds_(Counters(*registry_, metric::kMeasurementSeconds)) {
  AddBuildInfo(*registry_);
}

void AgentMetrics::SetAttached(bool attached) { attached_.Set(attached ? 1 : 0); }

void AgentMetrics::Count(MeasureSubject subject, MeasureOutcome outcome, Nanos duration) {
  measurements_.Add({{"kind", SubjectName(subject)}, {"result", OutcomeName(outcome)}}).Increment();
  seconds_.Add({{"kind", SubjectName(subject)}}).Increment(Seconds(duration));
}

}  // namespace lynx::agent
