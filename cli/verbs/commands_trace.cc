#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/connect/client.h"
#include "cli/output/output_file.h"
#include "cli/verbs/commands.h"
#include "common/status.h"
#include "planner/report/chrome_trace.h"
#include "report/traced_job.h"

namespace lynx::cli {

int Trace(const GlobalOptions& global, const TraceOptions& options) {
  v1::TraceJobRequest request;
  request.set_job_id(options.job);
  const auto response = Connect(global).Trace(request);
  if (!response.ok()) return Fail(response.status());
  const absl::StatusOr<std::unique_ptr<const TracedJob>> read = ReadTrace(*response);
  if (!read.ok()) return Fail(Annotate(read.status(), absl::StrCat("job ", response->job().id())));
  const TracedJob& traced = **read;
  if (!options.out.empty()) {
    const auto text = MeasuredChromeTrace(response->job().spec().name(), traced.plan, traced.measured, traced.simulation());
    if (!text.ok()) return Fail(text.status());
    const Nanos length = std::max(traced.measured.end, traced.plan.step);
    if (const absl::Status written = WriteTrace("--out", options.out, *text, length); !written.ok()) return Fail(written);
  }
  const char* const note =
      traced.predicted.has_value() ? "" : "what this plan predicted, action by action, is no longer known\n";
  return Show(global.output, response->trace(),
              absl::StrCat(MeasuredTable(traced.plan, traced.measured, traced.simulation()), note));
}

}  // namespace lynx::cli
