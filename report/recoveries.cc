// Recoveries: what stopped a job, and how it continued. See job_report.h.
#include <algorithm>
#include <optional>
#include <vector>

#include "proto/event_kind.h"
#include "report/job_report.h"

namespace lynx {
namespace {

bool Stops(const v1::JobEvent& event) {
  if (event.state() != v1::JOB_STATE_RUNNING && event.state() != v1::JOB_STATE_STARTING) return false;
  const std::optional<EventKind> kind = ParseEventKind(event.kind());
  return kind && InfoOf(*kind).stops;
}

// True if events of this kind say how the job continues.
bool SaysHow(std::optional<EventKind> kind) {
  using enum EventKind;
  return kind == kRestarting || kind == kReplanned || kind == kResuming || kind == kMoving || kind == kPlanned ||
         kind == kPlaced || kind == kResumed;
}

// Sets from_step, the first step after the ranks ran again, and done_again, the number of steps that the job repeats from
// there.
void FillSteps(Recovery& recovery, int64_t running_unix_ns, const v1::JobCurves& curves) {
  int64_t done = 0;
  int64_t generation = 0;
  for (const v1::StepPoint& point : curves.steps()) {
    if (point.time_unix_ns() <= recovery.time_unix_ns) {
      done = std::max(done, point.first_step() + point.steps());
      generation = point.generation();
    } else if (point.generation() > generation && point.time_unix_ns() >= running_unix_ns) {
      recovery.from_step = point.first_step();
      recovery.done_again = std::max<int64_t>(0, done - point.first_step());
      return;
    }
  }
}

}  // namespace

std::vector<Recovery> RecoveriesOf(const v1::Job& job, const v1::JobCurves& curves) {
  std::vector<Recovery> recoveries;
  bool stopped = false;
  for (const v1::JobEvent& event : job.events()) {
    if (!stopped && Stops(event)) {
      recoveries.push_back({.time_unix_ns = event.time_unix_ns(), .kind = event.kind(), .reason = event.reason()});
      stopped = true;
      continue;
    }
    if (!stopped) continue;
    Recovery& recovery = recoveries.back();
    const std::optional<EventKind> kind = ParseEventKind(event.kind());
    if (kind == EventKind::kFault) recovery.fault = event.reason();
    if (SaysHow(kind)) recovery.resumed = event.reason();
    // The job's ranks have not given way and continue to train, so there is nothing to recover from.
    if (kind == EventKind::kGoesOn || kind == EventKind::kReplanKept) {
      recoveries.pop_back();
      stopped = false;
    } else if (kind == EventKind::kRunning) {
      recovery.goes_on = true;
      recovery.away_ns = event.time_unix_ns() - recovery.time_unix_ns;
      recovery.resumed = event.reason();
      FillSteps(recovery, event.time_unix_ns(), curves);
      stopped = false;
    }
  }
  return recoveries;
}

}  // namespace lynx
