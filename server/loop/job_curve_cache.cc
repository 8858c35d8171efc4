// See job_curve_cache.h.
#include "server/loop/job_curve_cache.h"

#include <utility>
#include <vector>

namespace lynx::server {

JobCurveCache::Entry& JobCurveCache::EntryOf(const JobId& job) {
  const auto [found, added] = jobs_.try_emplace(job);
  if (!added) return found->second;
  // Continues the curves that an earlier server stored. If they cannot be read, new curves begin here.
  absl::StatusOr<JobCurves> kept = store_.LoadCurves(job);
  if (kept.ok()) found->second.curves = *std::move(kept);
  return found->second;
}

void JobCurveCache::Step(const JobRecord& job, const StepRecorded& step, Nanos wall) {
  Entry& entry = EntryOf(job.id);
  entry.curves.AddStep(job.generation, step.step, wall);
  entry.changed = true;
}

void JobCurveCache::Evaluated(const JobRecord& job, const EvaluationRecorded& evaluation) {
  Entry& entry = EntryOf(job.id);
  entry.curves.AddEvaluation(job.progress.validation_step, evaluation.loss);
  entry.changed = true;
}

absl::StatusOr<JobCurves> JobCurveCache::Of(const JobId& job) {
  const auto found = jobs_.find(job);
  if (found != jobs_.end()) return found->second.curves;
  return store_.LoadCurves(job);
}

void JobCurveCache::Write(Nanos now, const std::function<const JobRecord*(const JobId&)>& find) {
  std::vector<StoredCurves> due;
  std::vector<JobId> over;
  for (auto& [id, entry] : jobs_) {
    const JobRecord* const job = find(id);
    const bool ended = job == nullptr || IsFinal(job->state);
    if (entry.written == Nanos(0)) entry.written = now;
    if (entry.changed && (ended || now - entry.written >= kWriteEvery)) due.push_back({id, &entry.curves});
    if (ended) over.push_back(id);
  }
  if (!due.empty() && !store_.PutCurves(due).ok()) return;
  for (const StoredCurves& one : due) {
    Entry& entry = jobs_.at(one.job);
    entry.changed = false;
    entry.written = now;
  }
  for (const JobId& id : over) jobs_.erase(id);
}

void JobCurveCache::WriteAll() {
  std::vector<StoredCurves> due;
  for (auto& [id, entry] : jobs_) {
    if (std::exchange(entry.changed, false)) due.push_back({id, &entry.curves});
  }
  // The server is ending. If this write fails, the store still has curves that are at most half a minute old, so the error is
  // ignored.
  if (!due.empty()) (void)store_.PutCurves(due);
}

}  // namespace lynx::server
