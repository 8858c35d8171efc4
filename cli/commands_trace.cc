#include <cstdio>
#include <optional>
#include <utility>

#include "cli/client.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/output_file.h"
#include "cli/render.h"
#include "common/status.h"
#include "planner/report/chrome_trace.h"
#include "proto/convert.h"

namespace lynx {
namespace {

// What the answer holds. The step points to the request and the plan, which stay where they are.
struct TracedJob {
  PlanRequest request;
  Plan plan;
  MeasuredStep measured;
  std::optional<PredictedStep> predicted;
};

absl::Status Fill(const v1::TraceJobResponse& response, TracedJob& traced) {
  LYNX_ASSIGN_OR_RETURN(traced.plan, FromProto(response.job().plan()));
  const v1::StepTrace& trace = response.trace();
  if (static_cast<size_t>(trace.stages_size()) != traced.plan.stages.size()) {
    return absl::DataLossError(absl::StrCat("the trace has ", trace.stages_size(), " stages, the plan ",
                                            traced.plan.stages.size(), ": trace a later step"));
  }
  std::vector<std::vector<ActionSpan>> stages;
  for (size_t i = 0; i < traced.plan.stages.size(); ++i) {
    const auto& times = trace.stages(static_cast<int>(i)).times();
    const absl::StatusOr<std::vector<ActionSpan>> spans =
        SpansOfTrace(traced.plan.stages[i].program, std::vector<int64_t>(times.begin(), times.end()));
    if (!spans.ok()) return Annotate(spans.status(), absl::StrCat("stage ", i));
    stages.push_back(*spans);
  }
  traced.measured = AlignStages(traced.plan, trace.step(), std::move(stages));
  if (!response.has_cluster()) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(traced.request.spec, FromProto(response.job().spec()));
  LYNX_ASSIGN_OR_RETURN(traced.request.cluster, FromProto(response.cluster()));
  absl::StatusOr<PredictedStep> predicted = PredictStep(traced.request, traced.plan);
  // Of a plan that another version made; its own figures are still there.
  if (predicted.ok()) traced.predicted = *std::move(predicted);
  return absl::OkStatus();
}

}  // namespace

int Trace(const GlobalOptions& global, const TraceOptions& options) {
  Client client(FindServer(global.connection), NanosFromSeconds(global.timeout_seconds));
  v1::TraceJobRequest request;
  request.set_job_id(options.job);
  const auto response = client.Trace(request);
  if (!response.ok()) return Fail(response.status());
  TracedJob traced;
  if (const absl::Status filled = Fill(*response, traced); !filled.ok()) {
    return Fail(Annotate(filled, absl::StrCat("job ", response->job().id())));
  }
  const Simulation* predicted = traced.predicted.has_value() ? &traced.predicted->simulation : nullptr;
  if (!options.out.empty()) {
    const auto text = MeasuredChromeTrace(response->job().spec().name(), traced.plan, traced.measured, predicted);
    if (!text.ok()) return Fail(text.status());
    const Nanos length = std::max(traced.measured.end, traced.plan.step);
    if (const absl::Status written = WriteTrace("--out", options.out, *text, length); !written.ok())
      return Fail(written);
  }
  if (global.output == OutputFormat::kJson) {
    std::fputs(JsonText(response->trace()).c_str(), stdout);
    return kExitOk;
  }
  std::fputs(MeasuredTable(traced.plan, traced.measured, predicted).c_str(), stdout);
  if (predicted == nullptr) std::printf("what this plan predicted, action by action, is no longer known\n");
  return kExitOk;
}

}  // namespace lynx
