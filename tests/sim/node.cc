// Simulates nodes: the daemon's table of ranks, with the real daemon's rule (Reconcile) that leads to the desired state.
#include <utility>

#include "tests/sim/world.h"
#include "worker/daemon/reconcile.h"

namespace lynx::server::sim {
namespace {

constexpr double kNodeTick = 0.2;
constexpr Nanos kGrace{3'000'000'000};
constexpr Nanos kHeartbeat{1'500'000'000};
constexpr int32_t kExitLeaseOver = 6;
constexpr size_t kMessagesPerReport = 500;

// Converts an assignment like a real daemon (see proto/lynx/v1/cluster.proto).
worker::DesiredRank DesiredOf(const RankAssignment& assignment) {
  worker::DesiredRank desired{
      .key = assignment.key, .start = assignment.peers != nullptr && !assignment.started, .yield = assignment.yield};
  if (desired.start) {
    const RankAddress& own = assignment.peers->at(static_cast<size_t>(assignment.key.rank));
    desired.address = {own.host, own.port};
  }
  return desired;
}

worker::ActualRank ActualOf(const SimNode& node, const RankKey& key, const SimRank& rank) {
  worker::StopStage stop = worker::StopStage::kNone;
  if (rank.phase == RankPhase::kRunning && rank.asked_to_end)
    stop = rank.killed ? worker::StopStage::kKilled : worker::StopStage::kAsked;
  return {.key = key,
          .phase = rank.phase,
          .address = {node.name.value, rank.port},
          .stop = stop,
          .asked_at = rank.asked_at,
          .yield = rank.yield,
          .released = rank.released};
}

}  // namespace

// Manages the daemon's lease, as in worker/daemon/lease_keeper.cc. A witness is identified by the name of its node.
void World::KeepLease(SimNode& node) {
  const Nanos now = common_.timeline.now();
  if (node.lease->AsksWitnesses(now) && now - node.asked_at >= Lease::kAskEvery) {
    node.asked_at = now;
    for (const std::string& witness : node.lease->terms().witnesses) {
      common_.timeline.After(Seconds(common_.random.Between(0.002, 0.2)), [this, &node, witness, boots = node.boots] {
        const SimNode& other = nodes_.at(NodeId(witness));
        if (!node.Reaches(other) || !other.powered || !other.worker_up) return;
        const std::optional<Witnessed> own = other.lease->Own();
        common_.timeline.After(Seconds(common_.random.Between(0.002, 0.2)), [this, &node, witness, boots, own] {
          if (boots == node.boots && node.powered && node.worker_up) node.lease->Answered(witness, own, common_.timeline.now());
        });
      });
    }
  }
  node.deadline = node.lease->Deadline(now);
  node.terms = node.lease->terms();
}

void World::NodeTick(SimNode& node) {
  const int64_t boots = node.boots;
  if (node.powered && node.worker_up) KeepLease(node);
  const bool over = common_.timeline.now() >= node.deadline && common_.options.world_mistake != WorldMistake::kNoLease;
  for (auto& [key, rank] : node.ranks) {
    if (over) EndProcess(node, key, rank, kExitLeaseOver, "its node was cut off");
  }
  if (node.powered && node.worker_up) {
    for (auto& [key, rank] : node.ranks) {
      if (rank.phase != RankPhase::kRunning || rank.alive) continue;
      rank.phase = RankPhase::kExited;
      node.news = true;
    }
    Obey(node);
    if (node.news || common_.timeline.now() - node.reported_at >= kHeartbeat) Report(node);
  }
  common_.timeline.After(Seconds(kNodeTick), [this, &node, boots] {
    if (boots == node.boots) NodeTick(node);
  });
}

void World::TakeWish(SimNode& node, const WorkerDesired& wish) {
  if (!node.worker_up) return;
  for (const ReportAck& ack : wish.acks) {
    const auto found = node.ranks.find(ack.key);
    if (found == node.ranks.end()) continue;
    SimRank& rank = found->second;
    while (!rank.messages.empty() && rank.messages.front().sequence <= ack.sequence) rank.messages.pop_front();
    rank.released = rank.released || ack.released;
  }
  node.wish = wish;
  Obey(node);
}

void World::Obey(SimNode& node) {
  if (!node.wish.has_value()) return;
  std::vector<worker::DesiredRank> desired;
  std::map<RankKey, const RankAssignment*> assignments;
  for (const RankAssignment& assignment : node.wish->ranks) {
    desired.push_back(DesiredOf(assignment));
    assignments[assignment.key] = &assignment;
  }
  std::vector<worker::ActualRank> actual;
  for (const auto& [key, rank] : node.ranks) actual.push_back(ActualOf(node, key, rank));
  for (const worker::RankOperation& operation : Reconcile(desired, actual, common_.timeline.now(), kGrace)) {
    const RankKey& key = operation.key;
    node.news = true;
    switch (operation.kind) {
      case worker::SupervisorActionKind::kListen: node.ranks[key] = {.port = ++last_port_}; break;
      case worker::SupervisorActionKind::kStart:
        node.ranks.at(key).assignment = *assignments.at(key);
        StartProcess(node, key, node.ranks.at(key));
        break;
      case worker::SupervisorActionKind::kRefuse:
        node.ranks[key].phase = RankPhase::kExited;
        node.ranks[key].exit_code = 1;
        node.ranks[key].reason = operation.reason;
        break;
      case worker::SupervisorActionKind::kAskToYield:
      case worker::SupervisorActionKind::kTakeYieldBack:
        node.ranks.at(key).yield = operation.kind == worker::SupervisorActionKind::kAskToYield;
        break;
      case worker::SupervisorActionKind::kTerminate:
      case worker::SupervisorActionKind::kKill: {
        SimRank& rank = node.ranks.at(key);
        rank.asked_to_end = true;
        rank.killed = operation.kind == worker::SupervisorActionKind::kKill;
        rank.asked_at = common_.timeline.now();
        // Some ranks end slowly.
        const double delay = rank.killed ? 0.01 : (common_.random.Chance(0.1) ? 10 : 0.3);
        common_.timeline.After(Seconds(common_.random.Between(0, delay)), [this, &node, key] {
          const auto found = node.ranks.find(key);
          if (found != node.ranks.end()) EndProcess(node, key, found->second, 4, "was asked to end");
        });
        break;
      }
      case worker::SupervisorActionKind::kForget: node.ranks.erase(key); break;
    }
  }
}

void World::StartProcess(SimNode& node, const RankKey& key, SimRank& rank) {
  rank.phase = RankPhase::kRunning;
  rank.alive = true;
  common_.Tell(absl::StrCat(node.name.value, " starts ", RankKeyText(key), " on device ", rank.assignment.device));
  common_.timeline.After(Seconds(common_.random.Between(0.05, 1)), [this, &node, key] { Join(node, key); });
}

// Ends the process of a rank. The daemon notices this when it next looks at its ranks.
void World::EndProcess(SimNode& node, const RankKey& key, SimRank& rank, int32_t code, const std::string& reason,
                       bool peer_lost) {
  if (!rank.alive) return;
  rank.alive = false;
  rank.exit_code = code;
  rank.reason = reason;
  rank.peer_lost = peer_lost;
  common_.Tell(absl::StrCat(node.name.value, ": ", RankKeyText(key), " ends with ", code));
}

void World::Report(SimNode& node) {
  if (node.worker_stream == 0) return;
  node.news = false;
  node.reported_at = common_.timeline.now();
  WorkerState state{.node = node.name, .boot = absl::StrCat("w", node.boots), .address = node.name.value};
  if (leases_) {
    state.number = ++node.reports;
    state.witness_port = 1;
    state.renewed = node.lease->renewed();
    node.lease->Sent(state.number, node.reported_at);
  }
  for (auto& [key, rank] : node.ranks) {
    size_t taken = 0;
    for (const RankMessage& message : rank.messages) {
      if (state.messages.size() >= kMessagesPerReport) break;
      state.messages.push_back(message);
      ++taken;
    }
    RankObservation seen{.key = key, .phase = rank.phase, .host = node.name.value, .port = rank.port};
    if (rank.phase == RankPhase::kExited) {
      if (taken < rank.messages.size()) {
        seen.phase = RankPhase::kRunning;  // the server must get all messages of the rank before its end
      } else {
        seen.exit_code = rank.exit_code;
        seen.reason = rank.reason;
        seen.peer_lost = rank.peer_lost;
      }
    }
    state.ranks.push_back(seen);
  }
  ToServer(node.worker_stream, WorkerReported{node.worker_stream, node.name.value, std::move(state)});
}

void World::ReportAgent(SimNode& node) {
  if (node.agent_stream == 0) return;
  AgentState state{.node = node.name, .boot = absl::StrCat("a", node.boots)};
  for (int32_t i = 0; i < node.devices; ++i) {
    state.devices.push_back(
        {.index = i, .kind = DeviceKind::kCpu, .model = "simulated", .memory = Bytes(1 << 30), .cores = {i}});
  }
  HardwareProfile profile = StatedCpuProfile();
  for (const LayerShape& shape : node.measured) profile.measured.push_back({.shape = shape});
  state.profile = std::make_shared<const HardwareProfile>(std::move(profile));
  ToServer(node.agent_stream, AgentReported{node.agent_stream, node.name.value, std::move(state)});
}

void World::StopAgent(SimNode& node) {
  node.agent_up = false;
  if (node.agent_stream == 0) return;
  const int64_t stream = std::exchange(node.agent_stream, 0);
  BreakStream(stream, true);
}

void World::StopWorker(SimNode& node) {
  node.worker_up = false;
  node.wish.reset();
  // The sockets that the daemon had bound are closed together with the daemon.
  std::erase_if(node.ranks, [](const auto& entry) { return entry.second.phase == RankPhase::kListening; });
  for (auto& [key, rank] : node.ranks) rank.asked_to_end = rank.killed = false;
  if (node.worker_stream == 0) return;
  const int64_t stream = std::exchange(node.worker_stream, 0);
  BreakStream(stream, true);
}

// Ends all processes of the node. The content of its disk stays.
void World::CrashNode(SimNode& node) {
  common_.Tell(absl::StrCat(node.name.value, " dies"));
  for (auto& [key, rank] : node.ranks) {
    EndProcess(node, key, rank, 1, "ended without a report; the worker daemon had been away and did not see how");
  }
  StopAgent(node);
  StopWorker(node);
  node.powered = false;
  node.deadline = Lease::kForever;  // the deadline belonged to an earlier boot
}

void World::StartDaemons(SimNode& node) {
  const bool news = !node.powered || !node.agent_up || !node.worker_up;
  if (!node.powered || !node.worker_up) node.lease.emplace(common_.timeline.now(), node.deadline, node.terms);
  node.powered = node.agent_up = node.worker_up = true;
  if (!news) return;
  ++node.boots;
  common_.Tell(absl::StrCat(node.name.value, " has its daemons"));
  NodeTick(node);
  Dial(node, false);
  Dial(node, true);
}

}  // namespace lynx::server::sim
