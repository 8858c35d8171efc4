// PlanningPool: threads on which plans are made, so that the owner thread never waits for one. Thread-safe. Bounded by its
// user: a job has at most one request in it.
#ifndef LYNX_SERVER_LOOP_PLANNING_POOL_H_
#define LYNX_SERVER_LOOP_PLANNING_POOL_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/plan/plan.h"
#include "server/values/events.h"

namespace lynx {

class PlanningPool {
 public:
  using Planner = std::function<absl::StatusOr<PlanResult>(const PlanRequest&)>;
  // Called on a thread of the pool; `trigger`: of the PlanJob; `took`: what the planner took.
  using Done = std::function<void(PlanReady ready, PlanTrigger trigger, Nanos took)>;

  PlanningPool(int threads, Planner planner, Done done);
  ~PlanningPool() { Stop(); }

  void Post(PlanJob job);
  // No plan begins after it, and no result is delivered. A plan that is being made cannot be interrupted: it is waited for
  // half a second, then left to end with the process.
  void Stop();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the threads
};

}  // namespace lynx

#endif  // LYNX_SERVER_LOOP_PLANNING_POOL_H_
