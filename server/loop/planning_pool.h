// PlanningPool: threads that make plans, so that the owner thread never waits for a plan. If a request's nodes are of several
// kinds, the plan is made for their fastest arrangement. Thread-safe. The caller limits the number of requests: each job has at
// most one request in the pool.
#ifndef LYNX_SERVER_LOOP_PLANNING_POOL_H_
#define LYNX_SERVER_LOOP_PLANNING_POOL_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/plan/plan.h"
#include "server/values/events.h"

namespace lynx::server {

class PlanningPool {
 public:
  using Planner = std::function<absl::StatusOr<PlanResult>(const PlanRequest&)>;
  // Called on a thread of the pool. `trigger`: the trigger of the PlanJob; `took`: how long the planner took.
  using Done = std::function<void(PlanReady ready, PlanTrigger trigger, Nanos took)>;

  PlanningPool(int threads, Planner planner, Done done);
  ~PlanningPool() { Stop(); }

  void Post(PlanJob job);
  // After Stop no plan begins and no result is delivered. A plan in progress cannot be interrupted: Stop waits for it for half
  // a second. If it takes longer, its thread runs on until the process ends.
  void Stop();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the threads
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_PLANNING_POOL_H_
