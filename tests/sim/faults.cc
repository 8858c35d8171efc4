// Makes the faults of a simulated cluster, and checks its jobs at the end.
#include <utility>

#include "tests/sim/world.h"

namespace lynx::server::sim {
namespace {

constexpr int kNodes = 4;
constexpr double kFaultsFor = 240;
constexpr double kFaultsEvery = 6;
constexpr double kPatience = 4000;  // in seconds; jobs must end within this time after the last fault

// Returns the specification of a job of at most `most_ranks` ranks.
JobSpec SpecOf(size_t i, int32_t most_ranks, Random& random) {
  JobSpec spec;
  spec.name = absl::StrCat("job", i);
  spec.model = {.layers = 4, .hidden = 64, .heads = 4, .seq = 32};
  spec.data.path = "/data/text";
  spec.train.steps = 20 + random.Below(120);
  spec.train.global_batch = 16;
  spec.resources.max_ranks = static_cast<int32_t>(1 + random.Below(most_ranks));
  spec.resources.min_ranks = random.Chance(0.6) ? 1 : spec.resources.max_ranks;
  spec.max_restarts = random.Chance(0.2) ? 1 : 30;
  SchedulingSpec& scheduling = spec.scheduling;
  scheduling.priority = static_cast<int32_t>(random.Below(3)) - 1;
  if (random.Chance(0.3)) scheduling.queue = "team";
  scheduling.preemptible = random.Chance(0.9);
  if (i > 0 && random.Chance(0.2)) scheduling.after = {absl::StrCat("job", random.Below(static_cast<int64_t>(i)))};
  if (random.Chance(0.15)) scheduling.time_limit = Seconds(random.Between(30, 300));
  Normalize(spec);
  return spec;
}

}  // namespace

// Submits a job. Repeats the submission with the same key until the server has answered.
void World::Submit(size_t index) {
  ClientJob& client = clients_[index];
  if (client.acknowledged.has_value() || client.refused) return;
  const int64_t request = ++last_request_;
  const JobSubmitted submitted{.request = request,
                               .id = JobId(absl::StrCat("j", ++last_id_)),
                               .idempotency_key = client.key,
                               .spec = client.spec,
                               .spec_digest = client.spec.name,
                               .owner = index % 2 == 0 ? "alice" : "bob"};
  if (!GiveToSleeper(submitted, index)) {
    requests_[request] = index;
    Give(submitted);
  }
  common_.timeline.After(Seconds(common_.random.Between(1, 4)), [this, index] { Submit(index); });
}

void World::Fault() {
  if (faults_over_) return;
  ++common_.outcome.faults;
  Random& random = common_.random;
  auto at = nodes_.begin();
  std::advance(at, random.Below(kNodes));
  SimNode& node = at->second;
  const auto mend_later = [&](double least, double most, auto mend) {
    common_.timeline.After(Seconds(random.Between(least, most)), [this, &node, mend] { mend(node); });
  };
  switch (random.Below(10)) {
    case 0: CrashServer(Seconds(random.Between(0.5, 15))); break;
    case 1:
      common_.Tell(absl::StrCat(node.name.value, ": worker daemon is killed"));
      StopWorker(node);
      mend_later(0.5, 15, [this](SimNode& n) {
        if (n.powered) StartDaemons(n);
      });
      break;
    case 2:
      StopAgent(node);
      mend_later(0.5, 10, [this](SimNode& n) {
        if (n.powered) StartDaemons(n);
      });
      break;
    case 3:
    case 4: {  // a rank is killed
      for (auto& [key, rank] : node.ranks) {
        if (!rank.alive || random.Chance(0.5)) continue;
        EndProcess(node, key, rank, 137, "killed by signal 9 (Killed)");
        break;
      }
      break;
    }
    case 5:
      CrashNode(node);
      mend_later(2, random.Chance(0.3) ? 300 : 40, [this](SimNode& n) {
        if (!faults_over_) StartDaemons(n);
      });
      break;
    case 6: {
      const int64_t ways = random.Below(3);
      node.cut_to_server = ways != 1;
      node.cut_from_server = ways != 0;
      common_.Tell(absl::StrCat(node.name.value, " is cut from the server, ways ", ways));
      mend_later(0.5, 60, [](SimNode& n) { n.cut_to_server = n.cut_from_server = false; });
      break;
    }
    case 7:
      node.isolated = node.cut_to_server = node.cut_from_server = true;
      common_.Tell(absl::StrCat(node.name.value, " is cut from all"));
      mend_later(0.5, 90, [](SimNode& n) { n.isolated = n.cut_to_server = n.cut_from_server = false; });
      break;
    case 8: {
      const Nanos mended = Seconds(random.Between(5, 120));
      for (auto& [name, other] : nodes_) {
        if (other.apart || random.Chance(0.4)) continue;
        common_.Tell(absl::StrCat(name.value, " is in a part that is cut off"));
        other.apart = other.cut_to_server = other.cut_from_server = true;
        common_.timeline.After(mended, [&other] { other.apart = other.cut_to_server = other.cut_from_server = false; });
      }
      break;
    }
    default: {
      ClientJob& client = clients_[static_cast<size_t>(random.Below(static_cast<int64_t>(clients_.size())))];
      if (!client.acknowledged.has_value() || !random.Chance(0.3)) break;
      client.cancelled = true;
      Give(CancelRequested{++last_request_, *client.acknowledged, "enough"});
    }
  }
  common_.timeline.After(Seconds(random.Between(0.1, 2 * kFaultsEvery)), [this] { Fault(); });
}

void World::Mend() {
  common_.Tell("everything is mended");
  faults_over_ = true;
  if (store_away_) StoreReturns();
  while (!sleepers_.empty()) WakeUp(sleepers_.front().epoch);
  if (controller_ == nullptr) StartServer();
  LetGo();
  for (auto& [name, node] : nodes_) {
    node.cut_to_server = node.cut_from_server = node.isolated = node.apart = false;
    name == doomed_ ? CrashNode(node) : StartDaemons(node);
  }
}

bool World::AllEnded() const {
  for (const ClientJob& client : clients_) {
    if (client.refused) continue;
    if (!client.acknowledged.has_value()) return false;
    const auto stored = store_.find(*client.acknowledged);
    if (stored == store_.end() || !IsFinal(stored->second.record.state)) return false;
  }
  return true;
}

bool World::MayHaveFailed(const ClientJob& client, const JobRecord& job) const {
  const bool in_time = client.spec.scheduling.time_limit == Nanos(0) || job.trained < client.spec.scheduling.time_limit;
  return job.restart_charge > client.spec.max_restarts || !in_time || job.reason.find("does not fit") != std::string::npos;
}

bool World::MayBeCancelled(const ClientJob& client, const JobRecord& job) const {
  if (client.cancelled) return true;
  for (const std::string& name : client.spec.scheduling.after) {
    const JobRecord* before = StoredByName(name);
    if (before != nullptr && IsFinal(before->state) && before->state != JobState::kSucceeded)
      return job.generation == Generation(0);
  }
  return false;
}

void World::CheckEnd() {
  for (const ClientJob& client : clients_) {
    if (client.refused) continue;
    if (!client.acknowledged.has_value()) {
      common_.Violation(absl::StrCat("the submission ", client.key, " is never answered"));
      continue;
    }
    const auto stored = store_.find(*client.acknowledged);
    if (stored == store_.end()) {
      common_.Violation(absl::StrCat("job ", client.acknowledged->value, " was acknowledged and is lost"));
      continue;
    }
    const JobRecord& job = stored->second.record;
    common_.Tell(absl::StrCat("job ", job.id.value, " is ", EnumName(job.state), ": ", job.reason));
    for (const NodeId& node : job.excluded) {
      ++common_.outcome.excluded;
      if (node != bad_)
        common_.Violation(absl::StrCat("job ", job.id.value, " does not use node ", node.value, ", which is not bad"));
    }
    const int64_t on_disk = disks_[job.id].step;
    switch (job.state) {
      case JobState::kSucceeded:
        ++common_.outcome.succeeded;
        if (on_disk != client.spec.train.steps) {
          common_.Violation(absl::StrCat("job ", job.id.value, " succeeded with its last checkpoint of step ", on_disk, " of ",
                                         client.spec.train.steps));
        }
        break;
      case JobState::kFailed:
        ++common_.outcome.failed;
        if (!MayHaveFailed(client, job)) {
          common_.Violation(absl::StrCat("job ", job.id.value, " failed without a cause: ", job.reason));
        }
        break;
      case JobState::kCancelled:
        ++common_.outcome.cancelled;
        if (!MayBeCancelled(client, job)) common_.Violation(absl::StrCat("job ", job.id.value, " was cancelled by nobody"));
        break;
      default: common_.Violation(absl::StrCat("job ", job.id.value, " never ends: ", EnumName(job.state), ", ", job.reason));
    }
  }
  if (store_.size() > clients_.size()) common_.Violation("there are jobs that nobody submitted");
}

Outcome World::Run() {
  for (int i = 0; i < kNodes; ++i) {
    SimNode& node = nodes_[NodeId(absl::StrCat("n", i))];
    node.name = NodeId(absl::StrCat("n", i));
    node.devices = static_cast<int32_t>(1 + common_.random.Below(2));
    node.powered = false;
    node.memory = common_.random.Chance(0.93) ? Bytes(1 << 30)
                                              : Bytes(static_cast<int64_t>(common_.random.Between(0.5, 0.87) * (1 << 30)));
  }
  leases_ = common_.random.Chance(0.75);
  StartServer();
  for (auto& [name, node] : nodes_) StartDaemons(node);
  if (common_.random.Chance(0.3)) doomed_ = NodeId("n3");  // this node does not come back; at least three devices are left
  // A separate generator draws the bad node. So all other numbers that a seed gives stay the same.
  Random apart(common_.options.seed ^ 0xbad'0de);
  if (doomed_.value.empty() && apart.Chance(0.3)) bad_ = NodeId(absl::StrCat("n", apart.Below(kNodes)));
  // A third generator draws the faults of servers (half of the seeds have three servers), of the store, and of people's
  // requests.
  Random servers(common_.options.seed ^ 0x1ea'de25);
  if (servers.Chance(0.5)) {
    stops_ = servers;
    common_.timeline.After(Seconds(stops_->Between(5, 40)), [this] { StopLeader(); });
  }
  Random store(common_.options.seed ^ 0x5'70'4e);
  if (store.Chance(0.5)) {
    outages_ = store;
    common_.timeline.After(Seconds(outages_->Between(5, 60)), [this] { StoreFails(); });
  }
  reads_ = Random(common_.options.seed ^ 0x4'ead);
  common_.timeline.After(Seconds(reads_->Between(1, 20)), [this] { Read(); });
  const int32_t most_ranks = doomed_.value.empty() && bad_.value.empty() ? kNodes : kNodes - 1;
  const size_t jobs = static_cast<size_t>(2 + common_.random.Below(4));
  for (size_t i = 0; i < jobs; ++i) {
    clients_.push_back({.key = absl::StrCat("key", i), .spec = SpecOf(i, most_ranks, common_.random)});
  }
  for (size_t i = 0; i < jobs; ++i) {
    common_.timeline.After(Seconds(common_.random.Between(0, 120)), [this, i] { Submit(i); });
  }
  common_.timeline.After(Seconds(common_.random.Between(2, 20)), [this] { Fault(); });
  common_.timeline.After(Seconds(common_.random.Between(2, 40)), [this] { Meddle(); });
  const Nanos begin = common_.timeline.now();
  while (common_.timeline.now() - begin < Seconds(kFaultsFor)) common_.timeline.RunNext();
  Mend();
  while (common_.timeline.now() - begin < Seconds(kFaultsFor + kPatience) && !AllEnded()) common_.timeline.RunNext();
  CheckEnd();
  return std::move(common_.outcome);
}

Outcome Simulate(const Options& options) { return World(options).Run(); }

}  // namespace lynx::server::sim
