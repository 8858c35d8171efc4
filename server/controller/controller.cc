// Common work of the controller: finishing a Step, restoring the stored state, and queries. See controller.h.
#include "server/controller/controller.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx {
namespace {

constexpr size_t kFewNodes = 256;
constexpr Nanos kPassPerNode{20'000};

}  // namespace

const char* JobStateName(JobState state) {
  static constexpr std::array<const char*, kJobStateCount> kNames = {"queued",    "planning", "starting", "running",
                                                                     "succeeded", "failed",   "cancelled"};
  return kNames.at(static_cast<size_t>(state));
}

Controller::Controller(ControllerOptions options) : options_(std::move(options)) {
  LYNX_CHECK(options_.wanted_shapes != nullptr);
  LYNX_CHECK(options_.kept_jobs > 0);
}

std::vector<Effect> Controller::Step(const Event& event) {
  LYNX_CHECK(event.now >= now_);
  now_ = event.now;
  wall_ = event.wall;
  struct Visitor {
    Controller& c;
    void operator()(const JobSubmitted& e) const { c.OnSubmitted(e); }
    void operator()(const SubmissionLost& e) const { c.OnSubmissionLost(e); }
    void operator()(const CancelRequested& e) const { c.OnCancel(e); }
    void operator()(const HoldRequested& e) const { c.OnHold(e); }
    void operator()(const ReleaseRequested& e) const { c.OnRelease(e); }
    void operator()(const CordonRequested& e) const { c.OnCordon(e); }
    void operator()(const QueueRequested& e) const { c.OnQueue(e); }
    void operator()(const AgentReported& e) const { c.OnAgentReported(e); }
    void operator()(const WorkerReported& e) const { c.OnWorkerReported(e); }
    void operator()(const AgentGone& e) const { c.OnAgentGone(e); }
    void operator()(const WorkerGone& e) const { c.OnWorkerGone(e); }
    void operator()(const PlanReady& e) const { c.OnPlanReady(e); }
    void operator()(const Tick&) const { c.OnTick(); }
  };
  std::visit(Visitor{*this}, event.body);
  return Finish();
}

std::vector<Effect> Controller::Finish() {
  if (schedule_ && now_ >= next_schedule_) {
    schedule_ = false;
    Schedule();
    // A pass over the queue looks at all nodes. With thousands of nodes, do not run it for every report.
    if (nodes_.size() > kFewNodes) next_schedule_ = now_ + kPassPerNode * static_cast<int64_t>(nodes_.size());
  }
  for (const JobId& id : std::exchange(touched_, {})) {
    Job* job = FindJob(id);
    if (job == nullptr) continue;
    JobRecord& record = job->record;
    for (size_t r = 0; r < job->ranks.size(); ++r) {
      if (job->ranks[r].received <= record.ranks[r].acknowledged) continue;
      record.ranks[r].acknowledged = job->ranks[r].received;
      worker_dirty_.insert(record.ranks[r].where.node);
    }
    if (!job->ranks.empty()) record.measured = job->statistics.Measured();
    if (!IsFinal(record.state)) record.trained = Trained(*job);
    job->persisted = now_;
    job->persist_at = Nanos(0);
    effects_.push_back(UpdateJob{record});
  }
  for (const NodeId& name : std::exchange(agent_dirty_, {})) {
    const auto node = nodes_.find(name);
    if (node == nodes_.end() || !node->second.agent_attached()) continue;
    effects_.push_back(SendAgent{node->second.agent_link.stream, ShapesFor(node->second)});
  }
  for (const NodeId& name : std::exchange(worker_dirty_, {})) {
    const auto node = nodes_.find(name);
    if (node == nodes_.end() || !node->second.worker_attached()) continue;
    effects_.push_back(SendWorker{node->second.worker_link.stream, DesiredOf(node->second)});
  }
  orphan_acks_.clear();
  DropOldJobs();
  for (auto& [id, events] : std::exchange(notices_, {})) effects_.push_back(NotifyWatchers{id, std::move(events)});
  return std::exchange(effects_, {});
}

std::vector<Effect> Controller::Restore(std::vector<StoredJob> jobs, Nanos now, Nanos wall) {
  LYNX_CHECK(jobs_.empty());
  std::vector<JobId> restored;
  now_ = began_ = now;
  // A node that does not come back is forgotten some time after this.
  for (auto& [name, node] : nodes_) node.seen_monotonic = now;
  wall_ = wall;
  for (StoredJob& stored : jobs) {
    const JobId id = stored.record.id;
    Job& job = jobs_[id];
    job.record = std::move(stored.record);
    job.plan = std::move(stored.plan);
    job.trained_before = job.record.trained;
    if (job.plan != nullptr) job.program_text = ProgramTextOf(*job.plan);
    by_key_[job.record.idempotency_key] = id;
    by_submission_[job.record.submission] = id;
    last_submission_ = std::max(last_submission_, job.record.submission);
    if (IsFinal(job.record.state)) {
      ended_.insert({job.record.ended, job.record.submission});
      continue;
    }
    unfinished_.insert(id);
    for (const NodeId& node : job.record.excluded) unused_by_[node][id] = wall;
    switch (job.record.state) {
      case JobState::kPlanning:
        SetState(job, JobState::kQueued, EventKind::kServerRestarted, "the server restarted; the job is planned again");
        [[fallthrough]];
      case JobState::kQueued:
        if (!Makes(Mistake::kForgetTheQueue)) restored.push_back(id);
        break;
      default: RestoreGeneration(job);
    }
  }
  for (const JobId& id : restored) Enqueue(jobs_.at(id));  // now all jobs that they may wait for are known
  return Finish();
}

void Controller::RestoreGeneration(Job& job) {
  active_.insert(job.record.id);
  LYNX_CHECK(job.plan != nullptr && job.record.ranks.size() == static_cast<size_t>(job.plan->layout.ranks()));
  AddEvent(job, EventKind::kServerRestarted, "the server restarted; ranks go on and their nodes are expected back");
  // The plan or job for which the ranks should give way was lost with the earlier server; if it is still needed, it is found
  // again.
  if (GivesWay(job.record.stop)) {
    job.record.stop = StopKind::kNone;
    job.record.stop_reason.clear();
    job.record.reason = "goes on as planned";
  }
  if (IsStopping(job)) job.stopping_since = now_;
  job.replanning.began = now_;
  job.replanning.not_before = now_ + options_.replan_after;
  Touch(job);
  job.statistics = StepStatistics(job.plan->layout, job.record.measured);
  job.speed = SpeedWatch(job.plan->layout.ranks());
  job.links = LinkWatch(job.plan->layout.ranks());
  job.slowness_watched = SlownessOf(job);
  job.traces = TraceAssembly(job.plan->stages.size());
  job.ranks.resize(job.record.ranks.size());
  std::vector<RankAddress> peers;
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    const RankRecord& rank = job.record.ranks[r];
    job.ranks[r].received = rank.acknowledged;
    job.ranks[r].started = job.record.state == JobState::kRunning;
    job.ranks[r].finished_at = now_;
    Node& node = NodeOf(rank.where.node);
    node.jobs.insert(job.record.id);
    node.worker_gone_at = now_;
    if (rank.port > 0) peers.push_back({rank.host, rank.port});
  }
  IndexRanks(job);
  if (peers.size() == job.ranks.size()) {
    job.peers = std::make_shared<const std::vector<RankAddress>>(std::move(peers));
  } else {
    job.listen_deadline = now_ + options_.node_timeout + options_.listen_timeout;
  }
}

void Controller::AddEvent(Job& job, EventKind kind, const std::string& reason) {
  JobEvent event{
      .sequence = ++job.record.events, .time = wall_, .state = job.record.state, .kind = EventKindName(kind), .reason = reason};
  notices_[job.record.id].push_back(event);
  effects_.push_back(InsertEvent{job.record.id, std::move(event)});
  Touch(job);  // the record contains the sequence of the event
}

void Controller::SetState(Job& job, JobState state, EventKind kind, const std::string& reason) {
  job.record.state = state;
  job.record.reason = reason;
  AddEvent(job, kind, reason);
  Touch(job);
}

void Controller::TouchNodesOf(const Job& job) {
  for (const RankRecord& rank : job.record.ranks) worker_dirty_.insert(rank.where.node);
}

// Without this, a server that runs for years would hold every job it ever had, and load them all at its start.
void Controller::DropOldJobs() {
  while (ended_.size() > options_.kept_jobs) {
    const int64_t submission = ended_.begin()->second;
    ended_.erase(ended_.begin());
    const JobId id = by_submission_.at(submission);
    by_key_.erase(jobs_.at(id).record.idempotency_key);
    by_submission_.erase(submission);
    jobs_.erase(id);
    effects_.push_back(DeleteJob{id});
  }
}

Controller::Job* Controller::FindJob(const JobId& id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

const JobRecord* Controller::Find(const JobId& id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second.record;
}

std::shared_ptr<const Plan> Controller::PlanOf(const JobId& id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second.plan;
}

absl::StatusOr<JobId> Controller::Resolve(const std::string& text) const {
  if (jobs_.contains(JobId(text))) return JobId(text);
  for (auto it = by_submission_.rbegin(); it != by_submission_.rend(); ++it) {
    if (jobs_.at(it->second).record.spec->name == text) return it->second;
  }
  const auto begins = [&](const JobId& id) { return !text.empty() && id.value.compare(0, text.size(), text) == 0; };
  const auto first = jobs_.lower_bound(JobId(text));
  if (first == jobs_.end() || !begins(first->first)) {
    return absl::NotFoundError(absl::StrCat("no job has the id or name \"", text.substr(0, 80), "\""));
  }
  if (const auto second = std::next(first); second != jobs_.end() && begins(second->first)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" begins the ids of several jobs, among them ",
                                                   first->first.value, " and ", second->first.value, "; give more characters"));
  }
  return first->first;
}

std::vector<const JobRecord*> Controller::List(size_t limit, const std::vector<JobState>& states,
                                               const JobRecord* before) const {
  std::vector<const JobRecord*> records;
  const int64_t end = before == nullptr ? std::numeric_limits<int64_t>::max() : before->submission;
  // Only unfinished jobs, which are few compared with the ended ones.
  if (!states.empty() && std::none_of(states.begin(), states.end(), IsFinal)) {
    for (const JobId& id : unfinished_) {
      const JobRecord& record = jobs_.at(id).record;
      const bool wanted = record.submission < end && std::find(states.begin(), states.end(), record.state) != states.end();
      if (wanted) records.push_back(&record);
    }
    std::sort(records.begin(), records.end(),
              [](const JobRecord* a, const JobRecord* b) { return a->submission > b->submission; });
    records.resize(std::min(records.size(), limit));
    return records;
  }
  for (auto it = std::make_reverse_iterator(by_submission_.lower_bound(end));
       it != by_submission_.rend() && records.size() < limit; ++it) {
    const JobRecord& record = jobs_.at(it->second).record;
    const bool wanted = states.empty() || std::find(states.begin(), states.end(), record.state) != states.end();
    if (wanted) records.push_back(&record);
  }
  return records;
}

NodeView Controller::ViewOf(const NodeId& name) const {
  NodeView view{.name = name};
  if (const auto cordon = cordons_.find(name); cordon != cordons_.end()) view.cordon = cordon->second;
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return view;
  const Node& node = found->second;
  view.address = node.address.empty() ? node.agent_link.host : node.address;
  view.agent_attached = node.agent_attached();
  view.worker_attached = node.worker_attached();
  view.devices = node.agent.devices;
  view.network_domain = node.agent.network_domain;
  view.agent_version = node.agent.version;
  view.worker_version = node.worker_version;
  view.last_seen = node.seen;
  view.profile = node.agent.profile;
  view.conditions = node.agent.conditions;
  if (const auto unused = unused_by_.find(name); unused != unused_by_.end()) {
    for (const auto& [id, since] : unused->second) {
      view.conditions.push_back(
          {.kind = "excluded",
           .message = absl::StrCat("job ", NameText(jobs_.at(id)), " does not use this node, for a failure there"),
           .since = since});
    }
  }
  for (const JobId& id : node.jobs) {
    view.jobs.push_back(id);
    view.devices_used += static_cast<int32_t>(jobs_.at(id).ranks_on.at(name).size());
  }
  return view;
}

std::vector<NodeView> Controller::Nodes() const {
  std::set<NodeId> names;
  for (const auto& [name, node] : nodes_) {
    if (node.seen > Nanos(0) || !node.jobs.empty()) names.insert(name);  // without nodes that only an earlier server has seen
  }
  for (const auto& [name, cordon] : cordons_) names.insert(name);
  std::vector<NodeView> views;
  for (const NodeId& name : names) views.push_back(ViewOf(name));
  return views;
}

NodePresence Controller::PresenceOf(const Node& node) {
  const bool agent = node.agent_attached(), worker = node.worker_attached();
  if (node.lost) return NodePresence::kLost;
  return agent && worker ? NodePresence::kAttached : agent || worker ? NodePresence::kPartial : NodePresence::kAbsent;
}

std::vector<NodeSummary> Controller::Summaries() const {
  std::map<NodeId, NodeSummary> glances;
  for (const auto& [name, node] : nodes_) {
    if (node.seen == Nanos(0) && node.jobs.empty()) continue;  // only an earlier server has seen it
    NodeSummary& glance = glances[name];
    glance.presence = PresenceOf(node);
    glance.devices = static_cast<int32_t>(node.agent.devices.size());
    std::set<std::string> withdrawn;
    for (const ReportedCondition& condition : node.agent.conditions) {
      if (condition.withdrawn && !condition.device.empty()) withdrawn.insert(condition.device);
    }
    glance.withdrawn = static_cast<int32_t>(withdrawn.size());
    glance.warned = !node.agent.conditions.empty() || unused_by_.contains(name);
    for (const JobId& id : node.jobs) glance.used += static_cast<int32_t>(jobs_.at(id).ranks_on.at(name).size());
  }
  for (const auto& [name, cordon] : cordons_) glances[name].cordoned = true;
  std::vector<NodeSummary> list;
  for (auto& [name, glance] : glances) {
    glance.name = name;
    list.push_back(std::move(glance));
  }
  return list;
}

ClusterStats Controller::TakeClusterStats() const {
  ClusterStats stats{.cordoned = static_cast<int64_t>(cordons_.size()), .fenced_reports = fenced_reports_};
  for (const auto& [id, job] : jobs_) ++stats.jobs.at(static_cast<size_t>(job.record.state));
  for (const JobId& id : unfinished_) {
    const Job& job = jobs_.at(id);
    if (const int32_t held = DevicesHeld(id); held > 0)
      (KindOf(job) == DeviceKind::kCuda ? stats.cuda : stats.cpu).used += held;
    if (job.record.state != JobState::kQueued) continue;
    const std::vector<PendingReason>& pending = job.record.pending;
    for (auto reason = pending.begin(); reason != pending.end(); ++reason) {
      const auto same = [&](const PendingReason& other) { return other.kind == reason->kind; };
      if (std::none_of(pending.begin(), reason, same)) ++stats.pending[reason->kind];
    }
  }
  for (const auto& [name, node] : nodes_) {
    const bool worker = node.worker_attached();
    stats.agents += node.agent_attached() ? 1 : 0;
    stats.workers += worker ? 1 : 0;
    if (node.seen > Nanos(0) || !node.jobs.empty()) ++stats.nodes.at(static_cast<size_t>(PresenceOf(node)));
    if (!worker) continue;
    for (const Device& device : node.agent.devices) ++(device.kind == DeviceKind::kCuda ? stats.cuda : stats.cpu).all;
  }
  return stats;
}

int32_t Controller::DevicesHeld(const JobId& id) const {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || IsFinal(found->second.record.state)) return 0;
  return DevicesUsed(found->second);
}

}  // namespace lynx
