#include "tests/server/controller/controller_fixture.h"

#include <algorithm>
#include <utility>

namespace lynx::server::testing {

JobSpec MakeSpec(const std::string& name, int32_t min_ranks, int32_t max_ranks) {
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

std::shared_ptr<const Plan> MakeTestPlan(const JobSpec& spec, const ParallelLayout& layout) {
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

Cluster::Cluster(ControllerOptions options) : options_(std::move(options)) {
  if (!options_.wanted_shapes) {
    options_.wanted_shapes = [](const JobSpec& spec, const ClusterTopology&) {
      return std::vector<LayerShape>{ShapeOf(spec.model, ParallelLayout{}, 1)};
    };
  }
  controller_ = std::make_unique<Controller>(options_);
}

Cluster::~Cluster() = default;

void Cluster::Advance(double seconds, double step) {
  const Nanos end = now_ + NanosFromSeconds(seconds);
  while (now_ < end) {
    now_ = std::min(now_ + NanosFromSeconds(step), end);
    Send(Tick{});
    Settle();
  }
}

JobId Cluster::Submit(const JobSpec& spec, const std::string& key, const std::string& owner) {
  const std::string id = "j" + std::to_string(++submissions_);
  const std::string digest = spec.name + std::to_string(spec.train.steps);
  Send(JobSubmitted{++requests_, JobId(id), key.empty() ? id : key, spec, digest, owner});
  const JobId job = last_reply_->job;
  Settle();
  return job;
}

void Cluster::Hold(const JobId& id, const std::string& reason) {
  Send(HoldRequested{++requests_, id, reason});
  Settle();
}

void Cluster::Release(const JobId& id) {
  Send(ReleaseRequested{++requests_, id});
  Settle();
}

void Cluster::SetCordon(const std::string& node, std::optional<Cordon> cordon) {
  Send(CordonRequested{++requests_, NodeId(node), std::move(cordon)});
  Settle();
}

void Cluster::SetQueue(const QueueConfig& queue) {
  Send(QueueRequested{++requests_, queue});
  Settle();
}

void Cluster::Cancel(const JobId& id, const std::string& reason) {
  Send(CancelRequested{++requests_, id, reason});
  Settle();
}

void Cluster::Leave(const JobId& id, Nanos grace) {
  Send(CancelRequested{++requests_, id, "enough", true, grace});
  Settle();
}

void Cluster::AddNode(const std::string& name, int devices, DeviceKind kind) {
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

void Cluster::AttachAgent(const std::string& name) {
  FakeNode& node = Node(name);
  node.agent.boot = node.agent_boot;
  node.agent_stream = ++streams_;
  Send(AgentReported{node.agent_stream, "10.0.0.1", node.agent});
}

void Cluster::AttachWorker(const std::string& name) {
  Node(name).worker_stream = ++streams_;
  Report(name);
}

void Cluster::DetachAgent(const std::string& name) { Send(AgentGone{std::exchange(Node(name).agent_stream, 0)}); }

void Cluster::DetachWorker(const std::string& name) { Send(WorkerGone{std::exchange(Node(name).worker_stream, 0)}); }

void Cluster::Report(const std::string& name) {
  FakeNode& node = Node(name);
  if (node.worker_stream == 0) return;
  WorkerState state{.node = NodeId(name), .boot = node.worker_boot, .address = "10.0.0.1", .encrypts = node.encrypts};
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

FakeRank* Cluster::RankOf(const JobId& job, int32_t rank) {
  FakeRank* newest = nullptr;
  for (auto& [name, node] : nodes_) {
    for (auto& [key, fake] : node.ranks) {
      if (key.job != job || key.rank != rank) continue;
      if (newest == nullptr || newest->seen.key.generation < key.generation) newest = &fake;
    }
  }
  return newest;
}

std::string Cluster::NodeOfRank(const JobId& job, int32_t rank) {
  return Record(job).ranks.at(static_cast<size_t>(rank)).where.node.value;
}

void Cluster::Say(const JobId& job, int32_t rank, RankReport body, bool report) {
  FakeRank* fake = RankOf(job, rank);
  ASSERT_NE(fake, nullptr) << "rank " << rank;
  fake->unacknowledged.push_back({fake->assignment.key, ++fake->sequence, std::move(body)});
  if (report) Deliver(fake->assignment.key);
}

void Cluster::Exit(const JobId& job, int32_t rank, int code, const std::string& reason, bool peer_lost) {
  FakeRank* fake = RankOf(job, rank);
  ASSERT_NE(fake, nullptr) << "rank " << rank;
  fake->seen.phase = RankPhase::kExited;
  fake->seen.exit_code = code;
  fake->seen.reason = reason;
  fake->seen.peer_lost = peer_lost;
  Deliver(fake->assignment.key);
}

void Cluster::SayAll(const JobId& job, const std::function<RankMessage(int32_t)>& make) {
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

void Cluster::AllReady(const JobId& job, int64_t next_step) {
  SayAll(job, [&](int32_t) { return RankMessage{.report = RankReady{.next_step = next_step}}; });
}

void Cluster::StepAll(const JobId& job, int64_t step) {
  SayAll(job, [&](int32_t) {
    return RankMessage{.report = StepReport{.step = step,
                                            .loss = 5.0 - static_cast<double>(step) / 100,
                                            .tokens = 512,
                                            .duration = Nanos(100'000'000),
                                            .forward = Nanos(30'000'000)}};
  });
}

void Cluster::FinishAll(const JobId& job) {
  SayAll(job, [&](int32_t) { return RankMessage{.report = RankDone{100}}; });
  for (int32_t r = 0; r < Ranks(job) && !IsFinal(State(job)); ++r) Exit(job, r, 0);
  ReportAll();
}

void Cluster::AnswerPlans(const ParallelLayout& layout) {
  for (const PlanJob& plan : std::exchange(plans_, {})) {
    Send(PlanReady{plan.job, plan.attempt, MakeTestPlan(plan.request.spec, layout),
                   std::make_shared<const ClusterTopology>(plan.request.cluster)});
  }
  Settle();
}

void Cluster::AnswerPlansWith(const decltype(PlanReady::result)& result, Nanos beside) {
  for (const PlanJob& plan : std::exchange(plans_, {})) Send(PlanReady{plan.job, plan.attempt, result, nullptr, beside});
  Settle();
}

void Cluster::AnswerPlansBy(const std::function<PlanReady(const PlanJob&)>& planner) {
  for (const PlanJob& plan : std::exchange(plans_, {})) Send(planner(plan));
  Settle();
}

void Cluster::Measure(const std::string& name) {
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

void Cluster::MeasureAll() {
  for (auto& [name, node] : nodes_) {
    if (node.agent_stream != 0) Measure(name);
  }
}

JobId Cluster::Run(const JobSpec& spec, const ParallelLayout& layout) {
  const JobId job = Submit(spec);
  MeasureAll();
  AnswerPlans(layout);
  AllReady(job);
  return job;
}

void Cluster::RestartServer() {
  std::vector<Controller::StoredJob> jobs;
  for (const auto& [id, record] : stored_) {
    const auto plan = stored_plans_.find(id);
    const bool has = plan != stored_plans_.end() && !IsFinal(record.state) && !record.plan_digest.empty();
    jobs.push_back({record, has ? plan->second.plan : nullptr, has ? plan->second.cluster : nullptr});
  }
  plans_.clear();
  for (auto& [name, node] : nodes_) node.agent_stream = node.worker_stream = 0;
  controller_ = std::make_unique<Controller>(options_);
  controller_->RestoreSettings(settings_);
  Carry(controller_->Restore(jobs, now_, now_));
}

std::string Cluster::Kinds(const JobId& id) {
  std::string text;
  for (const JobEvent& event : events_[id]) text += (text.empty() ? "" : " ") + event.kind;
  return text;
}

void Cluster::Send(EventBody body) { Carry(controller_->Step({now_, now_, std::move(body)})); }

void Cluster::Settle() {
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

void Cluster::ReportAll() {
  for (auto& [name, node] : nodes_) Report(name);
  Settle();
}

void Cluster::Deliver(const RankKey& key) {
  for (auto& [name, node] : nodes_) {
    if (node.ranks.contains(key)) {
      Report(name);
      break;
    }
  }
  Settle();
}

bool Cluster::Obey(FakeNode& node) {
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

bool Cluster::End(FakeRank& rank) {
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

void Cluster::Acknowledge(FakeNode& node, const WorkerDesired& desired) {
  for (const ReportAck& ack : desired.acks) {
    if (const auto rank = node.ranks.find(ack.key); rank != node.ranks.end()) {
      std::erase_if(rank->second.unacknowledged, [&](const RankMessage& m) { return m.sequence <= ack.sequence; });
      rank->second.released = rank->second.released || ack.released;
    }
    std::erase_if(orphans_[node.name], [&](const RankMessage& m) { return m.key == ack.key && m.sequence <= ack.sequence; });
  }
}

void Cluster::Carry(std::vector<Effect> effects) {
  for (Effect& effect : effects) {
    if (auto* insert = std::get_if<InsertJob>(&effect)) {
      EXPECT_TRUE(stored_.emplace(insert->job.id, insert->job).second);
    } else if (auto* update = std::get_if<UpdateJob>(&effect)) {
      ++updates_;
      stored_.at(update->job.id) = update->job;
    } else if (auto* plan = std::get_if<InsertPlan>(&effect)) {
      stored_plans_[plan->job] = *plan;
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

}  // namespace lynx::server::testing
