// JobReport: one self-contained page about a job: predictions and measurements, what was recomputed where with its cost and
// savings, what memory contains, how the run went, and how it recovered from failures. Plots are inline SVG, without scripts or
// network access; every plot has its numbers as a table. Pure; thread-safe.
#ifndef LYNX_REPORT_JOB_REPORT_H_
#define LYNX_REPORT_JOB_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "lynx/v1/jobs.pb.h"
#include "planner/report/timeline.h"
#include "planner/search/compare.h"
#include "report/traced_job.h"

namespace lynx {

// The input of a page. The pointers are not owned.
struct JobReport {
  const v1::Job* job = nullptr;  // with its events
  const v1::JobCurves* curves = nullptr;
  const Plan* plan = nullptr;                    // null: the job was never planned. Programs are needed only if `traced` is set
  const TracedJob* traced = nullptr;             // null: no step of the plan has been traced
  const PolicyComparison* comparison = nullptr;  // other policies with the same layout; null: no comparison
  std::string version;                           // of this program
  Nanos now;                                     // Unix time
};

// FailedPrecondition as for MemoryOf. The same input gives the same bytes.
absl::StatusOr<std::string> JobReportPage(const JobReport& report);

// The parts of the same page, for a page that is updated: first "head", the content of its header, then each section that is
// not empty. The ids are those of the sections.
struct ReportPart {
  std::string id;
  std::string html;
};
absl::StatusOr<std::vector<ReportPart>> JobReportParts(const JobReport& report);

// ---- Parts of the page: HTML inside a section; empty: there is nothing to show. ----

// A "<section ...>" with a heading, and `aside` as a remark beside it.
std::string ReportSection(const std::string& id, const std::string& title, const std::string& aside,
                          const std::string& content);
// A table below a plot, collapsed.
std::string FoldedTable(const Table& table);

// The lanes of each stage, the prediction above the measurement.
std::string StepPlot(const TracedJob& traced);
// The memory of a device of the fullest stage, kind by kind and over the step.
absl::StatusOr<std::string> MemoryPlots(const TracedJob& traced);
// The same, only from the figures of the plan.
std::string PlannedMemory(const Plan& plan);
// The peak memory of a device of each stage, planned and measured.
std::string StagesMemory(const Plan& plan, const v1::Job& job);
// States and throughput over time.
std::string RunPlot(const v1::Job& job, const v1::JobCurves& curves, Nanos now);
std::string LossPlot(const v1::JobCurves& curves);

// An event that stopped a job's training, and how the job continued.
struct Recovery {
  int64_t time_unix_ns = 0;
  std::string kind;  // kind of the event that stopped it
  std::string reason;
  std::string fault;       // the attribution of the failure; empty: unknown
  bool goes_on = false;    // the job trained again
  int64_t away_ns = 0;     // time from the event until all ranks ran again
  int64_t from_step = -1;  // the first step afterwards; -1: unknown
  int64_t done_again = 0;  // number of steps that had been done before
  std::string resumed;     // text of the restart event: from which checkpoint, with which plan
};
std::vector<Recovery> RecoveriesOf(const v1::Job& job, const v1::JobCurves& curves);

}  // namespace lynx

#endif  // LYNX_REPORT_JOB_REPORT_H_
