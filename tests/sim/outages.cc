// Simulates a store that cannot be reached for a while. Like the real event loop, the leader keeps the effects that it cannot
// write and refuses new jobs. It stops leading when its lease has ended. The store may have written the first failed commit
// although its answer was lost. When the store is back, the leader finds out about that commit and leads on, or another server
// leads.
#include <algorithm>
#include <set>
#include <utility>

#include "tests/sim/world.h"

namespace lynx::server::sim {
namespace {

// Times in seconds. A leader stops leading kHeld after its newest renewal, and its process ends kMaxPause later. No other
// server can take the lease for kLease after that renewal.
constexpr double kHeld = 2.5, kLease = 3, kMaxPause = 30;

// The job of an effect that the simulated store keeps; empty: the effect is not about a job.
JobId JobOf(const Effect& durable) {
  if (const auto* insert = std::get_if<InsertJob>(&durable)) return insert->job.id;
  if (const auto* update = std::get_if<UpdateJob>(&durable)) return update->job.id;
  if (const auto* event = std::get_if<InsertEvent>(&durable)) return event->job;
  if (const auto* plan = std::get_if<InsertPlan>(&durable)) return plan->job;
  if (const auto* gone = std::get_if<DeleteJob>(&durable)) return gone->job;
  return JobId();
}

}  // namespace

void World::StoreFails() {
  if (faults_over_) return;
  Random& random = *outages_;
  common_.timeline.After(Seconds(random.Between(20, 90)), [this] { StoreFails(); });
  if (store_away_ || controller_ == nullptr || stop_in_commit_) return;
  ++common_.outcome.outages;
  common_.Tell("the store is away");
  store_away_ = true;
  away_since_ = common_.timeline.now();
  const Nanos begin = away_since_;
  const auto still = [this, begin] { return store_away_ && away_since_ == begin && controller_ != nullptr; };
  common_.timeline.After(Seconds(kHeld), [this, still] {
    if (!still()) return;
    common_.Tell("the leader pauses");
    paused_ = true;
    BreakAllStreams(/*server_notices=*/true);
  });
  common_.timeline.After(Seconds(kHeld + kMaxPause), [this, still] {
    if (still()) CrashServer(Seconds(outages_->Between(0.1, 2)));
  });
  // Most outages last as long as the promotion of a standby database.
  const double length = random.Chance(0.1) ? random.Between(20, 50) : random.Between(0.2, 10);
  common_.timeline.After(Seconds(length), [this, begin] {
    if (store_away_ && away_since_ == begin) StoreReturns();
  });
}

void World::StoreReturns() {
  store_away_ = false;
  common_.Tell("the store is back");
  if (controller_ == nullptr) return;
  const bool lease_over = common_.timeline.now() - away_since_ > Seconds(kLease);
  if (lease_over && stops_.has_value() && outages_->Chance(0.5)) {
    common_.Tell("another server takes the lease first");
    ++common_.outcome.takeovers;
    controller_.reset();
    requests_.clear();
    ForgetKept();
    return TakeOver(epoch_);
  }
  const WorldMistake mistake = common_.options.world_mistake;
  if (!doubtful_.empty()) {
    const bool written = doubt_written_ || mistake == WorldMistake::kBelieveWritten;
    std::vector<Effect> settled = std::exchange(doubtful_, {});
    if (doubt_written_ && mistake == WorldMistake::kWriteTwice) Commit(settled);
    if (!written) {
      pending_.insert(pending_.begin(), std::move(settled));
      LoseSubmissions();
    }
  }
  for (const std::vector<Effect>& effects : std::exchange(pending_, {})) Commit(effects);
  for (Effect& effect : std::exchange(held_, {})) CarryOne(effect);
  if (paused_) controller_->LeadsAgain(common_.timeline.now());
  paused_ = false;
}

void World::Keep(std::vector<Effect> effects) {
  const bool first = pending_.empty() && doubtful_.empty();
  std::vector<Effect> durable;
  for (Effect& effect : effects) {
    if (IsDurable(effect)) {
      durable.push_back(std::move(effect));
    } else if (std::holds_alternative<StepRecorded>(effect) || std::holds_alternative<RenewLease>(effect)) {
      CarryOne(effect);  // these effects do not depend on the store
    } else {
      held_.push_back(std::move(effect));
    }
  }
  if (!durable.empty()) pending_.push_back(std::move(durable));
  if (pending_.empty() && doubtful_.empty()) {
    for (Effect& effect : std::exchange(held_, {})) CarryOne(effect);
  } else if (first && outages_->Chance(0.5)) {
    ++common_.outcome.in_doubt;
    doubtful_ = std::move(pending_.front());
    pending_.clear();
    doubt_written_ = outages_->Chance(0.5);
    common_.Tell(doubt_written_ ? "a commit is written, and its answer is lost" : "a commit is lost, and its answer, too");
    if (doubt_written_) Commit(doubtful_);
  } else if (first) {
    LoseSubmissions();
  }
}

void World::LoseSubmissions() {
  std::set<JobId> lost;
  for (const std::vector<Effect>& effects : pending_) {
    for (const Effect& effect : effects) {
      if (std::holds_alternative<InsertJob>(effect)) lost.insert(JobOf(effect));
    }
  }
  for (std::vector<Effect>& effects : pending_) {
    std::erase_if(effects, [&](const Effect& effect) { return lost.contains(JobOf(effect)); });
  }
  std::vector<Effect> answers;
  for (Effect& effect : std::exchange(held_, {})) {
    auto* const reply = std::get_if<Reply>(&effect);
    if (reply != nullptr && reply->status.ok() && lost.contains(reply->job)) {
      reply->status = absl::UnavailableError("the store is away");
      answers.push_back(std::move(effect));
    } else {
      held_.push_back(std::move(effect));
    }
  }
  for (Effect& effect : answers) CarryOne(effect);
  const Nanos now = common_.timeline.now();
  for (const JobId& job : lost) {
    std::vector<Effect> durable;
    for (Effect& effect : controller_->Step({now, now, SubmissionLost{job}})) {
      (IsDurable(effect) ? durable : held_).push_back(std::move(effect));
    }
    if (!durable.empty()) pending_.push_back(std::move(durable));
  }
}

void World::ForgetKept() {
  pending_.clear();
  doubtful_.clear();
  held_.clear();
  paused_ = false;
}

}  // namespace lynx::server::sim
