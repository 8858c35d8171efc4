#include "server/controller/state/present_step.h"

#include "common/check.h"

namespace lynx::server {

void PresentStep::Begin(Nanos now, Nanos wall) {
  LYNX_CHECK(now >= now_);
  now_ = now;
  wall_ = wall;
}

void PresentStep::AddEvent(LiveJob& job, EventKind kind, const std::string& reason) {
  JobEvent event{
      .sequence = ++job.record.events, .time = wall_, .state = job.record.state, .kind = EventKindName(kind), .reason = reason};
  notices_[job.record.id].push_back(event);
  Emit(InsertEvent{job.record.id, std::move(event)});
  Touch(job);  // the record contains the sequence number of the newest event
}

void PresentStep::SetState(LiveJob& job, JobState state, EventKind kind, const std::string& reason) {
  job.record.state = state;
  job.record.reason = reason;
  AddEvent(job, kind, reason);
}

void PresentStep::TellNodesOf(const LiveJob& job) {
  for (const RankRecord& rank : job.record.ranks) TellWorker(rank.where.node);
}

}  // namespace lynx::server
