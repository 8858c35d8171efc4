#include "server/controller/state/leases.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/rng.h"
#include "node/lease.h"

namespace lynx::server {
namespace {

constexpr size_t kWitnesses = 5;
// Usually other nodes take over a node's work only while at least half of the node's witnesses (a quorum) are in contact with
// the server. But most nodes may be gone for good, so after this many timeouts no quorum is needed any more. If the node still
// runs then, its commits are refused, because they are from an older generation.
constexpr int64_t kTimesWithoutQuorum = 10;
constexpr int64_t kOneOfMany = 10;
constexpr size_t kMaxTold = 8;

// Scatters names on the ring. So the witnesses of a node are usually not its neighbours in the network. A network failure would
// cut off neighbours together with the node.
uint64_t PlaceOnRing(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return Mix64(hash);
}

}  // namespace

Nanos Leases::CutOffAfter() const {
  return std::min(std::max(Nanos(options_.stop_timeout.value * 3 / 5), Nanos(options_.heartbeat.value * 5 / 2)),
                  IsolatedAfter());
}

Nanos Leases::IsolatedAfter() const { return Nanos(options_.node_timeout.value * 3 / 4); }

void Leases::TakeWitness(LiveNode& node, const WorkerState& state) {
  // Stores the node. A server that is started later must know which witnesses the absent nodes can ask.
  if (state.witness_port > 0 && !std::exchange(node.known, true)) step_.Emit(PutNode{node.name});
  if (node.witness_port == 0 && state.witness_port > 0) ring_[PlaceOnRing(node.name.value)] = node.name;
  if (state.witness_port > 0) node.witness_port = state.witness_port;
  // The daemon has started again and numbers its reports from 1, so report numbers of its predecessor mean nothing now.
  if (state.number == 1) {
    for (LiveNode::Told& told : node.told) told.report = INT64_MAX;
  }
  for (size_t i = node.told.size(); i-- > 1;) {
    if (node.told[i].report > state.renewed) continue;
    node.told.erase(node.told.begin(), node.told.begin() + static_cast<ptrdiff_t>(i));
    break;
  }
}

// The nodes that follow this one on the ring, including absent nodes. If absent nodes were left out, a node would have no
// witness to ask after all its witnesses have left one after another.
std::vector<NodeId> Leases::WitnessesOf(const NodeId& name) const {
  std::vector<NodeId> witnesses;
  auto at = ring_.upper_bound(PlaceOnRing(name.value));
  for (size_t seen = 0; seen < ring_.size() && witnesses.size() < kWitnesses; ++seen, ++at) {
    if (at == ring_.end()) at = ring_.begin();
    if (at->second == name) break;  // the search has gone once around the ring
    witnesses.push_back(at->second);
  }
  return witnesses;
}

void Leases::Tell(LiveNode& node, int64_t report, std::optional<std::vector<NodeId>> witnesses) {
  if (node.told.back().report != INT64_MAX && node.told.back().witnesses == witnesses) return;
  // The node has not confirmed the lists that it was sent, and there are too many of them, so the server forgets them. From now
  // on it assumes that the node may have any list.
  if (node.told.size() >= kMaxTold) node.told = {{}};
  node.told.push_back({report, std::move(witnesses)});
}

void Leases::Renew(LiveNode& node, int64_t stream, const WorkerState& state) {
  node.renewed_at = step_.now();
  node.has_lease = state.number > 0;
  if (!node.has_lease) return;  // the daemon is too old to know leases
  LeaseRenewal renewal{.report = state.number, .server_up = step_.now() - began_};
  if (options_.leases) {
    renewal.isolated = IsolatedAfter();
    renewal.cut_off = CutOffAfter();
    renewal.more_witnesses = step_.now() - began_ < options_.node_timeout;
    std::vector<NodeId> witnesses = WitnessesOf(node.name);
    for (const NodeId& name : witnesses) {
      const LiveNode& other = nodes_.At(name);
      renewal.witnesses.push_back({other.address, other.witness_port});
    }
    if (renewal.more_witnesses) {
      Tell(node, state.number, std::nullopt);
    } else {
      Tell(node, state.number, std::move(witnesses));
    }
  }
  step_.Emit(RenewLease{stream, std::move(renewal)});
}

bool Leases::InContact(const LiveNode& node) const {
  return node.worker_attached() && (!node.has_lease || step_.now() - node.renewed_at < CutOffAfter());
}

// True if at least half of these witnesses are in contact with the server. A node that asks them then cannot conclude that most
// of them have lost the server. False for an empty list, because a node that got an empty list never ends its ranks.
bool Leases::HasQuorum(const std::vector<NodeId>& witnesses) const {
  if (witnesses.empty()) return false;
  const auto reached = std::count_if(witnesses.begin(), witnesses.end(), [&](const NodeId& name) {
    const LiveNode* found = nodes_.Find(name);
    return found != nullptr && InContact(*found);
  });
  return 2 * static_cast<size_t>(reached) >= witnesses.size();
}

// Used for a node whose witnesses are unknown, because an earlier server chose them: they may be any nodes. If almost all nodes
// are in contact, most of the unknown witnesses are in contact too.
bool Leases::AlmostAllAreInContact() const {
  const auto away =
      std::count_if(nodes_.all().begin(), nodes_.all().end(), [&](const auto& entry) { return !InContact(entry.second); });
  return (away - 1) * kOneOfMany <= static_cast<int64_t>(nodes_.all().size()) - 1;
}

void Leases::WatchQuorum() {
  if (!options_.leases || options_.Makes(Mistake::kForgetQuorum)) return;
  std::optional<bool> almost_all;
  for (auto& [name, node] : nodes_.all()) {
    if (node.worker_attached() || node.jobs.empty() || (node.heard && !node.has_lease)) continue;
    const bool quorum = std::all_of(node.told.begin(), node.told.end(), [&](const LiveNode::Told& told) {
      if (told.witnesses.has_value()) return HasQuorum(*told.witnesses);
      if (!almost_all.has_value()) almost_all = AlmostAllAreInContact();
      return *almost_all;
    });
    if (!quorum) node.absent_since = step_.now();
  }
}

bool Leases::AwayFor(const LiveNode& node, Nanos timeout, Nanos since) const {
  const Nanos cut_off(CutOffAfter().value * 5 / 3);
  if (options_.leases) timeout = std::max(timeout, cut_off);
  if (options_.leases && step_.now() - began_ < kNewServerGrace + cut_off) return false;
  if (step_.now() - std::max({node.worker_gone_at, node.absent_since, since}) >= timeout) return true;
  return step_.now() - std::max(node.worker_gone_at, since) >= Nanos(timeout.value * kTimesWithoutQuorum);
}

void Leases::Forget(const NodeId& name) {
  std::erase_if(ring_, [&](const auto& entry) { return entry.second == name; });
}

}  // namespace lynx::server
