// ChromeTrace: a step as trace-event JSON, for Perfetto and chrome://tracing. One process a stage, or two, where what
// was measured stands above what was predicted; a thread a lane (compute, communication, copy); categories are
// SpanKindId; a recompute action's hidden and exposed parts are slices inside it; flows lead from a transfer to the
// wait that it ends; counters show the arena's bytes by kind. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_CHROME_TRACE_H_
#define LYNX_PLANNER_REPORT_CHROME_TRACE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "planner/report/step_trace.h"
#include "planner/report/timeline.h"

namespace lynx {

struct ChromeTraceText {
  std::string json;
  Nanos end;  // up to where the step is told: its end, or where the limit is reached
};

// At most about `limit` spans, those that begin first over all stages. FailedPrecondition as MemoryOf. The same step
// gives the same bytes.
absl::StatusOr<ChromeTraceText> ChromeTrace(const PredictedStep& step, size_t limit = 1'000'000);

// The same of a measured step of the plan with its prediction; `predicted`: null where it is not known. `job`: its
// name.
absl::StatusOr<ChromeTraceText> MeasuredChromeTrace(const std::string& job, const Plan& plan, const MeasuredStep& measured,
                                                    const Simulation* predicted, size_t limit = 1'000'000);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_CHROME_TRACE_H_
