// Simulates training: the ranks of one generation do each step together. Also simulates the checkpoint directories.
#include <algorithm>
#include <utility>

#include "tests/sim/world.h"

namespace lynx::server::sim {
namespace {

constexpr double kConnectTimeout = 15;  // seconds
// Ranks that cannot reach each other during a step give up after this time, in seconds.
constexpr double kIdleTimeout = 10;
constexpr int64_t kCheckpointEvery = 10;  // steps

}  // namespace

Gang& World::GangOf(const RankKey& key) {
  Gang& gang = gangs_[{key.job, key.generation.value}];
  gang.job = key.job;
  gang.generation = key.generation;
  return gang;
}

SimRank* World::LiveRank(Gang& gang, int32_t rank) {
  const auto at = gang.present.find(rank);
  if (at == gang.present.end()) return nullptr;
  const auto found = at->second->ranks.find({gang.job, gang.generation, rank});
  return found != at->second->ranks.end() && found->second.alive ? &found->second : nullptr;
}

template <class Body>
void World::Say(SimNode& node, const RankKey& key, Body body) {
  SimRank& rank = node.ranks.at(key);
  rank.messages.push_back({key, ++rank.sequence, std::move(body)});
  node.news = true;
}

// Lets the process of a rank connect to its peers.
void World::Join(SimNode& node, const RankKey& key) {
  const auto found = node.ranks.find(key);
  if (found == node.ranks.end() || !found->second.alive) return;
  Gang& gang = GangOf(key);
  if (gang.over || gang.present.contains(key.rank)) {
    // The gang has already ended, for example because this rank came too late. Or the generation was started a second time, and
    // another process has the rank's place.
    if (gang.present.contains(key.rank) && LiveRank(gang, key.rank) != nullptr && gang.present.at(key.rank) != &node) {
      common_.Violation(absl::StrCat(RankKeyText(key), " runs twice"));
    }
    Say(node, key, RankFailure{"no peers", true});
    return EndProcess(node, key, found->second, kRankExitPeerLost, "no peers", true);
  }
  const size_t ranks = found->second.assignment.peers->size();
  if (gang.present.empty()) {
    common_.timeline.After(Seconds(kConnectTimeout), [this, key] {
      Gang& late = GangOf(key);
      if (!late.connected && !late.over) Break(late);
    });
  }
  gang.present[key.rank] = &node;
  if (gang.present.size() < ranks) return;
  common_.timeline.After(Seconds(common_.random.Between(0.05, 0.5)), [this, key] { Connect(GangOf(key)); });
}

bool World::AllAlive(Gang& gang) {
  for (const auto& [rank, node] : gang.present) {
    if (LiveRank(gang, rank) == nullptr) return false;
  }
  return true;
}

bool World::AllReach(Gang& gang) {
  const SimNode* const first = gang.present.begin()->second;
  return std::all_of(gang.present.begin(), gang.present.end(),
                     [&](const auto& entry) { return first->Reaches(*entry.second); });
}

void World::Connect(Gang& gang) {
  if (gang.over) return;
  if (!AllAlive(gang) || !AllReach(gang)) return Break(gang);
  Disk& disk = disks_[gang.job];
  const bool fenced = common_.options.world_mistake != WorldMistake::kNoFence;
  if (fenced && disk.fence > gang.generation) {
    return EndGang(gang, kRankExitFailure, [&](SimRank&, const RankKey& key) {
      Say(*gang.present.at(key.rank), key, RankFailure{"a newer generation has begun", false});
    });
  }
  disk.fence = std::max(disk.fence, gang.generation);
  if (RunsOut(gang) || FailsCheck(gang)) return;
  gang.connected = true;
  gang.step = std::max<int64_t>(disk.step, 0);
  gang.base_commits = disk.commits;
  ++common_.outcome.generations;
  common_.Tell(absl::StrCat("job ", gang.job.value, " generation ", gang.generation.value, " trains from step ", gang.step,
                            " with ", gang.present.size(), " ranks"));
  for (const auto& [rank, node] : gang.present) {
    const RankKey key{gang.job, gang.generation, rank};
    if (rank == 0 && disk.step > node->ranks.at(key).assignment.resume_step) {
      Say(*node, key, CheckpointReport{disk.step, absl::StrCat("step-", disk.step), Bytes(1)});
    }
    Say(*node, key, RankReady{.next_step = gang.step});
  }
  if (gang.step < StepsOf(gang)) return TrainStep(gang);
  // All steps are done, and the newest checkpoint is of the last step. But the ranks that wrote it ended before they could
  // report it.
  EndGang(gang, kRankExitOk, [&](SimRank&, const RankKey& key) { Say(*gang.present.at(key.rank), key, RankDone{gang.step}); });
}

// Ends the gang and returns true if the node of a rank has too little memory for the plan. The first such rank fails, and the
// other ranks lose it.
bool World::RunsOut(Gang& gang) {
  for (const auto& [rank, node] : gang.present) {
    const RankKey key{gang.job, gang.generation, rank};
    const Plan& plan = *node->ranks.at(key).assignment.plan;
    if (plan.stages[static_cast<size_t>(CoordinatesOf(plan.layout, rank).stage)].arena <= node->memory) continue;
    ++common_.outcome.memory_faults;
    Say(*node, key, RankFailure{"cannot allocate the arena", false, FaultCause::kMemory});
    EndProcess(*node, key, node->ranks.at(key), kRankExitFailure, "cannot allocate the arena");
    Break(gang);
    return true;
  }
  return false;
}

// If the ranks check their nodes and one node is bad, its rank reports this, the other ranks end too, and the result is true.
// If no node is bad, rank 0 reports that the check passed.
bool World::FailsCheck(Gang& gang) {
  const auto checks = [&](int32_t rank) {
    return gang.present.at(rank)->ranks.at({gang.job, gang.generation, rank}).assignment.check;
  };
  for (const auto& [rank, node] : gang.present) {
    if (checks(rank) == checks(0)) continue;
    common_.Violation(absl::StrCat("job ", gang.job.value, " generation ", gang.generation.value, ": rank ", rank,
                                   checks(0) ? " does not check its node, rank 0 does" : " checks its node, rank 0 does not"));
  }
  if (!checks(0)) return false;
  ++common_.outcome.checks;
  for (const auto& [rank, node] : gang.present) {
    if (node->name != bad_) continue;
    ++common_.outcome.failed_checks;
    const RankKey key{gang.job, gang.generation, rank};
    Say(*node, key, RankFailure{"node check: the device computes wrongly", false, FaultCause::kCheck});
    EndProcess(*node, key, node->ranks.at(key), kRankExitFailure, "node check: the device computes wrongly");
    Break(gang);
    return true;
  }
  Say(*gang.present.at(0), {gang.job, gang.generation, 0},
      NodeCheckReport{Seconds(0.2), static_cast<int32_t>(gang.present.size()), 1, 1});
  return false;
}

int64_t World::StepsOf(const Gang& gang) const {
  const auto stored = store_.find(gang.job);
  return stored == store_.end() ? 0 : stored->second.record.spec->train.steps;
}

// Does the current step.
void World::TrainStep(Gang& gang) {
  const std::pair<JobId, int64_t> id{gang.job, gang.generation.value};
  const double duration = 0.8 / static_cast<double>(gang.present.size()) + 0.2;
  common_.timeline.After(Seconds(common_.random.Between(duration, duration * 1.2)), [this, id, duration] {
    Gang& gang = gangs_.at(id);
    if (gang.over) return;
    if (!AllAlive(gang)) return Break(gang);
    if (!AllReach(gang)) {
      return common_.timeline.After(Seconds(kIdleTimeout), [this, id] {
        Gang& gang = gangs_.at(id);
        if (gang.over) return;
        AllReach(gang) && AllAlive(gang) ? TrainStep(gang) : Break(gang);
      });
    }
    CheckDevices(gang);
    CheckGenerations(gang);
    const bool done = ++gang.step >= StepsOf(gang);
    bool yields = false;
    for (const auto& [rank, node] : gang.present) {
      yields = yields || LiveRank(gang, rank)->yield;
      Say(*node, {gang.job, gang.generation, rank},
          StepReport{.step = gang.step - 1, .loss = 1, .tokens = 1, .duration = Seconds(duration)});
    }
    if (done || yields || gang.step % kCheckpointEvery == 0) {
      if (!Write(gang)) {
        if (gang.over) return;
        if (done) --gang.step;  // the last step is repeated
        yields = false;
        return TrainStep(gang);
      }
    }
    if (done || yields) {
      return EndGang(gang, done ? kRankExitOk : kRankExitYielded, [&](SimRank&, const RankKey& key) {
        SimNode& node = *gang.present.at(key.rank);
        done ? Say(node, key, RankDone{gang.step}) : Say(node, key, RankYielded{gang.step});
      });
    }
    TrainStep(gang);
  });
}

// Writes a checkpoint of the present step. Returns false if none was written; in this case the gang may have ended.
bool World::Write(Gang& gang) {
  Disk& disk = disks_[gang.job];
  const RankKey first{gang.job, gang.generation, 0};
  if (common_.options.world_mistake != WorldMistake::kNoFence && disk.fence > gang.generation) {
    EndGang(gang, kRankExitFailure, [&](SimRank&, const RankKey& key) {
      Say(*gang.present.at(key.rank), key, RankFailure{"a newer generation has begun", false});
    });
    return false;
  }
  if (!faults_over_ && common_.random.Chance(0.05)) {
    Say(*gang.present.at(0), first, CheckpointFailure{gang.step, "no space left"});
    return false;
  }
  if (disk.commits != gang.base_commits) {
    common_.Violation(absl::StrCat("job ", gang.job.value, ": generation ", gang.generation.value,
                                   " writes a checkpoint of step ", gang.step, " over another run's"));
  }
  gang.base_commits = ++disk.commits;
  disk.step = gang.step;
  ++common_.outcome.commits;
  Say(*gang.present.at(0), first, CheckpointReport{gang.step, absl::StrCat("step-", gang.step), Bytes(1)});
  return true;
}

// Ends the gang after one of its ranks has ended: all other ranks report the lost peer and end.
void World::Break(Gang& gang) {
  EndGang(gang, kRankExitPeerLost, [&](SimRank&, const RankKey& key) {
    Say(*gang.present.at(key.rank), key, RankFailure{"a peer is gone", true});
  });
}

void World::EndGang(Gang& gang, int32_t code, const std::function<void(SimRank&, const RankKey&)>& last_words) {
  gang.over = true;
  for (const auto& [rank, node] : gang.present) {
    SimRank* const one = LiveRank(gang, rank);
    if (one == nullptr) continue;
    const RankKey key{gang.job, gang.generation, rank};
    last_words(*one, key);
    EndProcess(*node, key, *one, code, code == kRankExitPeerLost ? "a peer is gone" : "", code == kRankExitPeerLost);
  }
}

// Checks that no other rank trains on a device of this gang.
void World::CheckDevices(Gang& gang) {
  for (const auto& [rank, node] : gang.present) {
    const int32_t device = LiveRank(gang, rank)->assignment.device;
    for (const auto& [key, other] : node->ranks) {
      const bool itself = key == RankKey{gang.job, gang.generation, rank};
      if (itself || !other.alive || other.assignment.device != device) continue;
      const Gang& theirs = GangOf(key);
      if (!theirs.connected || theirs.over) continue;
      common_.Violation(absl::StrCat("device ", device, " of ", node->name.value, " trains for ", RankKeyText(key),
                                     " and for job ", gang.job.value, " generation ", gang.generation.value));
    }
  }
}

// Checks that no newer generation trains at the same time as this generation, which has just done a step. If a node of the gang
// has no witnesses, the gang is not checked: when such a node is cut off, it can ask no other node, and its ranks continue.
void World::CheckGenerations(const Gang& gang) {
  for (const auto& [rank, node] : gang.present) {
    if (node->terms.witnesses.empty()) return;
  }
  for (auto at = gangs_.upper_bound({gang.job, gang.generation.value}); at != gangs_.end() && at->first.first == gang.job;
       ++at) {
    if (!at->second.connected) continue;
    common_.Violation(absl::StrCat("job ", gang.job.value, ": generation ", gang.generation.value,
                                   " does a step beside generation ", at->second.generation.value));
  }
}

}  // namespace lynx::server::sim
