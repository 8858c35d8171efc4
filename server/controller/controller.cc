#include "server/controller/controller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx::server {
namespace {

constexpr Nanos kForgetNode{600'000'000'000};  // an idle node that is absent for this long is no longer listed

}  // namespace

Controller::Controller(ControllerOptions options)
    : options_(std::move(options)), nodes_(options_, step_), leases_(options_, step_, nodes_), checkpoints_(step_, jobs_),
      devices_(options_, jobs_, nodes_), waiting_(options_, step_, jobs_), measurements_(options_, step_, jobs_, nodes_),
      planning_(options_, step_, jobs_, nodes_, devices_, waiting_, measurements_), memory_(step_, nodes_, devices_, planning_),
      generations_(options_, step_, jobs_, nodes_, checkpoints_, devices_, waiting_, planning_),
      failures_(step_, jobs_, nodes_, devices_, logs_),
      stopping_({options_, step_, nodes_, leases_, logs_, devices_, waiting_, planning_, memory_, generations_, failures_}),
      ranks_(options_, step_, jobs_, nodes_, failures_, generations_, stopping_),
      replanner_({options_, step_, jobs_, nodes_, devices_, waiting_, planning_, memory_, generations_, stopping_}),
      drift_(options_, step_, nodes_, devices_, planning_, replanner_),
      queue_({options_, step_, jobs_, nodes_, devices_, waiting_, planning_, memory_, generations_, stopping_, replanner_}),
      requests_({options_, step_, jobs_, nodes_, devices_, waiting_, measurements_, planning_, generations_, stopping_}),
      desired_(options_, step_, jobs_, devices_, checkpoints_), views_(jobs_, nodes_, devices_, desired_) {
  LYNX_CHECK(options_.wanted_shapes != nullptr);
  LYNX_CHECK(options_.kept_jobs > 0);
}

std::vector<Effect> Controller::Step(const Event& event) {
  step_.Begin(event.now, event.wall);
  struct Visitor {
    Controller& c;
    void operator()(const JobSubmitted& e) const { c.requests_.OnSubmitted(e); }
    void operator()(const SubmissionLost& e) const { c.requests_.OnSubmissionLost(e); }
    void operator()(const CancelRequested& e) const { c.requests_.OnCancel(e); }
    void operator()(const HoldRequested& e) const { c.requests_.OnHold(e); }
    void operator()(const ReleaseRequested& e) const { c.requests_.OnRelease(e); }
    void operator()(const CordonRequested& e) const { c.requests_.OnCordon(e); }
    void operator()(const QueueRequested& e) const { c.requests_.OnQueue(e); }
    void operator()(const AgentReported& e) const { c.OnAgentReported(e); }
    void operator()(const WorkerReported& e) const { c.OnWorkerReported(e); }
    void operator()(const AgentGone& e) const { c.OnAgentGone(e); }
    void operator()(const WorkerGone& e) const { c.OnWorkerGone(e); }
    void operator()(const PlanReady& e) const { c.replanner_.OnPlanReady(e); }
    void operator()(const Tick&) const { c.OnTick(); }
  };
  std::visit(Visitor{*this}, event.body);
  return Finish();
}

std::vector<Effect> Controller::Finish() {
  queue_.RunIfChanged();
  for (const JobId& id : step_.TakeTouched()) {
    LiveJob* job = jobs_.Find(id);
    if (job == nullptr) continue;
    JobRecord& record = job->record;
    for (size_t r = 0; r < job->generation.ranks.size(); ++r) {
      if (job->generation.ranks[r].received <= record.ranks[r].acknowledged) continue;
      record.ranks[r].acknowledged = job->generation.ranks[r].received;
      step_.TellWorker(record.ranks[r].where.node);
    }
    if (!job->generation.ranks.empty()) record.measured = job->generation.statistics.Measured();
    if (!IsFinal(record.state)) record.trained = TrainedBy(*job, step_.now());
    job->persisted = step_.now();
    job->persist_at = Nanos(0);
    step_.Emit(UpdateJob{record});
  }
  for (const NodeId& name : step_.TakeAgents()) {
    const LiveNode* node = nodes_.Find(name);
    if (node == nullptr || !node->agent_attached()) continue;
    step_.Emit(SendAgent{node->agent_link.stream, measurements_.ShapesFor(*node)});
  }
  for (const NodeId& name : step_.TakeWorkers()) {
    const LiveNode* node = nodes_.Find(name);
    if (node == nullptr || !node->worker_attached()) continue;
    step_.Emit(SendWorker{node->worker_link.stream, desired_.Of(*node)});
  }
  desired_.EndStep();
  // Drops the oldest ended jobs. Otherwise a server that runs for years would hold all jobs that it ever had, and would load
  // them all when it starts.
  for (const JobId& id : jobs_.DropOldest(options_.kept_jobs)) step_.Emit(DeleteJob{id});
  for (auto& [id, events] : step_.TakeNotices()) step_.Emit(NotifyWatchers{id, std::move(events)});
  return step_.TakeEffects();
}

std::vector<Effect> Controller::Restore(std::vector<StoredJob> jobs, Nanos now, Nanos wall) {
  LYNX_CHECK(jobs_.empty());
  std::vector<JobId> restored;
  step_.Begin(now, wall);
  leases_.Begin(now);
  // Counts the absence of every node from now on. A node that stays absent for kForgetNode is forgotten.
  for (auto& [name, node] : nodes_.all()) node.seen_monotonic = now;
  for (StoredJob& stored : jobs) {
    const JobId id = stored.record.id;
    LiveJob& job = jobs_.Add(std::move(stored.record), wall);
    job.plan = std::move(stored.plan);
    job.planned_kinds = PlannedKinds(std::move(stored.cluster));
    job.trained_before = job.record.trained;
    if (job.plan != nullptr) job.program_text = ProgramTextOf(*job.plan);
    if (IsFinal(job.record.state)) continue;
    switch (job.record.state) {
      case JobState::kPlanning:
        step_.SetState(job, JobState::kQueued, EventKind::kServerRestarted, "the server restarted; the job is planned again");
        [[fallthrough]];
      case JobState::kQueued:
        if (!options_.Makes(Mistake::kForgetTheQueue)) restored.push_back(id);
        break;
      default: generations_.Restore(job);
    }
  }
  for (const JobId& id : restored) waiting_.Enqueue(jobs_.At(id));  // only now, because a job may wait for any other job
  return Finish();
}

void Controller::RestoreSettings(Settings settings) {
  if (!options_.Makes(Mistake::kForgetCordons)) nodes_.RestoreCordons(std::move(settings.cordons));
  for (QueueConfig& queue : settings.queues) devices_.SetQueue(std::move(queue));
  for (const NodeId& name : settings.nodes) nodes_.Of(name).known = true;
}

std::vector<std::string> Controller::ManagersOf(const std::string& queue) const {
  const auto config = devices_.queues().find(queue);
  return config == devices_.queues().end() ? std::vector<std::string>() : config->second.managers;
}

void Controller::OnAgentReported(const AgentReported& event) {
  LiveNode* node = nodes_.Admit(NodeTable::Party::kAgent, event.stream, event.state.node, event.host, event.state.boot);
  if (node == nullptr) return;
  node->seen = step_.wall();
  node->seen_monotonic = step_.now();
  if (node->agent.devices != event.state.devices) {
    step_.LookAtQueue();
    step_.TellWorker(node->name);  // the node's ranks may be waiting for the UUIDs of their GPUs
  }
  // A new agent process may measure again. The slowness is relative to the earlier measurements, so it is forgotten.
  if (node->agent.boot != event.state.boot) node->slowness = Slowness();
  node->agent = event.state;
  nodes_.NoteDevices(*node);
  planning_.AdvanceJobsOn(node->name);
}

void Controller::OnWorkerReported(const WorkerReported& event) {
  const WorkerState& state = event.state;
  LiveNode* node = nodes_.Admit(NodeTable::Party::kWorker, event.stream, state.node, event.host, state.boot);
  if (node == nullptr) return;
  node->seen = step_.wall();
  node->seen_monotonic = step_.now();
  node->address = state.address;
  node->worker_version = state.version;
  if (std::exchange(node->encrypts, state.encrypts) != state.encrypts) step_.LookAtQueue();
  node->heard = true;
  node->lost = false;
  leases_.TakeWitness(*node, state);
  leases_.Renew(*node, event.stream, state);
  checkpoints_.Note(*node, state.copies);
  std::map<RankKey, RankObservation> ranks;
  for (const RankObservation& rank : state.ranks) {
    ranks[rank.key] = rank;
    const auto before = node->ranks.find(rank.key);
    const bool listened = before != node->ranks.end() && before->second.phase == RankPhase::kListening;
    // The rank has received its program, so the next message has room for another rank's program.
    if (listened && rank.phase != RankPhase::kListening) step_.TellWorker(node->name);
  }
  node->ranks = std::move(ranks);
  for (const RankLogLines& lines : state.logs) {
    if (jobs_.Contains(lines.key.job)) logs_.Add(lines, step_.wall());
  }

  for (const RankMessage& message : state.messages) {
    if (devices_.IsLive(message.key, *node)) ranks_.OnMessage(message);
  }
  for (const RankObservation& rank : state.ranks) {
    if (devices_.IsLive(rank.key, *node)) ranks_.Observe(jobs_.At(rank.key.job), rank.key.rank, rank);
  }

  const std::set<JobId> jobs = node->jobs;  // a copy, because a job may leave the node meanwhile
  for (const JobId& id : jobs) {
    LiveJob& job = jobs_.At(id);
    ranks_.ObserveMissing(job, *node);
    ranks_.CheckListening(job);
    ranks_.CheckSucceeded(job);
    stopping_.CheckStopped(job);
  }
  desired_.AcknowledgeOrphans(state, *node);
}

void Controller::OnAgentGone(const AgentGone& event) {
  LiveNode* node = nodes_.Leave(event.stream);
  if (node == nullptr) return;
  node->agent_link = {};
  planning_.AdvanceJobsOn(node->name);  // the jobs that wait for measurements need not wait for this agent any more
}

void Controller::OnWorkerGone(const WorkerGone& event) {
  LiveNode* node = nodes_.Leave(event.stream);
  if (node == nullptr) return;
  node->worker_link = {};
  node->worker_gone_at = step_.now();
}

void Controller::OnTick() {
  leases_.WatchQuorum();
  std::vector<NodeId> lost, idle;
  for (const auto& [name, node] : nodes_.all()) {
    if (node.worker_attached()) continue;
    if (!node.jobs.empty()) {
      if (!node.lost && !options_.Makes(Mistake::kNeverLoseNodes) && leases_.AwayFor(node, options_.node_timeout, Nanos(0)))
        lost.push_back(name);
    } else if (!node.agent_attached() && step_.now() - node.seen_monotonic >= kForgetNode) {
      idle.push_back(name);
    }
  }
  for (const NodeId& name : lost) LoseNode(nodes_.Of(name));
  // Looks only at active jobs here, because there may be thousands of queued jobs. Queued jobs have only the timer
  // that ends their place in the line. LeaveLine below checks that timer.
  const std::set<JobId> jobs = jobs_.active();
  for (const JobId& id : jobs) JobTimers(jobs_.At(id));
  waiting_.LeaveLine();
  queue_.OnTick();
  for (const NodeId& name : idle) {
    const auto reserved = [&](const JobId& id) {
      const std::vector<DeviceRef>& devices = jobs_.At(id).planning.reservation.devices;
      return std::any_of(devices.begin(), devices.end(), [&](const DeviceRef& d) { return d.node == name; });
    };
    if (std::none_of(jobs_.unfinished().begin(), jobs_.unfinished().end(), reserved)) ForgetNode(name);
  }
}

void Controller::ForgetNode(const NodeId& name) {
  leases_.Forget(name);
  checkpoints_.Forget(nodes_.At(name));
  measurements_.TakeWaiters(name);
  if (nodes_.At(name).known) step_.Emit(PutNode{.node = name, .forgotten = true});
  nodes_.Forget(name);
}

void Controller::LoseNode(LiveNode& node) {
  node.lost = true;
  const std::string reason =
      absl::StrCat("node ", node.name.value, " has not been heard of for ", FormatDuration(options_.node_timeout));
  const std::set<JobId> jobs = node.jobs;
  for (const JobId& id : jobs) {
    LiveJob& job = jobs_.At(id);
    ranks_.CheckSucceeded(job);
    if (IsFinal(job.record.state)) continue;
    if (!IsStopping(job)) {
      stopping_.BeginStop(job, StopKind::kRestart, EventKind::kNodeLost, reason);
      continue;
    }
    step_.AddEvent(job, EventKind::kNodeLost, reason);
    if (job.record.stop == StopKind::kRestart) job.record.stop_reason = reason;
    step_.Touch(job);
    stopping_.CheckStopped(job);
  }
}

void Controller::JobTimers(LiveJob& job) {
  const auto due = [this](Nanos deadline) { return deadline != Nanos(0) && step_.now() >= deadline; };
  if (due(job.persist_at)) step_.Touch(job);
  if (due(job.planning.measure_deadline)) planning_.Advance(job);
  ranks_.CheckSucceeded(job);
  requests_.Check(job);
  if (IsStopping(job)) stopping_.CheckStopped(job);
  if (IsFinal(job.record.state) || IsStopping(job)) return;
  if (due(job.generation.yield_deadline)) {
    stopping_.OnYieldDeadline(job);
    if (job.record.state != JobState::kRunning || IsStopping(job)) return;
  }
  if (due(job.replanning.not_before) && replanner_.MayGrow(job)) {
    job.replanning.not_before = Nanos(0);  // from now on the job may grow whenever devices become free
    step_.LookAtQueue();
  }
  drift_.Check(job);
  ranks_.CheckDeadlines(job);
}

const JobRecord* Controller::Find(const JobId& id) const {
  const LiveJob* found = jobs_.Find(id);
  return found == nullptr ? nullptr : &found->record;
}

std::shared_ptr<const Plan> Controller::PlanOf(const JobId& id) const {
  const LiveJob* found = jobs_.Find(id);
  return found == nullptr ? nullptr : found->plan;
}

int32_t Controller::DevicesHeld(const JobId& id) const {
  const LiveJob* found = jobs_.Find(id);
  if (found == nullptr || IsFinal(found->record.state)) return 0;
  return DevicesUsed(*found);
}

}  // namespace lynx::server
