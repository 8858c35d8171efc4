// JobReport is one self-contained page about a job. It shows predictions and measurements, the recomputation with its cost and
// savings, the contents of memory, the course of the run, and the recoveries from failures. Plots are inline SVG, without
// scripts or network access. Most plots have a table with their numbers. Pure; thread-safe.
#ifndef LYNX_REPORT_JOB_REPORT_H_
#define LYNX_REPORT_JOB_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "lynx/v1/jobs.pb.h"
#include "planner/report/page_parts.h"
#include "planner/search/compare.h"
#include "report/traced_job.h"

namespace lynx {

// The input of a page. The object does not own what the pointers refer to.
struct JobReport {
  const v1::Job* job = nullptr;  // the job with its events
  const v1::JobCurves* curves = nullptr;
  const Plan* plan = nullptr;                    // null: never planned; its programs are needed only if `traced` is set
  const TracedJob* traced = nullptr;             // null: no step of the plan has been traced
  const PolicyComparison* comparison = nullptr;  // other policies with the same layout; null: no comparison
  std::string version;                           // version of this program
  Nanos now;                                     // Unix time
};

// Returns FailedPrecondition in the same cases as MemoryOf. The same input always gives the same bytes.
absl::StatusOr<std::string> JobReportPage(const JobReport& report);

// The page as parts, for a page that is updated part by part. The first part has the id "head" and the content of the header.
// Then comes each section that is not empty, with the section's id.
absl::StatusOr<std::vector<PagePart>> JobReportParts(const JobReport& report);

// ---- Parts of the page: HTML inside a section; empty: there is nothing to show. ----

// Returns a "<section ...>" with a heading, and `aside` as a remark next to the heading.
std::string ReportSection(const std::string& id, const std::string& title, const std::string& aside,
                          const std::string& content);

// Draws the lanes of each stage: the prediction above, the measurement below.
std::string StepPlot(const TracedJob& traced);
// Draws the memory of a device of the fullest stage: the amount of each kind, and the course over the step.
absl::StatusOr<std::string> MemoryPlots(const TracedJob& traced);
// Draws the memory as the plan predicts it, without the course over a step.
std::string PlannedMemory(const Plan& plan);
// Draws the peak memory of a device of each stage, planned and measured.
std::string StagesMemory(const Plan& plan, const v1::Job& job);
// Draws the states of the job and its throughput over time.
std::string RunPlot(const v1::Job& job, const v1::JobCurves& curves, Nanos now);
std::string LossPlot(const v1::JobCurves& curves);
// The skew of experts over the steps. Empty if no step has experts.
std::string ExpertLoadPlot(const v1::JobCurves& curves);

// An event that stopped a job's training, and how the job continued.
struct Recovery {
  int64_t time_unix_ns = 0;
  std::string kind;  // kind of the event that stopped the job
  std::string reason;
  std::string fault;       // the attribution of the failure; empty: unknown
  bool goes_on = false;    // the job trained again
  int64_t away_ns = 0;     // time from the event until all ranks train again
  int64_t from_step = -1;  // the first step after the job continued; -1: unknown
  int64_t done_again = 0;  // number of steps that were repeated
  std::string resumed;     // text of the event that says how the job continued: from which checkpoint, with which plan
};
std::vector<Recovery> RecoveriesOf(const v1::Job& job, const v1::JobCurves& curves);

}  // namespace lynx

#endif  // LYNX_REPORT_JOB_REPORT_H_
