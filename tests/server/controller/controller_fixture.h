// A cluster around a Controller. It runs on one thread, and the test moves its clock. Agents and workers do at once what they
// should do. A planner answers with a given layout. A store keeps what was written, and the controller can be restarted from
// this store.
#ifndef LYNX_TESTS_SERVER_CONTROLLER_CONTROLLER_FIXTURE_H_
#define LYNX_TESTS_SERVER_CONTROLLER_CONTROLLER_FIXTURE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/controller/controller.h"

namespace lynx::server::testing {

inline JobSpec MakeSpec(const std::string& name, int32_t min_ranks, int32_t max_ranks) {
  JobSpec spec;
  spec.name = name;
  spec.model = {.layers = 4, .hidden = 64, .heads = 4, .seq = 32};
  spec.data.path = "/data/text";
  spec.train.steps = 100;
  spec.train.global_batch = 16;
  spec.resources.min_ranks = min_ranks;
  spec.resources.max_ranks = max_ranks;
  Normalize(spec);
  return spec;
}

inline std::shared_ptr<const Plan> MakeTestPlan(const JobSpec& spec, const ParallelLayout& layout) {
  Plan plan;
  plan.model = spec.model;
  plan.layout = layout;
  plan.micro_batch = 1;
  plan.microbatches = spec.train.global_batch / layout.dp;
  plan.step = Nanos(1'000'000);
  plan.digest = std::string(64, 'd');
  for (int32_t stage = 0; stage < layout.pp; ++stage) {
    StagePlan part;
    part.slices = {{.stage = stage,
                    .first_layer = spec.model.layers * stage / layout.pp,
                    .end_layer = spec.model.layers * (stage + 1) / layout.pp,
                    .policy = {}}};
    plan.stages.push_back(part);
  }
  return std::make_shared<const Plan>(plan);
}

struct FakeRank {
  RankAssignment assignment;
  RankObservation seen;
  int64_t sequence = 0;
  std::vector<RankMessage> unacknowledged;
  bool released = false;
  std::optional<RankMessage> last_words;  // the rank sends them when it is asked to end
};

struct FakeNode {
  std::string name;
  int devices = 2;
  int64_t agent_stream = 0, worker_stream = 0;  // 0 = not attached
  std::string agent_boot = "a", worker_boot = "w";
  AgentState agent;
  AgentDesired wanted;
  std::map<RankKey, FakeRank> ranks;
  bool obedient = true;  // the daemon does at once what the server wants
  bool leases = false;   // true if its daemon knows leases
  bool hears = true;     // true if renewals reach it
  int64_t reports = 0;
  std::optional<LeaseRenewal> renewal;  // the newest renewal
  std::optional<WorkerDesired> last_wish;
  std::set<JobId> copies;             // the jobs whose copies are in its memory
  std::vector<WorkerDesired> wishes;  // all desired states that it received
  std::vector<RankLogLines> logs;
  int32_t witness_port() const { return 4000 + std::stoi(name.substr(1)); }  // n3: 4003
};

class Cluster {
 public:
  explicit Cluster(ControllerOptions options = {}) : options_(std::move(options)) {
    if (!options_.wanted_shapes) {
      options_.wanted_shapes = [](const JobSpec& spec, const ClusterTopology&) {
        return std::vector<LayerShape>{ShapeOf(spec.model, ParallelLayout{}, 1)};
      };
    }
    controller_ = std::make_unique<Controller>(options_);
  }

  // ---- time ----
  void Advance(double seconds, double step = 0.25) {
    const Nanos end = now_ + NanosFromSeconds(seconds);
    while (now_ < end) {
      now_ = std::min(now_ + NanosFromSeconds(step), end);
      Send(Tick{});
      Settle();
    }
  }

  // ---- clients ----
  // Returns the job's id. If the job was refused, returns an empty id, and `last_reply` says why.
  JobId Submit(const JobSpec& spec, const std::string& key = "") {
    const std::string id = "j" + std::to_string(++submissions_);
    const std::string digest = spec.name + std::to_string(spec.train.steps);
    Send(JobSubmitted{++requests_, JobId(id), key.empty() ? id : key, spec, digest});
    const JobId job = last_reply_->job;
    Settle();
    return job;
  }
  void Hold(const JobId& id, const std::string& reason = "") {
    Send(HoldRequested{++requests_, id, reason});
    Settle();
  }
  void Release(const JobId& id) {
    Send(ReleaseRequested{++requests_, id});
    Settle();
  }
  void SetCordon(const std::string& node, std::optional<Cordon> cordon) {
    Send(CordonRequested{++requests_, NodeId(node), std::move(cordon)});
    Settle();
  }
  void SetQueue(const QueueConfig& queue) {
    Send(QueueRequested{++requests_, queue});
    Settle();
  }
  void Cancel(const JobId& id, const std::string& reason = "") {
    Send(CancelRequested{++requests_, id, reason});
    Settle();
  }

  // Cancels with a checkpoint, if the ranks write one within `grace` (0: the usual time).
  void Leave(const JobId& id, Nanos grace = Nanos(0)) {
    Send(CancelRequested{++requests_, id, "enough", true, grace});
    Settle();
  }

  // ---- nodes ----
  FakeNode& Node(const std::string& name) { return nodes_.at(name); }
  void AddNode(const std::string& name, int devices = 2, DeviceKind kind = DeviceKind::kCpu) {
    FakeNode& node = nodes_[name];
    node.name = name;
    node.devices = devices;
    node.agent.node = NodeId(name);
    for (int i = 0; i < devices; ++i) {
      Device device{.index = i, .kind = kind, .model = "test", .memory = Bytes(1 << 30), .cores = {i}};
      if (kind == DeviceKind::kCuda) device.uuid = "GPU-" + name + "-" + std::to_string(i);
      node.agent.devices.push_back(std::move(device));
    }
    AttachAgent(name);
    AttachWorker(name);
    Settle();
  }
  void AttachAgent(const std::string& name) {
    FakeNode& node = Node(name);
    node.agent.boot = node.agent_boot;
    node.agent_stream = ++streams_;
    Send(AgentReported{node.agent_stream, "10.0.0.1", node.agent});
  }
  void AttachWorker(const std::string& name) {
    Node(name).worker_stream = ++streams_;
    Report(name);
  }
  void DetachAgent(const std::string& name) { Send(AgentGone{std::exchange(Node(name).agent_stream, 0)}); }
  void DetachWorker(const std::string& name) { Send(WorkerGone{std::exchange(Node(name).worker_stream, 0)}); }
  // Reports the worker's full state as it is now.
  void Report(const std::string& name) {
    FakeNode& node = Node(name);
    if (node.worker_stream == 0) return;
    WorkerState state{.node = NodeId(name), .boot = node.worker_boot, .address = "10.0.0.1"};
    for (const auto& [key, rank] : node.ranks) {
      state.ranks.push_back(rank.seen);
      state.messages.insert(state.messages.end(), rank.unacknowledged.begin(), rank.unacknowledged.end());
    }
    for (const RankMessage& message : orphans_[name]) state.messages.push_back(message);
    state.logs = std::exchange(node.logs, {});
    if (node.leases) {
      state.number = ++node.reports;
      state.witness_port = node.witness_port();
      if (node.hears && node.renewal.has_value()) state.renewed = node.renewal->report;
    }
    state.copies = node.copies;
    Send(WorkerReported{node.worker_stream, "10.0.0.1", state});
  }

  // ---- ranks ----
  FakeRank* RankOf(const JobId& job, int32_t rank) {
    FakeRank* newest = nullptr;
    for (auto& [name, node] : nodes_) {
      for (auto& [key, fake] : node.ranks) {
        if (key.job != job || key.rank != rank) continue;
        if (newest == nullptr || newest->seen.key.generation < key.generation) newest = &fake;
      }
    }
    return newest;
  }
  std::string NodeOfRank(const JobId& job, int32_t rank) {
    return Record(job).ranks.at(static_cast<size_t>(rank)).where.node.value;
  }
  template <class Body>
  void Say(const JobId& job, int32_t rank, Body body, bool report = true) {
    FakeRank* fake = RankOf(job, rank);
    ASSERT_NE(fake, nullptr) << "rank " << rank;
    fake->unacknowledged.push_back({fake->assignment.key, ++fake->sequence, body});
    if (report) Deliver(fake->assignment.key);
  }
  void Exit(const JobId& job, int32_t rank, int code, const std::string& reason = "", bool peer_lost = false) {
    FakeRank* fake = RankOf(job, rank);
    ASSERT_NE(fake, nullptr) << "rank " << rank;
    fake->seen.phase = RankPhase::kExited;
    fake->seen.exit_code = code;
    fake->seen.reason = reason;
    fake->seen.peer_lost = peer_lost;
    Deliver(fake->assignment.key);
  }
  void SayAll(const JobId& job, const std::function<RankMessage(int32_t)>& make) {
    for (int32_t r = 0; r < Ranks(job); ++r) {
      FakeRank* fake = RankOf(job, r);
      ASSERT_NE(fake, nullptr) << "rank " << r;
      RankMessage message = make(r);
      message.key = fake->assignment.key;
      message.sequence = ++fake->sequence;
      fake->unacknowledged.push_back(message);
    }
    ReportAll();
  }
  void AllReady(const JobId& job, int64_t next_step = 0) {
    SayAll(job, [&](int32_t) { return RankMessage{.report = RankReady{.next_step = next_step}}; });
  }
  void StepAll(const JobId& job, int64_t step) {
    SayAll(job, [&](int32_t) {
      return RankMessage{.report = StepReport{.step = step,
                                              .loss = 5.0 - static_cast<double>(step) / 100,
                                              .tokens = 512,
                                              .duration = Nanos(100'000'000),
                                              .forward = Nanos(30'000'000)}};
    });
  }
  void FinishAll(const JobId& job) {
    SayAll(job, [&](int32_t) { return RankMessage{.report = RankDone{100}}; });
    for (int32_t r = 0; r < Ranks(job) && !IsFinal(State(job)); ++r) Exit(job, r, 0);
    ReportAll();
  }
  int32_t Ranks(const JobId& job) { return static_cast<int32_t>(Record(job).ranks.size()); }

  // ---- planner ----
  // Answers every waiting request for a plan with this layout.
  void AnswerPlans(const ParallelLayout& layout) {
    for (const PlanJob& plan : std::exchange(plans_, {})) {
      Send(PlanReady{plan.job, plan.attempt, MakeTestPlan(plan.request.spec, layout),
                     std::make_shared<const ClusterTopology>(plan.request.cluster)});
    }
    Settle();
  }
  template <class Result>
  // `beside`: the time that a step takes now with the jobs' present plans.
  void AnswerPlansWith(const Result& result, Nanos beside = Nanos(0)) {
    for (const PlanJob& plan : std::exchange(plans_, {})) Send(PlanReady{plan.job, plan.attempt, result, nullptr, beside});
    Settle();
  }
  const std::vector<PlanJob>& plans() const { return plans_; }
  // Lets the node's agent measure everything that the server asks for.
  void Measure(const std::string& name) {
    FakeNode& node = Node(name);
    HardwareProfile profile = node.agent.profile != nullptr ? *node.agent.profile : StatedCpuProfile();
    for (const LayerShape& shape : node.wanted.shapes) {
      ShapeTimes& times = profile.measured.emplace_back(ShapeTimes{.shape = shape});
      for (OpTimes& op : times.ops) op.forward = Nanos(1'000);
    }
    node.agent.profile = std::make_shared<const HardwareProfile>(profile);
    Send(AgentReported{node.agent_stream, "10.0.0.1", node.agent});
    Settle();
  }
  void MeasureAll() {
    for (auto& [name, node] : nodes_) {
      if (node.agent_stream != 0) Measure(name);
    }
  }

  // Submits a job and brings it to RUNNING.
  JobId Run(const JobSpec& spec, const ParallelLayout& layout) {
    const JobId job = Submit(spec);
    MeasureAll();
    AnswerPlans(layout);
    AllReady(job);
    return job;
  }

  // ---- the server ----
  // Has the effect of kill -9 and a restart: the controller begins with what was written, and all streams are gone.
  void RestartServer() {
    std::vector<Controller::StoredJob> jobs;
    for (const auto& [id, record] : stored_) {
      const auto plan = stored_plans_.find(id);
      const bool has = plan != stored_plans_.end() && !IsFinal(record.state) && !record.plan_digest.empty();
      jobs.push_back({record, has ? plan->second : nullptr});
    }
    plans_.clear();
    for (auto& [name, node] : nodes_) node.agent_stream = node.worker_stream = 0;
    controller_ = std::make_unique<Controller>(options_);
    controller_->RestoreSettings(settings_);
    Carry(controller_->Restore(jobs, now_, now_));
  }
  Controller& controller() { return *controller_; }
  const JobRecord& Record(const JobId& id) const { return *controller_->Find(id); }
  const JobRecord& Stored(const JobId& id) const { return stored_.at(id); }
  size_t StoredJobs() const { return stored_.size(); }
  JobState State(const JobId& id) const { return Record(id).state; }
  // Returns the kinds of the job's events in the store, as "kind kind kind".
  std::string Kinds(const JobId& id) {
    std::string text;
    for (const JobEvent& event : events_[id]) text += (text.empty() ? "" : " ") + event.kind;
    return text;
  }
  const std::vector<JobEvent>& Events(const JobId& id) { return events_[id]; }
  const std::optional<Reply>& last_reply() const { return last_reply_; }
  const std::map<int64_t, absl::Status>& closed() const { return closed_; }
  const std::vector<InsertCheckpoint>& checkpoints() const { return checkpoints_; }
  int64_t updates() const { return updates_; }
  const StepTrace* TraceOf(const JobId& id) const { return traces_.contains(id) ? &traces_.at(id) : nullptr; }
  void AddOrphan(const std::string& node, const RankMessage& message) { orphans_[node].push_back(message); }
  const std::vector<RankMessage>& Strays(const std::string& node) { return orphans_[node]; }

  void Send(EventBody body) { Carry(controller_->Step({now_, now_, std::move(body)})); }
  // Lets obedient workers do what they should do and report it, until nothing changes.
  void Settle() {
    for (int round = 0; round < 20; ++round) {
      bool changed = false;
      for (auto& [name, node] : nodes_) {
        if (!node.obedient || !node.last_wish.has_value() || node.worker_stream == 0) continue;
        if (Obey(node)) {
          Report(name);
          changed = true;
        }
      }
      if (!changed) return;
    }
    FAIL() << "the cluster does not settle";
  }
  void ReportAll() {
    for (auto& [name, node] : nodes_) Report(name);
    Settle();
  }

 private:
  void Deliver(const RankKey& key) {
    for (auto& [name, node] : nodes_) {
      if (node.ranks.contains(key)) {
        Report(name);
        break;
      }
    }
    Settle();
  }

  bool Obey(FakeNode& node) {
    const WorkerDesired desired = *std::exchange(node.last_wish, std::nullopt);
    bool changed = false;
    std::map<RankKey, FakeRank> kept;
    for (const RankAssignment& assignment : desired.ranks) {
      auto known = node.ranks.find(assignment.key);
      FakeRank rank;
      if (known != node.ranks.end()) {
        rank = known->second;
      } else {
        rank.seen = {.key = assignment.key, .phase = RankPhase::kListening, .host = "10.0.0.1", .port = ++ports_};
        changed = true;
      }
      rank.assignment = assignment;
      if (assignment.peers != nullptr && rank.seen.phase == RankPhase::kListening) {
        rank.seen.phase = RankPhase::kRunning;
        changed = true;
      }
      kept[assignment.key] = rank;
    }
    for (auto& [key, rank] : node.ranks) {
      if (kept.contains(key) || rank.seen.phase == RankPhase::kListening || rank.released) continue;
      changed = End(rank) || changed;
      kept[key] = rank;
    }
    changed = changed || kept.size() != node.ranks.size();
    node.ranks = std::move(kept);
    return changed;
  }

  // Ends a rank that the server does not want any more. The rank stays in the reports until the server releases it. Returns
  // false if it had already ended.
  static bool End(FakeRank& rank) {
    if (rank.seen.phase == RankPhase::kExited) return false;
    rank.seen.phase = RankPhase::kExited;
    rank.seen.exit_code = 4;
    if (rank.last_words.has_value()) {
      rank.last_words->key = rank.seen.key;
      rank.last_words->sequence = ++rank.sequence;
      rank.unacknowledged.push_back(*rank.last_words);
    }
    return true;
  }

  void Acknowledge(FakeNode& node, const WorkerDesired& desired) {
    for (const ReportAck& ack : desired.acks) {
      if (const auto rank = node.ranks.find(ack.key); rank != node.ranks.end()) {
        std::erase_if(rank->second.unacknowledged, [&](const RankMessage& m) { return m.sequence <= ack.sequence; });
        rank->second.released = rank->second.released || ack.released;
      }
      std::erase_if(orphans_[node.name], [&](const RankMessage& m) { return m.key == ack.key && m.sequence <= ack.sequence; });
    }
  }

  void Carry(std::vector<Effect> effects) {
    for (Effect& effect : effects) {
      if (auto* insert = std::get_if<InsertJob>(&effect)) {
        EXPECT_TRUE(stored_.emplace(insert->job.id, insert->job).second);
      } else if (auto* update = std::get_if<UpdateJob>(&effect)) {
        ++updates_;
        stored_.at(update->job.id) = update->job;
      } else if (auto* plan = std::get_if<InsertPlan>(&effect)) {
        stored_plans_[plan->job] = plan->plan;
      } else if (auto* trace = std::get_if<InsertTrace>(&effect)) {
        traces_[trace->job] = trace->trace;
      } else if (auto* event = std::get_if<InsertEvent>(&effect)) {
        EXPECT_EQ(event->event.sequence, static_cast<int64_t>(events_[event->job].size()) + 1);
        events_[event->job].push_back(event->event);
      } else if (auto* checkpoint = std::get_if<InsertCheckpoint>(&effect)) {
        checkpoints_.push_back(*checkpoint);
      } else if (auto* drop = std::get_if<DeleteJob>(&effect)) {
        EXPECT_EQ(stored_.erase(drop->job), 1u);
        stored_plans_.erase(drop->job);
      } else if (auto* cordon = std::get_if<PutCordon>(&effect)) {
        settings_.cordons.erase(cordon->node);
        if (cordon->cordon.has_value()) settings_.cordons[cordon->node] = *cordon->cordon;
      } else if (auto* node = std::get_if<PutNode>(&effect)) {
        std::erase(settings_.nodes, node->node);
        if (!node->forgotten) settings_.nodes.push_back(node->node);
      } else if (auto* queue = std::get_if<PutQueue>(&effect)) {
        std::erase_if(settings_.queues, [&](const QueueConfig& known) { return known.name == queue->queue.name; });
        settings_.queues.push_back(queue->queue);
      } else if (auto* ask = std::get_if<PlanJob>(&effect)) {
        plans_.push_back(*ask);
      } else if (auto* agent = std::get_if<SendAgent>(&effect)) {
        for (auto& [name, node] : nodes_) {
          if (node.agent_stream == agent->stream) node.wanted = agent->desired;
        }
      } else if (auto* renew = std::get_if<RenewLease>(&effect)) {
        for (auto& [name, node] : nodes_) {
          if (node.worker_stream == renew->stream) node.renewal = renew->renewal;
        }
      } else if (auto* worker = std::get_if<SendWorker>(&effect)) {
        for (auto& [name, node] : nodes_) {
          if (node.worker_stream != worker->stream) continue;
          Acknowledge(node, worker->desired);
          node.last_wish = worker->desired;
          node.wishes.push_back(worker->desired);
        }
      } else if (auto* close = std::get_if<CloseStream>(&effect)) {
        closed_[close->stream] = close->reason;
      } else if (auto* reply = std::get_if<Reply>(&effect)) {
        last_reply_ = *reply;
      }
    }
  }

  ControllerOptions options_;
  std::unique_ptr<Controller> controller_;
  Nanos now_{1'000'000'000'000};
  std::map<std::string, FakeNode> nodes_;
  Controller::Settings settings_;  // stored
  std::map<JobId, JobRecord> stored_;
  std::map<JobId, std::shared_ptr<const Plan>> stored_plans_;
  std::map<JobId, std::vector<JobEvent>> events_;
  std::vector<InsertCheckpoint> checkpoints_;
  std::map<JobId, StepTrace> traces_;
  std::map<int64_t, absl::Status> closed_;
  std::map<std::string, std::vector<RankMessage>> orphans_;
  std::vector<PlanJob> plans_;
  std::optional<Reply> last_reply_;
  int64_t submissions_ = 0, requests_ = 0, streams_ = 0, updates_ = 0;
  int32_t ports_ = 4000;
};

}  // namespace lynx::server::testing

#endif  // LYNX_TESTS_SERVER_CONTROLLER_CONTROLLER_FIXTURE_H_
