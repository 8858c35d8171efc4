// JobReport: a job as one self-contained page: what was predicted and measured, what was recomputed where and what that cost
// and saved, what memory holds, how the run went, and what it recovered from. Plots are inline SVG; no script, no network;
// every plot has its numbers as a table. Pure; thread-safe.
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

// What a page is made of. Not owned.
struct JobReport {
  const v1::Job* job = nullptr;  // with its events
  const v1::JobCurves* curves = nullptr;
  const Plan* plan = nullptr;                    // null: it was never planned. Programs are needed only where `traced` is set
  const TracedJob* traced = nullptr;             // null: no step of its plan has been traced
  const PolicyComparison* comparison = nullptr;  // other policies in its layout; null: not made
  std::string version;                           // of this program
  Nanos now;                                     // Unix time
};

// FailedPrecondition as MemoryOf. The same input gives the same bytes.
absl::StatusOr<std::string> JobReportPage(const JobReport& report);

// The same page part by part, for a page that is brought up to date: first "head", what stands in its header, then each section
// that there is something to say in. The ids are those of the sections.
struct ReportPart {
  std::string id;
  std::string html;
};
absl::StatusOr<std::vector<ReportPart>> JobReportParts(const JobReport& report);

// ---- Parts of the page, each a part of a section's HTML; "" where there is nothing to say. ----

// "<section ...>": with a heading, and a remark beside it.
std::string ReportSection(const std::string& id, const std::string& title, const std::string& aside,
                          const std::string& content);
// A table that stands below a plot, folded.
std::string FoldedTable(const Table& table);

// The lanes of each stage, predicted above measured.
std::string StepPlot(const TracedJob& traced);
// What a device of the fullest stage holds, kind by kind, and over the step.
absl::StatusOr<std::string> MemoryPlots(const TracedJob& traced);
// The same from the plan's figures alone.
std::string PlannedMemory(const Plan& plan);
// What a device of each stage holds at its peak, planned and measured.
std::string StagesMemory(const Plan& plan, const v1::Job& job);
// States and throughput over the time, and losses over the steps.
std::string RunPlot(const v1::Job& job, const v1::JobCurves& curves, Nanos now);
std::string LossPlot(const v1::JobCurves& curves);

// What stopped a job's training, and how it went on.
struct Recovery {
  int64_t time_unix_ns = 0;
  std::string kind;  // of the event that stopped it
  std::string reason;
  std::string fault;       // whose fault it was found to be; "" = not known
  bool goes_on = false;    // it trained again
  int64_t away_ns = 0;     // from the event until all ranks ran again
  int64_t from_step = -1;  // the first step afterwards; -1 = not known
  int64_t done_again = 0;  // steps that had been done before
  std::string resumed;     // what the event of the restart says: from which checkpoint, on which plan
};
std::vector<Recovery> RecoveriesOf(const v1::Job& job, const v1::JobCurves& curves);

}  // namespace lynx

#endif  // LYNX_REPORT_JOB_REPORT_H_
