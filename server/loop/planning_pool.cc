// See planning_pool.h.
#include "server/loop/planning_pool.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "planner/report/timeline.h"
#include "planner/search/arrangement.h"

namespace lynx::server {

struct PlanningPool::State {
  Planner planner;
  Done done;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<PlanJob> queue;
  int running = 0;  // number of threads that run
  bool stopping = false;

  void Main();
};

namespace {

// The answer to `job`. `arranged`: the request's cluster in the order for which `result` was made.
PlanReady ResultOf(const PlanJob& job, const ClusterTopology& arranged, absl::StatusOr<PlanResult> result) {
  PlanReady ready{.job = job.job, .attempt = job.attempt};
  if (!result.ok()) {
    ready.result = result.status();
  } else if (auto* plan = std::get_if<Plan>(&*result)) {
    ready.result = std::make_shared<const Plan>(std::move(*plan));
    ready.cluster = std::make_shared<const ClusterTopology>(arranged);
    if (arranged.groups != job.request.cluster.groups) ready.node_order = NodeOrder(job.request.cluster, arranged);
  } else {
    ready.result = std::get<Infeasible>(*std::move(result));
  }
  return ready;
}

PlanReady ReadyPlan(const PlanJob& job, const PlanningPool::Planner& planner) {
  if (!job.may_arrange) return ResultOf(job, job.request.cluster, planner(job.request));
  PlanRequest request = job.request;
  request.cluster = FastestArrangement(job.request);
  return ResultOf(job, request.cluster, planner(request));
}

Nanos StepBeside(const PlanJob& job) {
  const absl::StatusOr<Simulation> simulation = SimulateOn(job.beside_on, *job.beside);
  return simulation.ok() ? simulation->step : Nanos(0);
}

}  // namespace

void PlanningPool::State::Main() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !queue.empty(); });
    if (stopping) break;
    const PlanJob job = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    PlanReady ready = ReadyPlan(job, planner);
    if (job.beside != nullptr) ready.beside = StepBeside(job);
    const Nanos took(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
    lock.lock();
    // Called with the lock held, because after Stop has returned, the objects that `done` uses may not exist any more.
    if (!stopping) done(std::move(ready), job.trigger, took);
  }
  --running;
  changed.notify_all();
}

PlanningPool::PlanningPool(int threads, Planner planner, Done done) : state_(std::make_shared<State>()) {
  state_->planner = std::move(planner);
  state_->done = std::move(done);
  state_->running = threads;
  for (int i = 0; i < threads; ++i) std::thread([state = state_] { state->Main(); }).detach();
}

void PlanningPool::Post(PlanJob job) {
  std::lock_guard lock(state_->mutex);
  state_->queue.push_back(std::move(job));
  state_->changed.notify_all();
}

void PlanningPool::Stop() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, std::chrono::milliseconds(500), [this] { return state_->running == 0; });
}

}  // namespace lynx::server
