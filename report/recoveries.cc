// Recoveries: what stopped a job, and how it continued. See job_report.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "report/job_report.h"

namespace lynx {
namespace {

bool Stops(const v1::JobEvent& event) {
  if (event.state() != v1::JOB_STATE_RUNNING && event.state() != v1::JOB_STATE_STARTING) return false;
  for (const char* kind : {"rank-lost", "node-lost", "replan-adopted", "preempted", "held", "draining"}) {
    if (event.kind() == kind) return true;
  }
  return false;
}

bool SaysHow(const v1::JobEvent& event) {
  for (const char* kind : {"restarting", "replanned", "resuming", "moving", "planned", "placed", "resumed"}) {
    if (event.kind() == kind) return true;
  }
  return false;
}

// Fills in the first step after the ranks ran again, and how many steps from there on had been done before.
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
    if (event.kind() == "fault") recovery.fault = event.reason();
    if (SaysHow(event)) recovery.resumed = event.reason();
    if (event.kind() == "goes-on" || event.kind() == "replan-kept") {  // its ranks did not give way and continue to train
      recoveries.pop_back();
      stopped = false;
    } else if (event.kind() == "running") {
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
