// Measures the controller with thousands of nodes and jobs: how long its decisions take. One thread makes all of them. The
// times are those of single steps of the state machine, without store and network; the percentiles are over all steps of a
// kind.
//
//   controller_bench [NODES [DEVICES_PER_NODE]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/controller/controller.h"

namespace lynx::server {
namespace {

constexpr int32_t kGang = 1024;

JobSpec SpecOf(const std::string& name, int32_t ranks) {
  JobSpec spec;
  spec.name = name;
  spec.model = {.layers = 8, .hidden = 64, .heads = 8, .seq = 32};
  spec.data.path = "/data/text";
  spec.train.steps = 100'000;
  spec.train.global_batch = 1024;
  spec.resources.min_ranks = spec.resources.max_ranks = ranks;
  Normalize(spec);
  return spec;
}

class Scale {
 public:
  Scale(int nodes, int devices) : controller_(Options()), nodes_(nodes), devices_(devices) {}

  void Attach() {
    for (int i = 0; i < nodes_; ++i) {
      const NodeId name(absl::StrCat("node", i));
      AgentState agent{.node = name, .boot = "a"};
      for (int d = 0; d < devices_; ++d)
        agent.devices.push_back({.index = d, .model = "bench", .memory = Bytes(int64_t{1} << 34), .cores = {d}});
      agent.profile = std::make_shared<const HardwareProfile>(StatedCpuProfile());
      Step("agent attaches", AgentReported{++stream_, "10.0.0.1", agent});
      ++stream_;
      Step("worker attaches", WorkerReported{stream_, "10.0.0.1", StateOf(stream_)});
    }
  }

  // Submits a job. If the controller starts it, the request for its plan is kept in plans_.
  void Submit(const std::string& kind, const std::string& name, int32_t ranks) {
    const std::string id = absl::StrCat("j", ++jobs_);
    Step(kind, JobSubmitted{jobs_, JobId(id), id, SpecOf(name, ranks), id});
  }

  void AnswerPlans(const std::string& kind) {
    for (const PlanJob& ask : std::exchange(plans_, {})) {
      Plan plan;
      plan.model = ask.request.spec.model;
      plan.layout = {8, 8, ask.request.spec.resources.max_ranks / 64};
      if (ask.request.spec.resources.max_ranks < 64) plan.layout = {1, 1, ask.request.spec.resources.max_ranks};
      plan.micro_batch = 1;
      plan.microbatches = 1;
      plan.step = Nanos(100'000'000);
      plan.digest = std::string(64, 'd');
      plan.stages.resize(static_cast<size_t>(plan.layout.pp));
      Step(kind, PlanReady{ask.job, ask.attempt, std::make_shared<const Plan>(plan), nullptr});
    }
  }

  // Does what the worker daemons would do, until the controller sends them no further orders. Each rank listens, begins, and
  // ends at once.
  void Obey(const std::string& kind) {
    while (!told_.empty()) {
      for (auto& [stream, desired] : std::exchange(told_, {})) {
        WorkerState state = StateOf(stream);
        for (const RankAssignment& rank : desired.ranks) {
          const bool begins = rank.peers != nullptr;
          state.ranks.push_back(
              {.key = rank.key, .phase = begins ? RankPhase::kExited : RankPhase::kListening, .host = "10.0.0.1", .port = 1});
          if (!begins) continue;
          state.messages.push_back({.key = rank.key, .sequence = 1, .report = RankReady{}});
          state.messages.push_back({.key = rank.key, .sequence = 2, .report = RankDone{rank.spec->train.steps}});
        }
        Step(kind, WorkerReported{stream, "10.0.0.1", std::move(state)});
      }
    }
  }

  void Heartbeat(const std::string& kind, int node) {
    Step(kind, WorkerReported{2 * node + 2, "10.0.0.1", StateOf(2 * node + 2)});
  }

  void Tick(const std::string& kind) {
    now_ += Nanos(6'000'000'000);
    Step(kind, lynx::server::Tick{});
  }

  void Print() {
    std::printf("%-34s %8s %10s %10s %10s\n", "step", "count", "p50 ms", "p99 ms", "most ms");
    for (auto& [kind, times] : times_) {
      std::sort(times.begin(), times.end());
      const auto at = [&](double share) { return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))]; };
      std::printf("%-34s %8zu %10.3f %10.3f %10.3f\n", kind.c_str(), times.size(), at(0.5), at(0.99), times.back());
    }
  }

 private:
  static ControllerOptions Options() {
    ControllerOptions options;
    options.wanted_shapes = [](const JobSpec&, const ClusterTopology&) { return std::vector<LayerShape>(); };
    return options;
  }

  void Step(const std::string& kind, EventBody body) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Effect> effects = controller_.Step({now_, now_, std::move(body)});
    times_[kind].push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    for (Effect& effect : effects) {
      if (auto* plan = std::get_if<PlanJob>(&effect)) plans_.push_back(std::move(*plan));
      if (auto* desired = std::get_if<SendWorker>(&effect)) told_[desired->stream] = std::move(desired->desired);
    }
  }

  // The stream number of a node's agent is one less than that of its worker daemon.
  WorkerState StateOf(int64_t stream) {
    return {.node = NodeId(absl::StrCat("node", stream / 2 - 1)),
            .boot = "w",
            .address = "10.0.0.1",
            .number = ++reports_,
            .witness_port = 1};
  }

  Controller controller_;
  const int nodes_, devices_;
  Nanos now_{1'000'000'000'000};
  int64_t stream_ = 0, jobs_ = 0, reports_ = 0;
  std::vector<PlanJob> plans_;
  std::map<int64_t, WorkerDesired> told_;  // the newest orders for each worker daemon, by stream number
  std::map<std::string, std::vector<double>> times_;
};

}  // namespace
}  // namespace lynx::server

int main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 10'000;
  const int devices = argc > 2 ? std::atoi(argv[2]) : 8;
  lynx::server::Scale scale(nodes, devices);
  scale.Attach();
  for (int second = 0; second < 10; ++second) {
    for (int i = 0; i < 200; ++i) scale.Submit("small job is submitted", "small", 1);
    scale.Tick("200 small jobs begin");
    scale.AnswerPlans("small job is placed");
    scale.Obey("small job's rank reports");
    for (int i = 0; i < 2000; ++i) scale.Heartbeat("worker reports", (2000 * second + i) % nodes);
  }
  for (int i = 0; i < nodes * devices / lynx::server::kGang; ++i) {
    scale.Submit("gang is submitted", "gang", lynx::server::kGang);
    scale.Tick("gang's devices are reserved");
    scale.AnswerPlans("gang is placed");
  }
  // Now gangs (jobs of kGang ranks) hold all devices, so the next jobs wait.
  for (int i = 0; i < 2'000; ++i) scale.Submit("gang is submitted", "waits", lynx::server::kGang);
  for (int i = 0; i < 100; ++i) scale.Tick("2,000 waiting jobs are looked at");
  scale.Print();
  return 0;
}
