// The lower parts of a controller, without the controller itself. A test adds jobs and nodes by hand.
#ifndef LYNX_TESTS_SERVER_CONTROLLER_PARTS_FIXTURE_H_
#define LYNX_TESTS_SERVER_CONTROLLER_PARTS_FIXTURE_H_

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"

namespace lynx::server::testing {

struct PartsFixture {
  ControllerOptions options;
  PresentStep step;
  JobTable jobs;
  NodeTable nodes{options, step};

  // Adds a QUEUED job for one or two ranks. It has the next submission number.
  LiveJob& AddJob(const std::string& id, const std::string& name = "small") {
    JobSpec spec;
    spec.name = name;
    spec.resources.min_ranks = 1;
    spec.resources.max_ranks = 2;
    spec.scheduling.queue = "default";
    return jobs.Add({.id = JobId(id),
                     .submission = jobs.NextSubmission(),
                     .idempotency_key = "key-" + id,
                     .spec = std::make_shared<const JobSpec>(spec)},
                    step.wall());
  }
  // Adds a node with CPU devices. Its agent and its worker daemon are attached.
  LiveNode& AddNode(const std::string& name, int devices, int64_t stream) {
    nodes.Admit(NodeTable::Party::kAgent, stream, NodeId(name), "10.0.0.1", "a");
    LiveNode& node = *nodes.Admit(NodeTable::Party::kWorker, stream + 1, NodeId(name), "10.0.0.1", "w");
    for (int i = 0; i < devices; ++i) node.agent.devices.push_back({.index = i, .model = "test", .memory = Bytes(1 << 30)});
    return node;
  }
  // Sets the time of both clocks, the monotonic one and the wall clock.
  void At(double seconds) { step.Begin(NanosFromSeconds(seconds), NanosFromSeconds(seconds)); }

  // Returns the effects of type T since the last call of this function.
  template <class T>
  std::vector<T> Take() {
    std::vector<T> found;
    for (Effect& effect : step.TakeEffects()) {
      if (T* wanted = std::get_if<T>(&effect)) found.push_back(std::move(*wanted));
    }
    return found;
  }
};

}  // namespace lynx::server::testing

#endif  // LYNX_TESTS_SERVER_CONTROLLER_PARTS_FIXTURE_H_
