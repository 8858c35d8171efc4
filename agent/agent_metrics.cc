#include "agent/agent_metrics.h"

#include "common/metric_names.h"

namespace lynx {
namespace {

const char* SubjectName(MeasureSubject subject) { return subject == MeasureSubject::kShape ? "shape" : "link"; }

const char* OutcomeName(MeasureOutcome outcome) {
  switch (outcome) {
    case MeasureOutcome::kMeasured:
      return "measured";
    case MeasureOutcome::kCached:
      return "cached";
    case MeasureOutcome::kFailed:
      return "failed";
  }
  return "";
}

}  // namespace

AgentMetrics::AgentMetrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      attached_(prometheus::BuildGauge()
                    .Name(metric::kAgentAttached.name)
                    .Help(metric::kAgentAttached.help)
                    .Register(*registry_)
                    .Add({})),
      measurements_(prometheus::BuildCounter()
                        .Name(metric::kMeasurements.name)
                        .Help(metric::kMeasurements.help)
                        .Register(*registry_)),
      seconds_(prometheus::BuildCounter()
                   .Name(metric::kMeasurementSeconds.name)
                   .Help(metric::kMeasurementSeconds.help)
                   .Register(*registry_)) {}

void AgentMetrics::SetAttached(bool attached) { attached_.Set(attached ? 1 : 0); }

void AgentMetrics::Count(MeasureSubject subject, MeasureOutcome outcome, Nanos duration) {
  measurements_.Add({{"kind", SubjectName(subject)}, {"result", OutcomeName(outcome)}}).Increment();
  seconds_.Add({{"kind", SubjectName(subject)}}).Increment(Seconds(duration));
}

}  // namespace lynx
