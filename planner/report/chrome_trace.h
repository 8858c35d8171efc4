// ChromeTrace writes a step as trace-event JSON, for Perfetto and chrome://tracing. Each stage is one process, or two processes
// if the trace has a measured and a predicted step. Each lane (compute, communication, copy) is a thread; if passes run side by
// side, each of them (strand) has a compute lane of its own. Categories are the names that SpanKindId returns. A recompute
// action contains slices for its hidden and exposed parts. An arrow (flow) leads from each transfer to its wait.
// Counters show the bytes of the arena by kind. Pure; thread-safe.
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
  Nanos end;  // the end of the shown time: the step's end, or the time at which the limit of spans is reached
};

// Writes at most about `limit` spans: those of all stages that begin first. Returns FailedPrecondition in the same cases as
// MemoryOf. The same step always gives the same bytes.
absl::StatusOr<ChromeTraceText> ChromeTrace(const PredictedStep& step, size_t limit = 1'000'000);

// Writes a Chrome trace of a measured step of the plan, together with its prediction. `predicted` is nullptr if there is no
// prediction. `job` is the job's name.
absl::StatusOr<ChromeTraceText> MeasuredChromeTrace(const std::string& job, const Plan& plan, const MeasuredStep& measured,
                                                    const Simulation* predicted, size_t limit = 1'000'000);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_CHROME_TRACE_H_
