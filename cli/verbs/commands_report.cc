// report: shows a job as one page.
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/output/exit_code.h"
#include "cli/output/output_file.h"
#include "cli/output/waiting_line.h"
#include "cli/verbs/commands.h"
#include "common/clock.h"
#include "common/cores.h"
#include "common/status.h"
#include "common/utf8.h"
#include "common/version.h"
#include "proto/convert.h"
#include "report/job_report.h"
#include "report/traced_job.h"

namespace lynx::cli {
namespace {

// The traced step. null: no step of the present plan has been traced, or the trace is inconsistent. In both cases the page
// shows the rest of the job.
absl::StatusOr<std::unique_ptr<const TracedJob>> TraceOf(Client& client, const std::string& id) {
  v1::TraceJobRequest request;
  request.set_job_id(id);
  const auto response = client.Trace(request);
  if (response.status().code() == absl::StatusCode::kFailedPrecondition) return nullptr;
  if (!response.ok()) return response.status();
  absl::StatusOr<std::unique_ptr<const TracedJob>> traced = ReadTrace(*response);
  if (traced.ok()) return traced;
  std::fprintf(stderr, "the traced step is left out of the report: %s\n",
               VisibleLine(std::string(traced.status().message())).c_str());
  return nullptr;
}

// Other policies in the layout and micro-batch of the job. nullopt: the prediction for the traced step is not known, or the
// planner refuses to compare.
std::optional<PolicyComparison> CompareFor(const TracedJob& traced) {
  if (!traced.predicted.has_value()) return std::nullopt;
  PlanRequest request = traced.request;
  const ParallelLayout& layout = traced.plan.layout;
  request.spec.parallel.tp = layout.tp;
  request.spec.parallel.pp = layout.pp;
  request.spec.parallel.dp = layout.dp;
  request.spec.parallel.cp = layout.cp;
  request.spec.parallel.ep = layout.ep;
  request.spec.train.micro_batch = traced.plan.micro_batch;
  absl::StatusOr<PolicyComparison> comparison = WithWaitingLine("comparing", [&](const TellPart& tell) {
    return ComparePolicies(request, {tell, RunOnAllCores});
  });
  if (!comparison.ok()) return std::nullopt;
  return *std::move(comparison);
}

absl::Status WriteReport(const GlobalOptions& global, const ReportOptions& options) {
  Client client = Connect(global);
  v1::GetJobRequest request;
  request.set_job_id(options.job);
  request.set_include_events(true);
  request.set_include_curves(true);
  LYNX_ASSIGN_OR_RETURN(const v1::GetJobResponse got, client.GetAll(request));
  const v1::Job& job = got.job();
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<const TracedJob> traced, TraceOf(client, job.id()));
  Plan plan;
  if (job.has_plan()) {
    LYNX_ASSIGN_OR_RETURN(plan, FromProto(job.plan(), PlanPrograms::kLeftOut));
  }
  std::optional<PolicyComparison> comparison;
  if (traced != nullptr && !options.no_comparison) comparison = CompareFor(*traced);
  LYNX_ASSIGN_OR_RETURN(const std::string page, JobReportPage({.job = &job,
                                                               .curves = &got.curves(),
                                                               .plan = traced != nullptr ? &traced->plan
                                                                       : job.has_plan()  ? &plan
                                                                                         : nullptr,
                                                               .traced = traced.get(),
                                                               .comparison = comparison.has_value() ? &*comparison : nullptr,
                                                               .version = kVersion,
                                                               .now = RealClock().Wall()}));
  const std::string path = options.out.empty() ? absl::StrCat(job.spec().name(), "-", job.id(), ".html") : options.out;
  LYNX_RETURN_IF_ERROR(WriteOutput("--out", path, page));
  std::printf("%s\n", path.c_str());
  TellWritten("report", path, page.size(), "open it in a browser");
  return absl::OkStatus();
}

}  // namespace

int Report(const GlobalOptions& global, const ReportOptions& options) {
  const absl::Status written = WriteReport(global, options);
  return written.ok() ? kExitOk : Fail(written);
}

}  // namespace lynx::cli
