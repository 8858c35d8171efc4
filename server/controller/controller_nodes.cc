// Nodes: streams that come and go, reports, what each node should do. See controller.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/controller/controller.h"

namespace lynx {
namespace {

constexpr Nanos kPassEvery{5'000'000'000};
constexpr Nanos kForgetNode{600'000'000'000};  // an idle node that is away for so long is no longer listed

}  // namespace

Controller::Node& Controller::NodeOf(const NodeId& name) {
  const auto [at, is_new] = nodes_.try_emplace(name);
  if (is_new) at->second.name = name;
  return at->second;
}

// The node if the stream may speak for it; else nullptr, and the stream is closed.
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
    // The same process dialled again before the server noticed that its old connection was lost.
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
    worker_dirty_.insert(node->name);  // ranks may wait for the UUIDs of their GPUs
  }
  if (node->agent.boot != event.state.boot) node->slowness = Slowness();  // it may measure anew
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
    // It has its program; there is room for another's.
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

  const std::set<JobId> jobs = node->jobs;  // a job may leave the node meanwhile
  for (const JobId& id : jobs) {
    Job& job = jobs_.at(id);
    ObserveMissing(job, *node);
    CheckListening(job);
    CheckSucceeded(job);
    CheckStopped(job);
  }
  AcknowledgeStrays(state, *node);
}

// Whether the rank is of its job's current generation and placed on this node.
bool Controller::IsLive(const RankKey& key, const Node& node) const {
  const auto job = jobs_.find(key.job);
  return job != jobs_.end() && job->second.record.generation == key.generation && key.rank >= 0 &&
         static_cast<size_t>(key.rank) < job->second.ranks.size() &&
         job->second.record.ranks[static_cast<size_t>(key.rank)].where.node == node.name;
}

// Whether processes of a generation that is over still run there: the node was given up for lost and is back. Until they have
// ended, its devices are not free.
bool Controller::HasStrays(const Node& node) const {
  if (Makes(Mistake::kForgetStrays)) return false;
  return std::any_of(node.ranks.begin(), node.ranks.end(), [&](const auto& entry) {
    return entry.second.phase == RankPhase::kRunning && !IsLive(entry.first, node);
  });
}

// Ranks of a job or generation that is over, perhaps with this very report: what they say is taken or refused for good
// and not to be sent for ever, and those that have ended are to be released (WishOf).
void Controller::AcknowledgeStrays(const WorkerState& state, const Node& node) {
  std::map<RankKey, int64_t> stray;
  for (const RankMessage& message : state.messages) {
    if (IsLive(message.key, node)) continue;
    ++fenced_reports_;
    stray[message.key] = std::max(stray[message.key], message.sequence);
  }
  for (const auto& [key, sequence] : stray) stray_acks_[node.name].push_back({.key = key, .sequence = sequence});
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
  AdvancePlanningOn(name);  // nothing more to wait for there
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
  const std::set<JobId> jobs =
      active_;  // those in the queue, of which there may be thousands, have no other timers than their place
  for (const JobId& id : jobs) JobTimers(jobs_.at(id));
  LeaveLine();
  // Jobs that could not be asked to give way may be asked now, and times of beginning move.
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
  // Nobody knows which GPU it is before its agent is back, where a server before this one did not write it down.
  if (assignment.device_kind == DeviceKind::kCuda && assignment.device_uuid.empty()) assignment.peers = nullptr;
  assignment.yield = GivesWay(job.record.stop);
  assignment.check = job.record.check_due;
  const auto seen = node.ranks.find(assignment.key);
  assignment.started = seen != node.ranks.end() && seen->second.phase != RankPhase::kListening;
  return assignment;
}

// Ranks whose programs are beyond what one message may hold go on listening until others of their node have started.
void Controller::HoldBack(WorkerDesired& wish) const {
  Bytes text;
  for (RankAssignment& rank : wish.ranks) {
    if (rank.peers == nullptr || rank.started) continue;
    const size_t stage = static_cast<size_t>(CoordinatesOf(rank.plan->layout, rank.key.rank).stage);
    text += jobs_.at(rank.key.job).program_text.at(stage);
    if (text > options_.most_program_text) rank.peers = nullptr;
  }
}

WorkerDesired Controller::WishOf(const Node& node) const {
  WorkerDesired wish;
  for (const JobId& id : node.jobs) {
    const Job& job = jobs_.at(id);
    for (const int32_t r : job.ranks_on.at(node.name)) {
      const RankRecord& rank = job.record.ranks[static_cast<size_t>(r)];
      const RankAssignment assignment = AssignmentOf(job, r, node);
      if (!IsStopping(job)) wish.ranks.push_back(assignment);
      if (rank.acknowledged > 0) wish.acks.push_back({.key = assignment.key, .sequence = rank.acknowledged});
    }
  }
  HoldBack(wish);
  if (const auto stray = stray_acks_.find(node.name); stray != stray_acks_.end()) {
    wish.acks.insert(wish.acks.end(), stray->second.begin(), stray->second.end());
  }
  for (const auto& [key, rank] : node.ranks) {
    if (rank.phase == RankPhase::kExited && !IsLive(key, node)) wish.acks.push_back({.key = key, .released = true});
  }
  wish.ended = EndedOf(node);
  return wish;
}

}  // namespace lynx
