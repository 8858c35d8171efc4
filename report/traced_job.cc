// See traced_job.h.
#include "report/traced_job.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "proto/convert.h"

namespace lynx {
absl::StatusOr<std::unique_ptr<const TracedJob>> ReadTrace(const v1::TraceJobResponse& response) {
  auto traced = std::make_unique<TracedJob>();
  Plan& plan = traced->plan;
  LYNX_ASSIGN_OR_RETURN(plan, FromProto(response.job().plan()));
  const v1::StepTrace& trace = response.trace();
  if (static_cast<size_t>(trace.stages_size()) != plan.stages.size()) {
    return absl::DataLossError(
        absl::StrCat("the trace has ", trace.stages_size(), " stages, the plan ", plan.stages.size(), ": trace a later step"));
  }
  std::vector<std::vector<ActionSpan>> stages;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const auto& times = trace.stages(static_cast<int>(i)).times();
    absl::StatusOr<std::vector<ActionSpan>> spans =
        SpansOfTrace(plan.stages[i].program, {times.data(), static_cast<size_t>(times.size())});
    if (!spans.ok()) return Annotate(spans.status(), absl::StrCat("stage ", i));
    stages.push_back(*std::move(spans));
  }
  traced->measured = AlignStages(plan, trace.step(), std::move(stages));
  if (!response.has_cluster()) return traced;
  LYNX_ASSIGN_OR_RETURN(traced->request.spec, FromProto(response.job().spec()));
  LYNX_ASSIGN_OR_RETURN(traced->request.cluster, FromProto(response.cluster()));
  absl::StatusOr<PredictedStep> predicted = PredictStep(traced->request, plan);
  // If another version made the plan, PredictStep fails. This is not an error, because the plan's own figures are still
  // available.
  if (predicted.ok()) traced->predicted = *std::move(predicted);
  return traced;
}

}  // namespace lynx
