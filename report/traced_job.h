// TracedJob: a job's newest traced step from the server, together with its prediction.
#ifndef LYNX_REPORT_TRACED_JOB_H_
#define LYNX_REPORT_TRACED_JOB_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "lynx/v1/jobs.pb.h"
#include "planner/plan/plan.h"
#include "planner/report/step_trace.h"
#include "planner/report/timeline.h"

namespace lynx {

// The object must not be moved, because the prediction points to the request and the plan.
struct TracedJob {
  PlanRequest request;  // without a cluster if the server does not know which one the plan was made for
  Plan plan;
  MeasuredStep measured;
  std::optional<PredictedStep> predicted;  // nullopt: the server does not know the cluster, or another version made the plan

  const Simulation* simulation() const { return predicted.has_value() ? &predicted->simulation : nullptr; }
};

// Fails if the server's answer is invalid. DataLoss: the trace and the plan differ in the number of stages. Other errors are
// those of FromProto and SpansOfTrace.
absl::StatusOr<std::unique_ptr<const TracedJob>> ReadTrace(const v1::TraceJobResponse& response);

}  // namespace lynx

#endif  // LYNX_REPORT_TRACED_JOB_H_
