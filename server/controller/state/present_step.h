// PresentStep: the time and the results of the controller's present Step. The parts of the controller add effects, and note
// which jobs, nodes and watchers the Step concerns. The controller collects all of this at the end of the Step. Not
// thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_STATE_PRESENT_STEP_H_
#define LYNX_SERVER_CONTROLLER_STATE_PRESENT_STEP_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "proto/event_kind.h"
#include "server/controller/state/live_job.h"
#include "server/values/events.h"

namespace lynx::server {

class PresentStep {
 public:
  // `now` is monotonic and never less than that of an earlier Step. `wall`: since the Unix epoch.
  void Begin(Nanos now, Nanos wall);
  Nanos now() const { return now_; }
  Nanos wall() const { return wall_; }

  void Emit(Effect effect) { effects_.push_back(std::move(effect)); }
  // Adds an event of the job. It is stored, and sent to the job's watchers.
  void AddEvent(LiveJob& job, EventKind kind, const std::string& reason);
  // Changes the job's state and adds an event about it.
  void SetState(LiveJob& job, JobState state, EventKind kind, const std::string& reason);
  // Notes that the job's record must be written.
  void Touch(const LiveJob& job) { touched_.insert(job.record.id); }
  // Notes that the job's watchers must get its new state.
  void Notify(const JobId& job) { notices_[job]; }
  // Drops the notices about the job, which does not exist any more.
  void Forget(const JobId& job) { notices_.erase(job); }
  // Notes that the node's agent (TellAgent) or worker daemon (TellWorker) must get a new desired state.
  void TellAgent(const NodeId& node) { agents_.insert(node); }
  void TellWorker(const NodeId& node) { workers_.insert(node); }
  // Calls TellWorker for all nodes with ranks of the job.
  void TellNodesOf(const LiveJob& job);
  // Notes that the controller must look at the queue, because something has changed for waiting jobs.
  void LookAtQueue() { queue_changed_ = true; }

  // The controller calls these functions at the end of a Step. Each returns what was collected, and empties the collection.
  std::set<JobId> TakeTouched() { return std::exchange(touched_, {}); }
  std::set<NodeId> TakeAgents() { return std::exchange(agents_, {}); }
  std::set<NodeId> TakeWorkers() { return std::exchange(workers_, {}); }
  std::map<JobId, std::vector<JobEvent>> TakeNotices() { return std::exchange(notices_, {}); }
  std::vector<Effect> TakeEffects() { return std::exchange(effects_, {}); }
  bool queue_changed() const { return queue_changed_; }
  void QueueIsLookedAt() { queue_changed_ = false; }

 private:
  Nanos now_, wall_;
  std::vector<Effect> effects_;
  std::set<JobId> touched_;
  std::map<JobId, std::vector<JobEvent>> notices_;
  std::set<NodeId> agents_, workers_;
  bool queue_changed_ = false;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_PRESENT_STEP_H_
