// TracedJob: a job's newest traced step as the server tells it, beside its prediction.
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

// The prediction points to the request and the plan, so it stays where it is.
struct TracedJob {
  PlanRequest request;  // without a cluster, where the server does not know what the plan was made for
  Plan plan;
  MeasuredStep measured;
  std::optional<PredictedStep> predicted;  // unless that is not known any more, or another version made the plan

  const Simulation* simulation() const { return predicted.has_value() ? &predicted->simulation : nullptr; }
};

// DataLoss, or as SpansOfTrace, where the answer is not of one piece.
absl::StatusOr<std::unique_ptr<const TracedJob>> ReadTrace(const v1::TraceJobResponse& response);

}  // namespace lynx

#endif  // LYNX_REPORT_TRACED_JOB_H_
