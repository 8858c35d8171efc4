// Simulates what people do with a cluster: they hold and release jobs, cordon and drain nodes, and set queues.
#include <algorithm>
#include <utility>

#include "tests/sim/world.h"

namespace lynx::server::sim {

void World::Meddle() {
  if (faults_over_) return;
  Random& random = common_.random;
  const ClientJob& client = clients_[static_cast<size_t>(random.Below(static_cast<int64_t>(clients_.size())))];
  auto at = nodes_.begin();
  std::advance(at, random.Below(static_cast<int64_t>(nodes_.size())));
  const NodeId& node = at->first;
  switch (random.Below(5)) {
    case 0:
      if (client.acknowledged.has_value()) Give(HoldRequested{++last_request_, *client.acknowledged, "later"});
      break;
    case 1:
      if (client.acknowledged.has_value()) Give(ReleaseRequested{++last_request_, *client.acknowledged});
      break;
    case 2: {
      Cordon cordon{.reason = "work", .drain = random.Chance(0.7)};
      if (cordon.drain && random.Chance(0.5)) cordon.deadline = common_.timeline.now() + Seconds(random.Between(1, 60));
      common_.Tell(absl::StrCat(node.value, cordon.drain ? " is drained" : " is cordoned"));
      Give(CordonRequested{++last_request_, node, cordon});
      break;
    }
    case 3:
      common_.Tell(absl::StrCat(node.value, " takes ranks"));
      Give(CordonRequested{++last_request_, node, std::nullopt});
      break;
    default: {
      QueueConfig queue{.name = random.Chance(0.5) ? "team" : kDefaultQueue,
                        .weight = static_cast<int32_t>(1 + random.Below(3)),
                        .quota = static_cast<int32_t>(random.Below(4))};
      queue.user_quota = queue.quota / 2;
      Give(QueueRequested{++last_request_, queue});
    }
  }
  common_.timeline.After(Seconds(random.Between(1, 40)), [this] { Meddle(); });
}

// Releases all jobs and ends all cordons, so that no job is held and no node is cordoned at the end.
void World::LetGo() {
  for (const auto& [name, node] : nodes_) Give(CordonRequested{++last_request_, name, std::nullopt});
  for (const auto& [id, stored] : std::map<JobId, Stored>(store_)) Give(ReleaseRequested{++last_request_, id});
}

const JobRecord* World::StoredByName(const std::string& name) const {
  const auto found =
      std::find_if(store_.begin(), store_.end(), [&](const auto& entry) { return entry.second.record.spec->name == name; });
  return found == store_.end() ? nullptr : &found->second.record;
}

void World::CheckNewGeneration(const JobRecord& job, const Plan& plan) {
  const std::string begins = absl::StrCat("job ", job.id.value, " begins generation ", job.generation.value);
  if (job.held) common_.Violation(absl::StrCat(begins, " though it is held"));
  for (const std::string& name : job.spec->scheduling.after) {
    const JobRecord* before = StoredByName(name);
    if (before == nullptr || before->state != JobState::kSucceeded) {
      common_.Violation(absl::StrCat(begins, " though ", name, " has not succeeded"));
    }
  }
  for (const RankRecord& rank : job.ranks) {
    const auto r = static_cast<int32_t>(&rank - job.ranks.data());
    for (const MemoryLimit& limit : job.memory_limits) {
      if (plan.stages[static_cast<size_t>(CoordinatesOf(plan.layout, r).stage)].arena <= limit.limit) continue;
      common_.Violation(absl::StrCat(begins, " with a plan that takes more memory than it has found there to be"));
    }
    if (std::find(job.excluded.begin(), job.excluded.end(), rank.where.node) != job.excluded.end()) {
      common_.Violation(absl::StrCat(begins, " on ", rank.where.node.value, ", which it does not use any more"));
    }
    if (settings_.cordons.contains(rank.where.node)) {
      common_.Violation(absl::StrCat(begins, " on ", rank.where.node.value, ", which is cordoned"));
    }
  }
}

}  // namespace lynx::server::sim
