// Nodes: streams that open and close, reports, and the desired state of each node. See controller.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/controller/controller.h"

namespace lynx {
namespace {

constexpr Nanos kPassEvery{5'000'000'000};
constexpr Nanos kForgetNode{600'000'000'000};  // an idle node that is away for this long is no longer listed

}  // namespace

Controller::Node& Controller::NodeOf(const NodeId& name) {
  const auto [at, is_new] = nodes_.try_emplace(name);
  if (is_new) at->second.name = name;
  return at->second;
}

// Returns the node if the stream may report for it. Otherwise closes the stream and returns nullptr.
Controller::Node* Controller::Admit(Party party, int64_t stream, const NodeId& name, const std::string& host,
                                    const std::string& boot) {
  if (const auto known = streams_.find(stream); known != streams_.end()) {
    if (known->second == name) return &NodeOf(name);
    effects_.push_back(
        CloseStream{stream, absl::InvalidArgumentError(absl::StrCat(
                                "node is \"", name.value, "\": this stream began as node \"", known->second.value, "\""))});
    return nullptr;
  }
  if (!nodes_.contains(name) && nodes_.size() >= options_.max_nodes) {
    effects_.push_back(CloseStream{
        stream, absl::ResourceExhaustedError(absl::StrCat("the server knows ", nodes_.size(), " nodes, its limit"))});
    return nullptr;
  }
  Node& node = NodeOf(name);
  Attachment& link = party == Party::kAgent ? node.agent_link : node.worker_link;
  if (link.stream != 0) {
    if (link.host != host || link.boot != boot) {
      const char* what = party == Party::kAgent ? "agent" : "worker daemon";
      effects_.push_back(CloseStream{
          stream, absl::AlreadyExistsError(absl::StrCat("another ", what, " is attached as node \"", name.value, "\" from ",
                                                        link.host, "; give this one a name of its own with --node"))});
      return nullptr;
    }
    // The same process connected again before the server noticed that its old connection was lost.
    effects_.push_back(CloseStream{link.stream, absl::AbortedError("the node opened a newer stream")});
    streams_.erase(link.stream);
  }
  link = {.stream = stream, .host = host, .boot = boot};
  streams_[stream] = name;
  (party == Party::kAgent ? agent_dirty_ : worker_dirty_).insert(name);
  schedule_ = true;
  return &node;
}

void Controller::OnAgentReported(const AgentReported& event) {
  Node* node = Admit(Party::kAgent, event.stream, event.state.node, event.host, event.state.boot);
  if (node == nullptr) return;
  node->seen = wall_;
  node->seen_monotonic = now_;
  if (node->agent.devices != event.state.devices) {
    schedule_ = true;
    worker_dirty_.insert(node->name);  // ranks may be waiting for the UUIDs of their GPUs
  }
  if (node->agent.boot != event.state.boot) node->slowness = Slowness();  // a new agent process may measure again
  node->agent = event.state;
  const bool gpus = std::any_of(node->agent.devices.begin(), node->agent.devices.end(),
                                [](const Device& device) { return device.kind == DeviceKind::kCuda; });
  gpus ? void(gpu_nodes_.insert(node->name)) : void(gpu_nodes_.erase(node->name));
  AdvancePlanningOn(node->name);
}

void Controller::OnWorkerReported(const WorkerReported& event) {
  const WorkerState& state = event.state;
  Node* node = Admit(Party::kWorker, event.stream, state.node, event.host, state.boot);
  if (node == nullptr) return;
  node->seen = wall_;
  node->seen_monotonic = now_;
  node->address = state.address;
  node->worker_version = state.version;
  node->heard = true;
  node->lost = false;
  TakeWitness(*node, state);
  Renew(*node, event.stream, state);
  NoteCopies(*node, state.copies);
  std::map<RankKey, RankObservation> ranks;
  for (const RankObservation& rank : state.ranks) {
    ranks[rank.key] = rank;
    const auto before = node->ranks.find(rank.key);
    const bool listened = before != node->ranks.end() && before->second.phase == RankPhase::kListening;
    // The rank has its program, so the next message has room for another rank's program.
    if (listened && rank.phase != RankPhase::kListening) worker_dirty_.insert(node->name);
  }
  node->ranks = std::move(ranks);
  for (const RankLogLines& lines : state.logs) {
    if (jobs_.contains(lines.key.job)) logs_.Add(lines, wall_);
  }

  for (const RankMessage& message : state.messages) {
    if (IsLive(message.key, *node)) OnRankMessage(message);
  }
  for (const RankObservation& rank : state.ranks) {
    if (IsLive(rank.key, *node)) ObserveRank(jobs_.at(rank.key.job), rank.key.rank, rank);
  }

  const std::set<JobId> jobs = node->jobs;  // a copy, because a job may leave the node meanwhile
  for (const JobId& id : jobs) {
    Job& job = jobs_.at(id);
    ObserveMissing(job, *node);
    CheckListening(job);
    CheckSucceeded(job);
    CheckStopped(job);
  }
  AcknowledgeOrphans(state, *node);
}

// True if the rank belongs to its job's current generation and is placed on this node.
bool Controller::IsLive(const RankKey& key, const Node& node) const {
  const auto job = jobs_.find(key.job);
  return job != jobs_.end() && job->second.record.generation == key.generation && key.rank >= 0 &&
         static_cast<size_t>(key.rank) < job->second.ranks.size() &&
         job->second.record.ranks[static_cast<size_t>(key.rank)].where.node == node.name;
}

// True if orphans run on the node: processes of a generation that is over. The node was given up as lost and came back. Its
// devices are not free until these processes have ended.
bool Controller::HasOrphans(const Node& node) const {
  if (Makes(Mistake::kForgetOrphans)) return false;
  return std::any_of(node.ranks.begin(), node.ranks.end(), [&](const auto& entry) {
    return entry.second.phase == RankPhase::kRunning && !IsLive(entry.first, node);
  });
}

// Acknowledges reports of orphans: ranks of a job or generation that is over, perhaps since this very report. Their reports are
// processed or refused for good, so the node must not resend them forever. Orphans that have ended will be released
// (DesiredOf).
void Controller::AcknowledgeOrphans(const WorkerState& state, const Node& node) {
  std::map<RankKey, int64_t> stray;
  for (const RankMessage& message : state.messages) {
    if (IsLive(message.key, node)) continue;
    ++fenced_reports_;
    stray[message.key] = std::max(stray[message.key], message.sequence);
  }
  for (const auto& [key, sequence] : stray) orphan_acks_[node.name].push_back({.key = key, .sequence = sequence});
  const bool ended = std::any_of(state.ranks.begin(), state.ranks.end(), [&](const RankObservation& rank) {
    return rank.phase == RankPhase::kExited && !IsLive(rank.key, node);
  });
  if (ended || !stray.empty()) worker_dirty_.insert(node.name);
  if (ended) schedule_ = true;  // its devices may be free now
}

void Controller::OnAgentGone(const AgentGone& event) {
  const auto known = streams_.find(event.stream);
  if (known == streams_.end()) return;
  const NodeId name = known->second;
  streams_.erase(known);
  NodeOf(name).agent_link = {};
  AdvancePlanningOn(name);  // this node has no agent to wait for any more
}

void Controller::OnWorkerGone(const WorkerGone& event) {
  const auto known = streams_.find(event.stream);
  if (known == streams_.end()) return;
  Node& node = NodeOf(known->second);
  streams_.erase(known);
  node.worker_link = {};
  node.worker_gone_at = now_;
}

void Controller::OnTick() {
  WatchQuorum();
  std::vector<NodeId> lost, idle;
  for (const auto& [name, node] : nodes_) {
    if (node.worker_attached()) continue;
    if (!node.jobs.empty()) {
      if (!node.lost && !Makes(Mistake::kNeverLoseNodes) && AwayFor(node, options_.node_timeout, Nanos(0)))
        lost.push_back(name);
    } else if (!node.agent_attached() && now_ - node.seen_monotonic >= kForgetNode) {
      idle.push_back(name);
    }
  }
  for (const NodeId& name : lost) LoseNode(NodeOf(name));
  // Queued jobs, of which there may be thousands, have only one timer: the one for their place in the line.
  const std::set<JobId> jobs = active_;
  for (const JobId& id : jobs) JobTimers(jobs_.at(id));
  LeaveLine();
  // Jobs that could not be asked to give way before may be asked now, and expected start times change.
  if (!ready_.empty() && now_ >= next_pass_) {
    next_pass_ = now_ + kPassEvery;
    schedule_ = true;
  }
  for (const NodeId& name : idle) {
    const auto reserved = [&](const JobId& id) {
      const std::vector<DeviceRef>& devices = jobs_.at(id).reservation.devices;
      return std::any_of(devices.begin(), devices.end(), [&](const DeviceRef& d) { return d.node == name; });
    };
    if (std::none_of(unfinished_.begin(), unfinished_.end(), reserved)) ForgetNode(name);
  }
}

void Controller::ForgetNode(const NodeId& name) {
  std::erase_if(ring_, [&](const auto& entry) { return entry.second == name; });
  gpu_nodes_.erase(name);
  ForgetCopies(nodes_.at(name));
  awaited_.erase(name);
  if (nodes_.at(name).known) effects_.push_back(PutNode{.node = name, .forgotten = true});
  nodes_.erase(name);
}

void Controller::LoseNode(Node& node) {
  node.lost = true;
  const std::string reason =
      absl::StrCat("node ", node.name.value, " has not been heard of for ", FormatDuration(options_.node_timeout));
  const std::set<JobId> jobs = node.jobs;
  for (const JobId& id : jobs) {
    Job& job = jobs_.at(id);
    CheckSucceeded(job);
    if (IsFinal(job.record.state)) continue;
    if (!IsStopping(job)) {
      BeginStop(job, StopKind::kRestart, EventKind::kNodeLost, reason);
      continue;
    }
    AddEvent(job, EventKind::kNodeLost, reason);
    if (job.record.stop == StopKind::kRestart) job.record.stop_reason = reason;
    Touch(job);
    CheckStopped(job);
  }
}

RankAssignment Controller::AssignmentOf(const Job& job, int32_t rank, const Node& node) const {
  const RankRecord& record = job.record.ranks[static_cast<size_t>(rank)];
  RankAssignment assignment{.key = {job.record.id, job.record.generation, rank},
                            .device = record.where.device,
                            .device_kind = KindOf(job),
                            .device_uuid = record.device_uuid,
                            .spec = job.record.spec,
                            .plan = job.plan,
                            .peers = job.peers,
                            .resume_step = job.record.resume_step};
  assignment.checkpoint_directory = job.record.spec->checkpoint.directory;
  if (assignment.checkpoint_directory.empty()) {
    assignment.checkpoint_directory = absl::StrCat(options_.checkpoint_root, "/", job.record.id.value, "/checkpoints");
  }
  for (const Device& device : node.agent.devices) {
    if (device.index != record.where.device || device.kind != assignment.device_kind) continue;
    assignment.cores = device.cores;
    assignment.device_uuid = device.uuid;
  }
  // If an earlier server did not store the GPU's UUID, it is unknown until the agent is back.
  if (assignment.device_kind == DeviceKind::kCuda && assignment.device_uuid.empty()) assignment.peers = nullptr;
  assignment.yield = GivesWay(job.record.stop);
  assignment.check = job.record.check_due;
  const auto seen = node.ranks.find(assignment.key);
  assignment.started = seen != node.ranks.end() && seen->second.phase != RankPhase::kListening;
  return assignment;
}

// One message cannot hold all programs. Ranks whose programs do not fit keep listening until other ranks of the node have
// started.
void Controller::HoldBack(WorkerDesired& desired) const {
  Bytes text;
  for (RankAssignment& rank : desired.ranks) {
    if (rank.peers == nullptr || rank.started) continue;
    const size_t stage = static_cast<size_t>(CoordinatesOf(rank.plan->layout, rank.key.rank).stage);
    text += jobs_.at(rank.key.job).program_text.at(stage);
    if (text > options_.most_program_text) rank.peers = nullptr;
  }
}

WorkerDesired Controller::DesiredOf(const Node& node) const {
  WorkerDesired desired;
  for (const JobId& id : node.jobs) {
    const Job& job = jobs_.at(id);
    for (const int32_t r : job.ranks_on.at(node.name)) {
      const RankRecord& rank = job.record.ranks[static_cast<size_t>(r)];
      const RankAssignment assignment = AssignmentOf(job, r, node);
      if (!IsStopping(job)) desired.ranks.push_back(assignment);
      if (rank.acknowledged > 0) desired.acks.push_back({.key = assignment.key, .sequence = rank.acknowledged});
    }
  }
  HoldBack(desired);
  if (const auto stray = orphan_acks_.find(node.name); stray != orphan_acks_.end()) {
    desired.acks.insert(desired.acks.end(), stray->second.begin(), stray->second.end());
  }
  for (const auto& [key, rank] : node.ranks) {
    if (rank.phase == RankPhase::kExited && !IsLive(key, node)) desired.acks.push_back({.key = key, .released = true});
  }
  desired.ended = EndedOf(node);
  return desired;
}

}  // namespace lynx
